"""benchmarks.sentencepiece_speed: its table, and texts with two segmentations."""

import lzma
import sys

import numpy as np
import pytest

from benchmarks import sentencepiece_speed as benchmark
from official import tokenizers
from tests.official.tokenizers.conftest import spiece_model  # noqa: F401


def test_lines(tmp_path):
    (tmp_path / "text.txt").write_text("some text\n\nand é")
    (tmp_path / "text.txt.xz").write_bytes(lzma.compress(b"some text\nmore"))
    assert benchmark.read_lines(tmp_path / "text.txt", 16e-6) == ["some text", "and "]
    assert benchmark.read_lines(tmp_path / "text.txt.xz", 1) == ["some text", "more"]


def test_differences(spiece_model):  # noqa: F811
    tokenizer = tokenizers.SentencePiece(spiece_model())
    score = {piece.piece: piece.score for piece in tokenizer.parsed().pieces}
    a, b, c = (tokenizer.pieces.index(name) for name in ("a", "i", "▁"))
    rows = [np.array(ids) for ids in ([c, a], [c, a, b, c], [c, a])]
    others = [np.array(ids) for ids in ([c, a], [c, b, a, c], [c, b])]
    tie, worse = benchmark.differences(tokenizer, ["x", "y", "z"], rows, others)
    assert tie == ("y", ["a", "i", "▁"], ["i", "a", "▁"], 0)
    assert worse.text == "z" and worse.scores == score["a"] - score["i"] != 0


@pytest.mark.slow
def test_table(tmp_path, monkeypatch, capsys, spiece_model):  # noqa: F811
    tokenizers.SentencePiece(spiece_model()).save(tmp_path / "small")
    (tmp_path / "text.txt").write_text("It flows through Spain.\nIt flows.\n" * 300)
    flags = [f"--text={tmp_path / 'text.txt'}", "--rounds=1", "--tokenizers"]
    monkeypatch.setattr(sys, "argv", ["x", *flags, str(tmp_path / "small")])
    benchmark.main()
    head, _, row = (line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines())
    assert len(head) == len(row) == 10
    assert [cell.strip() for cell in (row[0], row[8], row[9])] == ["small", "0 of 600", "0"]
    assert all(float(cell) > 0 for cell in row[2:8])
