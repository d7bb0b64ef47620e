"""benchmarks.tokenizers: its rows, its tables, and texts that get other ids."""

import json
import sys

import numpy as np
import pytest

from benchmarks import tokenizers as benchmark
from official import tokenizers
from tfrecords_tools.vocabulary import word_vocabularies

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "some", "text", "and", "more", "##s"]


def test_rows(tmp_path):
    (tmp_path / "text").write_text("some text\nand é")
    rows = benchmark.make_rows(tmp_path / "text", 15e-6, (50,))
    assert list(rows) == ["text", "text, again", "a word of 50"]
    assert rows["text"] == rows["text, again"] == ["some text", "and "]  # half of a letter
    (word,) = rows["a word of 50"]
    assert len(word) == 50 and word.isalpha() and word.isascii()


def test_texts_that_get_other_ids():
    def answer(*rows):
        return benchmark.Answer(0.0, np.concatenate(rows), np.array(list(map(len, rows))))

    ours = answer([1, 2], [], [3])
    assert benchmark.different(ours, ours) == 0
    assert benchmark.different(ours, answer([1], [2], [3])) == 2
    assert benchmark.different(ours, answer([1, 2], [], [4])) == 1


@pytest.mark.slow
def test_tables(tmp_path, monkeypatch, capsys):
    counts = word_vocabularies.byte_bpe_counts()
    counts.add(["some words of some text", "and some more"])
    tokenizers.ByteBPE(*word_vocabularies.learn_byte_bpe(counts.words(), 264)).save(
        tmp_path / "byte_bpe"
    )
    tokenizers.WordPiece(PIECES).save(tmp_path / "wordpiece")
    (tmp_path / "text").write_text("some text\nand more\n" * 5)

    def theirs(rows, folder, package):
        """The same ids in twice the time; but nanotoken has another first one."""
        described = json.loads((folder / "tokenizer.json").read_text())
        assert described["model"]["type"] == ("WordPiece" if folder.name == "wordpiece" else "BPE")
        answers = benchmark.run_ours(rows, folder)
        if package == "nanotoken":
            answers["text"].ids[0] += 1
        return {name: each._replace(seconds=2 * each.seconds) for name, each in answers.items()}

    monkeypatch.setattr(benchmark, "run_theirs", theirs)
    options = {"text": "text", "wordpiece": "wordpiece", "byte_bpe": "byte_bpe"}
    flags = [f"--{name}={tmp_path / value}" for name, value in options.items()]
    monkeypatch.setattr(sys, "argv", ["x", *flags, "--letters", "50", "--rounds=2"])
    benchmark.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [row[0] for row in cells] == [
        "wordpiece", "text", "text, again", "byte_bpe", "text", "text, again", "a word of 50",
    ]  # fmt: skip
    assert [row[-1] for row in cells] == [
        "other ids", "0, 1", "0, 0", "other ids", "0, 0", "0, 0", "0, 0",
    ]  # fmt: skip
    assert cells[1][1] == "0.000" and cells[0][3:5] == ["tokenizers, MB/s", "ours / tokenizers"]
