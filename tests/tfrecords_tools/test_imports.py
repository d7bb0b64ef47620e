"""What the contracts of pyproject.toml say is true when the tools run, too."""

import json
import subprocess
import sys

import pytest

from tests import ROOT, small

COMMANDS = (
    "build_vocab",
    "build_phrases",
    "build_shards",
    "build_task_shards",
    "build_ranking_data",
    "inspect_shards",
)
BUILD = """
import json, sys
from official import config
from tfrecords_tools.pretraining import builder, examples
from tfrecords_tools.pretraining.settings import Settings
from official.utils import parallel
from tfrecords_tools.writing.execution import Execution

if __name__ == "__main__":
    tokenizer, text, output = sys.argv[1:]
    settings = Settings.from_config(config.load("configs/smoke/electra.yaml"), tokenizer)
    builder.build(settings, text, output, Execution(2))
    loaded = "sorted(__import__('sys').modules)"
    with parallel.Pool(2, examples.start_worker) as pool:
        print(json.dumps([sorted(sys.modules), *pool.ordered(eval, [loaded] * 2)]))
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_start_without_tensorflow(command):
    program = f"import sys, tfrecords_tools.{command}; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_a_build_loads_no_network_in_any_process(tmp_path):
    lines = [f"{' '.join(small.WORDS[i : i + 6])}." for i in range(0, 60, 6)]
    (tmp_path / "text.txt").write_text("\n\n".join("\n".join(lines) for _ in range(40)))
    (tmp_path / "build.py").write_text(BUILD)
    folder = small.tokenizer_folder(tmp_path / "tokenizer")
    done = subprocess.run(
        [sys.executable, tmp_path / "build.py", folder, tmp_path / "text.txt", tmp_path / "out"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    processes = json.loads(done.stdout.splitlines()[-1])
    assert len(processes) == 3
    packages = ("modeling", "data", "training", "evaluation", "serving", "distribution", "saving")
    for loaded in processes:
        assert "official.tokenizers" in loaded
        unwanted = tuple(f"official.{package}" for package in packages)
        assert not [name for name in loaded if name.startswith(unwanted)]
    assert all("tensorflow" in loaded and "keras" not in loaded for loaded in processes[1:])


def test_importing_official_changes_nothing_else():
    program = (
        "import os, sys; before = (list(sys.meta_path), dict(os.environ), os.listdir('/dev/fd'));"
        "import official;"
        "print(before == (list(sys.meta_path), dict(os.environ), os.listdir('/dev/fd')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
