"""The sides of `benchmarks.serving` in the environment of the references say what ours says."""

import os
import re
import subprocess
import sys

from benchmarks import serving
from tests import small
from tests.parity.conftest import ROOT


def test_all_runtimes_say_the_same(hf, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(map("\n".join, small.documents(20))))
    vocabulary = small.tokenizer_folder(tmp_path / "tokenizer") / "vocab.txt"
    sides = [name for name in serving.SIDES if "compiled" not in name and "bfloat16" not in name]
    arguments = [
        f"--folder={tmp_path}/made",
        f"--text={text}",
        f"--vocabulary={vocabulary}",
        f"--vocab={len(vocabulary.read_text().splitlines())}",
        *"--layers=2 --hidden=32 --heads=2 --intermediate=64 --threads=1 --at_once 1".split(),
        *"--requests=8 --rounds=1 --batches 3 --lengths mixed --inputs text --sides".split(),
        *sides,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.serving", *arguments],
        cwd=ROOT,
        env=os.environ | {"GARDEN_HF_PYTHON": str(hf.python)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # In float32 they must agree to TOLERANCE; else the command ends with an error.
    found = re.findall(r"^(.*): differs by (\S+) from ids, (\S+) from text$", done.stdout, re.M)
    assert sorted(name for name, _, _ in found) == sorted(sides)
    for name, of_ids, of_text in found:
        assert of_ids == of_text, name
        assert float(of_ids) < 0.2, name
