import hashlib

import pytest

from official.utils import checksums
from official.utils.errors import UserError


def test_bytes_and_files_have_the_same_checksum(tmp_path):
    path = tmp_path / "file"
    for data in (b"", b"abc", bytes(1 << 20)):
        path.write_bytes(data)
        wanted = hashlib.sha256(data).hexdigest()
        assert checksums.hash_bytes(data) == checksums.hash_file(path) == wanted


def test_a_file_that_is_missing_or_has_changed_is_named(tmp_path):
    path = tmp_path / "file"
    recorded, actual = checksums.hash_bytes(b"abc"), checksums.hash_bytes(b"abd")
    assert checksums.problem(path, recorded) == f"{path} is missing"
    with pytest.raises(UserError, match="file is missing: copy it again"):
        checksums.check(path, recorded, "copy it again")
    path.write_bytes(b"abc")
    assert checksums.problem(path, recorded) is None
    checksums.check(path, recorded, "copy it again")
    path.write_bytes(b"abd")
    with pytest.raises(UserError) as error:
        checksums.check(path, recorded, "copy it again")
    assert str(error.value) == (
        f"{path} has changed since it was written: expected SHA-256 {recorded}, found {actual}: "
        "copy it again"
    )
