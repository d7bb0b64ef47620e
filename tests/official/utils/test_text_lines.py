import pytest

from official.utils import text_lines
from official.utils.errors import UserError


def test_files_of_lines(tmp_path):
    path = tmp_path / "prompts.txt"
    with pytest.raises(UserError, match=r"prompts\.txt: no such file of prompts"):
        text_lines.read(path, "prompts")
    path.write_bytes(b"")
    with pytest.raises(UserError, match=r"prompts\.txt is empty: prompts are wanted, one a line"):
        text_lines.read(path, "prompts")
    path.write_bytes(b"\xff\n")
    with pytest.raises(UserError, match=r"prompts\.txt: not UTF-8"):
        text_lines.read(path, "prompts")
    path.write_bytes("a b\r\n\nü".encode())
    assert text_lines.read(path, "prompts") == ["a b", "", "ü"]
