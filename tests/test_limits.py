"""A limit of the size of files is one of another process."""

import resource

import pytest

from tests import limits


def _write(path):
    print("not in a file", flush=True)
    with open(path, "wb", buffering=0) as file:
        return file.write(b"a" * 20)


def test_the_limit_is_not_that_of_the_tests(tmp_path):
    """`pytest > file` goes on when the file has more bytes than a test gives its own."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert limits.run(9, _write, tmp_path / "short") == 9
    assert limits.run(30, _write, tmp_path / "whole") == 20
    with pytest.raises(OSError, match="File too large"):
        limits.run(0, _write, tmp_path / "none")
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before
    assert (tmp_path / "short").read_bytes() == b"a" * 9
