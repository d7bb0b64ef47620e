import json
import math

import pytest

from official.utils import json_files
from official.utils.errors import UserError

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
