"""benchmarks.encoding: its texts, the memory of commands, its table, and our sides."""

import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import encoding
from official.conversion import converted_model, huggingface
from tests import GOLDEN, commands

OURS, LITERT = encoding.REFERENCE, f"{encoding.OURS}, LiteRT int8"
THEIRS = "fastembed, ONNX int8"


def test_texts_are_consecutive_words_of_mixed_number(tmp_path):
    (tmp_path / "source").write_text("".join(f"{i} {i + 1}\n" for i in range(0, 50, 2)))
    encoding.write_texts(tmp_path / "source", tmp_path / "texts", 2000)
    texts = (tmp_path / "texts").read_text().splitlines()
    words = [int(word) for text in texts for word in text.split()]
    assert words == [i % 50 for i in range(len(words))]  # the source is read again
    counts = np.array([len(text.split()) for text in texts])
    assert counts.min() == 4 and counts.max() == 192
    # The mean of x where 1/x is its density on (4, 193) is 189 / ln(193 / 4).
    assert counts.mean() == pytest.approx(189 / np.log(193 / 4) - 0.5, rel=0.06)
    assert np.mean(counts < 8) == pytest.approx(np.mean(counts >= 96), abs=0.03)


def test_memory_is_that_of_all_processes():
    """Two processes, the second one started by the first, write 60 and 90 MiB."""
    inner = "import time; x = b'a' * 90 * 2**20; print(1, flush=True); time.sleep(60)"
    outer = (
        "import subprocess, sys; x = b'a' * 60 * 2**20; "
        f"subprocess.run([sys.executable, '-c', {inner!r}])"
    )
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"1\n"
        pids = encoding.tree(process.pid)
        first, second = pids
        sizes = [encoding.memory([pid]) for pid in (first, second)]
        assert sizes[0] > 60 and sizes[1] > 90
        # Files of both are counted once.
        assert 150 < encoding.memory(pids) < sum(sizes) - 1
        os.kill(second, 9)  # the first one waits for its end, and ends too
    assert encoding.memory(pids) == 0


def test_a_command():
    code = "import time; x = b'a' * 80 * 2**20; time.sleep(0.7); print('done')"
    run = encoding.Run([sys.executable, "-c", code], dict(os.environ))
    assert run.output == "done\n" and run.seconds > 0.7 and 80 < run.peak < 120
    with pytest.raises(SystemExit, match=r"ended early:\n(?s:.*)NameError"):
        encoding.Run([sys.executable, "-c", "nothing"], dict(os.environ))


class Run:
    def __init__(self, seconds, peak):
        self.seconds, self.peak = seconds, peak


def test_table(capsys):
    runs = {
        OURS: [(50.0, Run(9, 700)), (60.0, Run(8, 900)), (70.0, Run(7, 800))],
        THEIRS: [(40.0, Run(20, 1200))],
    }
    vectors = {OURS: np.eye(2), THEIRS: np.array([[1, 0], [0.6, 0.8]])}
    encoding.table(runs, vectors, {OURS: " 80.12 |", THEIRS: " 79.00 |"})
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].endswith("| cosine, mean, least | STS-B |") and rows[1].count("---:") == 6
    assert rows[2] == f"| {OURS} | 60 | 1.50 | 8 | 900 | 1.0000, 1.0000 | 80.12 |"
    assert rows[3] == f"| {THEIRS} | 40 | 1.00 | 20 | 1,200 | 0.9000, 0.8000 | 79.00 |"


@pytest.mark.slow
@pytest.mark.long
def test_our_sides(tmp_path):
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "bare"), tmp_path / "made/model")
    words = "the cat sat a dog ran cats and dogs tree mat under on".split()
    (tmp_path / "text").write_text(" ".join(words))
    pairs = [("the cat sat", "a cat sat", 4), ("a dog ran", "the tree", 1), ("cats", "cats", 5)]
    rows = "".join(f"x\t{a}\t{b}\t{score}\n" for a, b, score in pairs)
    (tmp_path / "dev.tsv").write_text(f"head\n{rows}")
    done = commands.run(
        "benchmarks.encoding", f"--folder={tmp_path}/made", f"--text={tmp_path}/text",
        f"--sts={tmp_path}/dev.tsv", "--sides", OURS, LITERT, "--texts", "30", "20",
        "--threads=2", status=0,
    )  # fmt: skip
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| enc")]
    assert [row[0].strip() for row in rows] == [OURS, LITERT] * 2
    for row in rows:
        assert float(row[1]) > 0 and 100 < float(row[4].replace(",", "")) < 4000
        assert min(map(float, row[5].split(","))) > 0.99
        assert -100 <= float(row[6]) <= 100
    assert sum(1 for _ in (tmp_path / "made" / "texts-20.txt").open()) == 20
