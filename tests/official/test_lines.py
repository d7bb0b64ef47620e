import pytest

from official import lines
from official.errors import UserError


def test_files_of_lines(tmp_path):
    path = tmp_path / "prompts.txt"
    with pytest.raises(UserError, match=r"prompts\.txt: no such file of prompts"):
        lines.read(path, "prompts")
    path.write_bytes(b"")
    with pytest.raises(UserError, match=r"prompts\.txt is empty: prompts are wanted, one a line"):
        lines.read(path, "prompts")
    path.write_bytes(b"\xff\n")
    with pytest.raises(UserError, match=r"prompts\.txt: not UTF-8"):
        lines.read(path, "prompts")
    path.write_bytes("a b\r\n\nü".encode())
    assert lines.read(path, "prompts") == ["a b", "", "ü"]
