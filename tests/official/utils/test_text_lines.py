import gzip

import pytest

from official.utils import text_lines
from official.utils.errors import UserError


def test_files_of_lines(tmp_path):
    path = tmp_path / "prompts.txt"
    with pytest.raises(UserError, match=r"prompts\.txt: no such file of prompts"):
        text_lines.read(path, "prompts")
    path.write_bytes(b"")
    with pytest.raises(UserError, match=r"prompts\.txt is empty: expected prompts, one on"):
        text_lines.read(path, "prompts")
    path.write_bytes(b"\xff\n")
    with pytest.raises(UserError, match=r"prompts\.txt: not UTF-8"):
        text_lines.read(path, "prompts")
    path.write_bytes("a b\r\n\nü".encode())
    assert text_lines.read(path, "prompts") == ["a b", "", "ü"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(text_lines, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / ("train.tsv.gz" if packed else "train.tsv")
    text = b"a" * (1 << 20) + b"\n" + b"b" * (1 << 21)
    path.write_bytes(gzip.compress(text) if packed else text)
    found = text_lines.lines(path, [])
    with pytest.raises(UserError, match=f"{path}:1: the line has more than 1 MiB"):
        next(found)
    path.write_bytes(gzip.compress(text[1:]) if packed else text[1:])
    found = text_lines.lines(path, [])
    assert len(next(found)) == (1 << 20) - 1
    with pytest.raises(UserError, match=f"{path}:2: the line has more than 1 MiB"):
        next(found)
