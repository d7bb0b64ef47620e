import argparse
import random

import numpy as np
import pytest

from benchmarks import byte_bpe
from official import tokenizers
from tfrecords_tools.vocabulary import word_vocabularies as byte_bpe_trainer


@pytest.mark.slow
def test_table(tmp_path, monkeypatch, capsys):
    counts = byte_bpe_trainer.byte_bpe_counts()
    counts.add(["some words of some text", "and some more"])
    tokenizers.ByteBPE(*byte_bpe_trainer.learn_byte_bpe(counts.words(), 264)).save(
        tmp_path / "tokenizer"
    )
    (tmp_path / "text").write_text("some text\nand more\n" * 5)
    options = argparse.Namespace(
        text=tmp_path / "text",
        tokenizer=tmp_path / "tokenizer",
        megabytes=1,
        letters=(50,),
        rounds=2,
    )
    rows = byte_bpe.make_rows(options.text, 1, (50,))
    names = ["text", "text, again", "a word of 50"]
    assert (
        list(rows) == names and rows["text"] == rows["text, again"] == ["some text", "and more"] * 5
    )

    def theirs(rows, folder):
        actual = byte_bpe.run_ours(rows, folder)
        wrong = np.append(actual["text"][1], random.randrange(9))
        return {**actual, "text": (2 * actual["text"][0], wrong)}

    monkeypatch.setattr(byte_bpe, "run_theirs", theirs)
    byte_bpe.compare(options)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    assert [line.split("|")[1].strip() for line in lines] == list(rows)
    assert lines[0].endswith("DIFFERENT |") and all(line.endswith("equal |") for line in lines[1:])
