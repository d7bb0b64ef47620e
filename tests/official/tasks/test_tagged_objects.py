"""Exports of annotation tools as texts with spans, and positions beside the text of a span.

The exports of Label Studio are what label-studio-sdk 2.1.2 writes of these tasks; those of doccano
have the form of `data_export` of doccano 1.8.4.
"""

import json

import pytest

from official.tasks import tag_files
from official.tasks.named_tasks import CONLL_COLUMNS
from official.tasks.task import Columns
from official.utils.errors import UserError
from official.utils.text_lines import BadRows


def read(tmp_path, *rows, columns=CONLL_COLUMNS, text=None, name="a.jsonl", **options):
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) if text is None else text)
    return list(tag_files.read(path, columns, **options))


def spans(records):
    return [
        [(span.type, record.text[span.start : span.end]) for span in record.spans]
        for record in records
    ]


ADA = {"start": 0, "end": 3, "text": "Ada", "labels": ["PER"]}


def task(number, text, *annotations):
    return {
        "id": number, "annotations": list(annotations), "data": {"text": text}, "predictions": [],
    }  # fmt: skip


def annotation(*regions, **more):
    results = [
        {"value": value, "id": "x", "from_name": "ner", "to_name": "text", "type": "labels"}
        for value in regions
    ]
    return {
        "id": 1, "result": results, "was_cancelled": False, "ground_truth": False, **more,
    }  # fmt: skip


def test_prodigy(tmp_path):
    tokens = [
        {"text": word, "start": start, "end": start + len(word), "id": i, "ws": True}
        for i, (word, start) in enumerate([("Ada", 0), ("ran", 4), (".", 7)])
    ]
    span = {"start": 0, "end": 3, "token_start": 0, "token_end": 0, "label": "PER"}
    row = {
        "text": "Ada ran.",
        "tokens": tokens,
        "spans": [span],
        "answer": "accept",
        "_view_id": "x",
    }
    bad = BadRows()
    found = read(
        tmp_path, row, {**row, "answer": "reject"}, {**row, "answer": "ignore"},
        {"text": "No.", "answer": "accept"},
        {**row, "spans": [{"token_start": 1, "token_end": 2, "label": "X"}]},
        bad=bad,
    )  # fmt: skip
    assert spans(found) == [[("PER", "Ada")], [], [("X", "ran.")]]
    assert bad.counts == {"marked answer=ignore": 1, "marked answer=reject": 1}
    assert not bad.unread
    other = {**row, "spans": [{**span, "token_end": 1}]}
    with pytest.raises(
        UserError, match=r"span 0-3 \(PER\) is not that of its tokens 0 to 1, .* 0-7"
    ):
        read(tmp_path, other)
    with pytest.raises(UserError, match="'text' is None, expected a text"):
        read(tmp_path, {"tokens": tokens, "spans": []})


def test_doccano(tmp_path):
    bad = BadRows()
    found = read(
        tmp_path,
        {"id": 1, "text": "Ada ran", "label": [[0, 3, "PER"]], "Comments": []},
        {"id": 2, "text": "Ada ran", "labels": [[0, 3, "PER"]]},
        {
            "id": 3, "text": "Ada ran",
            "entities": [{"id": 7, "label": "PER", "start_offset": 0, "end_offset": 3}],
            "relations": [{"id": 1, "from_id": 7, "to_id": 7, "type": "is"}], "Comments": [],
        },
        {
            "id": 4, "text": "Ada ran", "meta": {}, "annotation_approver": None,
            "annotations": [{"label": "PER", "start_offset": 0, "end_offset": 3, "user": 1}],
        },
        {"id": 5, "text": "Find Rome", "entities": [[5, 9, "City"]], "cats": ["find"]},
        bad=bad,
    )  # fmt: skip
    assert spans(found) == [[("PER", "Ada")]] * 4 + [[("City", "Rome")]]
    assert bad.unread == {"relations": 1, "cats": 1}
    users = [{"label": "PER", "start_offset": 0, "end_offset": 3, "user": i} for i in (1, 2)]
    with pytest.raises(UserError, match="the spans are of 2 annotators"):
        read(tmp_path, {"text": "Ada ran", "annotations": users})


JSON_MIN = """[
{
  "text": "Ada ran to Rome.", "id": 1,
  "ner": [{"start": 0, "end": 3, "text": "Ada", "labels": ["PER"]}],
  "annotator": 1, "annotation_id": 11, "created_at": "2024-01-01T00:00:00Z",
  "updated_at": "2024-01-01T00:00:00Z", "lead_time": 3.0
},
{
  "text": "Nobody is here.", "id": 3, "topic": "News",
  "annotator": 1, "annotation_id": 13, "created_at": "", "updated_at": "", "lead_time": 1.0
},
{
  "text": "Not yet done.", "id": 4, "annotator": null, "annotation_id": null,
  "created_at": null, "updated_at": null, "lead_time": null
}
]"""


def test_label_studio_min(tmp_path):
    bad = BadRows()
    found = read(tmp_path, text=JSON_MIN, name="a.json", bad=bad)
    assert spans(found) == [[("PER", "Ada")], []]
    assert [record.line for record in found] == [2, 8]
    assert bad.counts == {"without an annotation": 1} and bad.unread == {"topic": 1}
    assert spans(read(tmp_path, {"text": "Ada ran", "label": [ADA]})) == [[("PER", "Ada")]]


