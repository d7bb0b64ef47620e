"""Files of texts with ids, in each form, and their errors."""

import gzip

import pytest

from official.tasks import text_files
from official.utils.errors import UserError


def test_files_of_texts(tmp_path):
    files = {
        "a.txt": "one\ntwo\n",
        "b.tsv": "id\ttext\nd1\tone\ta\n\nd2\ttwo\n",
        "c.tsv": "d1\tone\n",
        "d.jsonl": '{"_id": "x", "title": "T", "text": "one"}\n{"id": 7, "text": "b"}\n',
    }
    read = {}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        read[name] = list(text_files.texts_of(tmp_path / name))
    assert read == {
        "a.txt": [("1", "one"), ("2", "two")],
        "b.tsv": [("d1", "one\ta"), ("d2", "two")],
        "c.tsv": [("d1", "one")],
        "d.jsonl": [("x", "T one"), ("7", "b")],
    }
    (tmp_path / "e.tsv.gz").write_bytes(gzip.compress(files["b.tsv"].encode()))
    assert list(text_files.texts_of(tmp_path / "e.tsv.gz")) == read["b.tsv"]
    for name, content, message in (
        ("f.tsv", "d1 one\n", "line 1: no tab: expected an id and a text"),
        ("g.tsv", "a b\tone\n", "line 1: 'a b' cannot be an id"),
        ("h.jsonl", '{"text": "one"}\n', "line 1: expected the texts `_id` and `text`"),
        ("i.jsonl", "one\n", "line 1: not JSON"),
        ("j.tsv", "id\ttext\n", "has no texts"),
        ("k.tsv", "a\tone\na\ttwo\n", "the id 'a' occurs twice"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(UserError, match=message):
            list(text_files.unique(tmp_path / name))
