"""Rows that annotation tools mark as not to be used, and keys that nobody reads."""

import json

import pytest

from official.tasks import annotations, text_rows
from official.utils.text_lines import BadRows


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"answer": "accept"}, ""),
        ({"answer": "reject"}, "marked answer=reject"),
        ({"answer": "Ignore"}, "marked answer=Ignore"),
        ({"answer": "yes"}, ""),
        ({"answer": ["reject"]}, ""),
        ({"answer": True}, ""),
        ({"status": "Discarded"}, "marked status=Discarded"),
        ({"status": "open"}, ""),
        ({"is_gold": False}, "marked is_gold=False"),
        ({"is_gold": "False"}, "marked is_gold=False"),
        ({"is_gold": 0}, ""),
        ({"is_gold": True, "skipped": False}, ""),
        ({"skipped": "true"}, "marked skipped=true"),
        ({"annotation_id": None}, "without an annotation"),
        ({"annotation_id": 3}, ""),
        ({}, ""),
    ],
)
def test_marks(row, reason):
    assert annotations.mark(row) == reason
    assert annotations.mark(row, read=tuple(row)) == ""


def test_keys_that_nobody_reads():
    row = {"text": "a", "id": 1, "answer": "accept", "status": "open", "note": "", "meta": {}}
    assert annotations.unread(row, ["text"]) == ["status", "note"]


def test_rows_of_texts_are_those_that_are_not_marked(tmp_path):
    """Those that experiments.augment and official.commands.mine_negatives read."""
    path = tmp_path / "a.jsonl"
    rows = [{"q": "a", "answer": "accept"}, {"q": "b", "answer": "reject"}, {"q": "c"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bad = BadRows()
    assert list(text_rows.Rows(path, ["q"]).texts(bad)) == [(1, ["a"]), (3, ["c"])]
    assert bad.counts == {"marked answer=reject": 1}
    assert len(list(text_rows.Rows(path, ["answer"]).texts(BadRows(skip=True)))) == 2