def test_label_studio(tmp_path):
    truth = annotation({**ADA, "labels": ["ORG"]}, ground_truth=True)
    tasks = [
        task(1, "Ada ran.", annotation(ADA)),
        task(2, "Ada ran.", annotation(ADA, was_cancelled=True)),
        task(3, "Ada ran."),
        task(4, "Nobody.", annotation()),
        task(5, "Ada ran.", annotation(ADA), annotation(ADA, was_cancelled=True), annotation(ADA)),
        task(6, "Ada ran.", annotation(ADA), truth),
    ]
    bad = BadRows()
    found = read(tmp_path, text=json.dumps(tasks, indent=1), name="a.json", bad=bad)
    assert spans(found) == [[("PER", "Ada")], [], [("PER", "Ada")], [("ORG", "Ada")]]
    assert bad.counts == {"marked was_cancelled=True": 1, "without an annotation": 1}
    other = task(7, "Ada ran.", annotation(ADA), annotation())
    with pytest.raises(UserError, match="line 1: 2 annotations differ: mark one as ground truth"):
        read(tmp_path, other)
    untagged = read(tmp_path, task(3, "Ada ran."), labeled=False)
    assert untagged[0].text == "Ada ran." and untagged[0].spans is None
    two = annotation({**ADA, "labels": ["PER", "ORG"]})
    with pytest.raises(
        UserError, match="expected the whole numbers 'start' and 'end' and a 'type'"
    ):
        read(tmp_path, task(8, "Ada ran.", two))


TEXT = "a 😀 é Rome"  # Rome is at 6 characters, 7 UTF-16 units and 10 bytes


@pytest.mark.parametrize(
    ("start", "end", "advice"),
    [
        (7, 11, "the positions fit in UTF-16 units"),
        (10, 14, "the positions fit in bytes of UTF-8"),
        (6, 9, "the end is that of the last character"),
        (7, 10, "the start counts from 1"),
        (0, 4, "it fits neither in characters nor in UTF-16 units nor in bytes"),
    ],
)
def test_the_text_of_a_span_is_compared(tmp_path, start, end, advice):
    span = {"start": start, "end": end, "text": "Rome", "label": "LOC"}
    with pytest.raises(
        UserError, match=f"line 1: span {start}-{end} .LOC. is .*says 'Rome': {advice}"
    ):
        read(tmp_path, {"text": TEXT, "spans": [span]})
    bad = BadRows(skip=True)
    right = {**span, "start": 6, "end": 10}
    assert (
        len(
            read(
                tmp_path, {"text": TEXT, "spans": [span]}, {"text": TEXT, "spans": [right]}, bad=bad
            )
        )
        == 1
    )
    assert bad.counts == {"span of another text": 1}


def test_line_breaks_in_the_text_of_a_span(tmp_path):
    r"""Label Studio writes \n as two characters."""
    span = {"start": 0, "end": 5, "text": "New\\nY", "labels": ["LOC"]}
    assert spans(read(tmp_path, {"text": "New\nYork", "label": [span]})) == [[("LOC", "New\nY")]]


def test_keys_may_be_named(tmp_path):
    row = {"sentence": "Ada ran", "ner": [[0, 3, "PER"]], "text": 3}
    columns = Columns("sentence", None, "ner", header=False)
    bad = BadRows()
    assert spans(read(tmp_path, row, columns=columns, bad=bad)) == [[("PER", "Ada")]]
    assert bad.unread == {"text": 1}
    words = {"w": ["Ada", "ran"], "t": ["B-PER", "O"]}
    (record,) = read(tmp_path, words, columns=Columns("w", None, "t", header=False))
    assert record.tags == ("B-PER", "O")


def test_texts_without_tags_are_counted(tmp_path):
    rows = [
        {"text": "Ada ran", "spans": None},
        {"tokens": ["Ada"], "tags": None},
        {"text": "Ada ran", "spans": [[0, 3, "PER"]]},
    ]
    bad = BadRows()
    assert spans(read(tmp_path, *rows, bad=bad)) == [[("PER", "Ada")]]
    assert bad.counts == {"without tags": 2}
    first, second = read(tmp_path, *rows[:2], labeled=False)
    assert first.spans is None and second.tags is None
    with pytest.raises(UserError, match="line 1: 'spans' is None, expected a list of objects"):
        read(tmp_path, {"text": "Ada ran"})


def test_places_in_one_pair(tmp_path):
    """As the entities of the Japanese Wikipedia are distributed: a list with `span` and `name`."""
    place = {"name": "東京タワー", "span": [0, 5], "type": "施設名"}
    row = {"curid": "7", "text": "東京タワーに行く。", "entities": [place]}

    def read_all(*rows):
        return read(tmp_path, text=json.dumps(rows, ensure_ascii=False), name="ner.json")

    assert spans(read_all(row, {**row, "entities": []})) == [[("施設名", "東京タワー")], []]
    place["span"] = [1, 5]
    with pytest.raises(UserError, match="is '京タワー', and says '東京タワー': the start counts"):
        read_all(row)
    place["span"] = [0]
    with pytest.raises(UserError, match="expected the whole numbers 'start' and 'end'"):
        read_all(row)
