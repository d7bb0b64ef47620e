"""Objects of JSON Lines and of lists of JSON, with their lines."""

import gzip

import pytest

from official.utils import json_rows, text_lines
from official.utils.errors import UserError
from official.utils.text_lines import BadRows


def read(tmp_path, text, bad=text_lines.refuse, name="a.json"):
    path = tmp_path / name
    content = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return list(json_rows.objects(path, bad))


@pytest.mark.parametrize("name", ["a.json", "a.jsonl.gz"])
def test_a_list_is_read_as_lines_are(tmp_path, name):
    rows = [(0, 1, {"a": 1}), (1, 2, {"b": [2, "]"]}), (2, 5, {})]
    lines = '{"a": 1}\n{"b": [2, "]"]}\n\n\n{}\n'
    assert read(tmp_path, lines, name=name) == rows
    listed = " \ufeff".strip() + '[{"a": 1},\n{"b": [2,\n "]"]},\n\n{}]\n'
    assert read(tmp_path, listed, name=name) == rows
    assert read(tmp_path, "\ufeff\n [\n{\n}\n]", name=name) == [(0, 3, {})]
    assert read(tmp_path, "[]", name=name) == [] == read(tmp_path, "", name=name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1},\n{"a" 1}]', "line 2: not JSON from this item on"),
        ('[{"a": 1}\n{"a": 1}]', "line 1: not JSON from this item on .*expected , or ]"),
        ('[{"a": 1}', "line 1: not JSON from this item on"),
        ('[{"a": 1},]', "line 1: not JSON from this item on"),
        ("[", "line 1: not JSON from this item on"),
        ('[{}]\n{"a": 1}', "text behind the end of the list"),
        (b'[{"a": "\xff"}]', "not UTF-8"),
        ("[{},\n3]", "line 2: every item is to be a JSON object"),
        ('["a"]\n', "line 1: every line is to be a JSON object"),
    ],
)
def test_what_is_no_list_of_objects_is_refused(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, text)


def test_items_that_are_no_objects_are_counted(tmp_path):
    bad = BadRows(skip=True)
    assert read(tmp_path, '[{}, 3, [1], {"a": 2}]', bad) == [(0, 1, {}), (3, 1, {"a": 2})]
    assert bad.counts == {"not a JSON object": 2}


def test_a_list_that_fills_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(json_rows, "MAX_LIST_BYTES", 1 << 20)
    text = "[{},\n" + "{},\n" * (1 << 19) + "{}]"
    with pytest.raises(UserError, match="a list of JSON of more than 1 MiB, which is read as a"):
        read(tmp_path, text, name="a.json.gz")
