"""JSON objects with a checksum of themselves, and those whose entries have types."""

import io
import json
import math
import os

import pytest

from official.utils import json_files, paths
from official.utils.errors import UserError

VALUES = {"é": [1, 2.5, None], "pair": True, "sizes": (3, 4)}


def written(values) -> str:
    stream = io.StringIO()
    json_files.dump(values, stream)
    return stream.getvalue()


def read_checked(path):
    return json_files.checked(json_files.read(path), path)


def test_what_was_written_is_read_without_its_checksum(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(written(VALUES))
    assert read_checked(path) == {**VALUES, "sizes": [3, 4]}
    path.write_text(json.dumps(json.loads(path.read_text()), indent=7))
    assert read_checked(path) == {**VALUES, "sizes": [3, 4]}


def test_every_flipped_bit_is_refused_or_changes_nothing(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(written(VALUES))
    whole, values = path.read_bytes(), read_checked(path)
    refused = 0
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert read_checked(path) == values, bit
        except UserError as error:
            assert str(path) in str(error)
            refused += 1
    assert refused > 7.9 * len(whole)
    for size in range(len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError):
            read_checked(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "is nested too deep: copy it"),
        (b'{"a": ' * 100_000, "is nested too deep"),
        (b"\xff", "is not JSON: .*: copy it"),
        (b"{", "is not JSON: "),
        (b"7", "holds a int, expected an object: copy it"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON: "),
    ],
)
def test_what_is_no_object(tmp_path, content, message):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"a.json {message}"):
        json_files.read(path, "copy it")


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path):
    with pytest.raises(UserError, match="none is missing: copy it"):
        paths.read_bytes(tmp_path / "none", advice="copy it")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for name in ("pipe", "zeros", "."):
        with pytest.raises(UserError, match="is not a regular file"):
            paths.read_bytes(tmp_path / name)
    with open(tmp_path / "sparse", "wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(UserError, match="1,099,511,627,776 bytes, where at most 67,108,864"):
        paths.read_bytes(tmp_path / "sparse")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UserError, match="loop"):
        paths.read_bytes(tmp_path / "loop")


RECORD = {"step": 3, "figures": {"loss": 0.1, "nan": math.nan}, "best": None, "name": "naïve"}
KINDS = {"step": int, "figures": dict, "name": str}


def test_what_was_written_comes_back_however_it_is_laid_out(tmp_path):
    file = tmp_path / "a.json"
    json_files.write_record(file, RECORD)
    assert repr(json_files.read_record(file, KINDS)) == repr(RECORD)
    other = dict(reversed(json.loads(file.read_text()).items()))
    file.write_text(json.dumps(other, ensure_ascii=False))
    assert json_files.read_record(file, KINDS).keys() == RECORD.keys()


def test_no_flipped_bit_changes_what_is_read(tmp_path):
    file = tmp_path / "a.json"
    json_files.write_record(file, RECORD)
    data = file.read_bytes()
    refused = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        try:
            converted = json_files.read_record(file, KINDS)
        except UserError as error:
            assert str(error).startswith(f"{file}: damaged (")
            refused += 1
        else:
            assert repr({name: converted[name] for name in RECORD}) == repr(RECORD), bit
    assert refused > 0.8 * 8 * len(data)


def test_entries_of_older_versions(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('{"step": 3}')
    assert json_files.read_record(file, KINDS, {"figures": {}, "name": "a"})["name"] == "a"
    with pytest.raises(UserError, match=r"a.json: damaged \(figures: None\)"):
        json_files.read_record(file, KINDS)
