"""Every fault of a row is left out and counted on request, whatever the row is."""

import copy
import dataclasses
import json
import re

import pytest

from official import tasks
from official.tasks import tag_files
from official.utils.errors import UserError
from official.utils.text_lines import BadRows
from tests import squads
from tfrecords_tools.tasks import labelled_text, multiple_choice, span, tagging, text_to_text

ODD = [None, True, -1, 1.5, "", " ", "x\n\ty", "\ud800", [], {}, [[]], [None], {"text": 1}]
CHOICE = dataclasses.replace(tasks.choice(), labels=("A", "B"))
LABELS = tasks.generic("classification", "text", label="label", labels=["a", "b"])
TAGS = tasks.generic("tagging", "0", label="-1")
SCORES = tasks.generic("regression", "text", label="label")


def choices(task, path, split, bad):
    return multiple_choice.read(task, path, split == "test", bad)


def questions(task, path, split, bad):
    return span.read(path, task.no_answers, split != "test", bad)


def rows(task, path, split, bad):
    return labelled_text.usable(task, split, path, None, bad)


def texts(task, path, split, bad):
    return text_to_text.pairs(tasks.text_to_text.from_task(task), split, path, None, bad)


def tags(task, path, split, bad):
    records = tag_files.read(path, task.columns, None, split != "test", bad)
    return tagging.as_words(records, None, "words", bad)


def paragraph(name):
    asked = [(name, "What?", [("bede", 5)]), (f"{name}2", "Why?", [])]
    return squads.document(("Bada bede.", asked))["data"][0]


def article(name):
    return {
        "article": "Tom has a dog.", "questions": ["Who?"], "options": [["T", "A", "S", "B"]],
        "answers": ["A"], "id": name,
    }  # fmt: skip


def dialogue(name):
    return [["M: Hello."], [{"question": "?", "choice": ["a", "b", "c"], "answer": "a"}], name]


READERS = {
    "squad2": (questions, tasks.TASKS["squad2"], paragraph, "squad"),
    "text to text": (texts, tasks.TASKS["squad2"], paragraph, "squad"),
    "choice": (
        choices, CHOICE,
        lambda name: {"context": "c", "question": "q", "choices": ["x", "y"], "answer": "B"},
        "lines",
    ),
    "race": (choices, tasks.TASKS["race"], article, "folder"),
    "dream": (choices, tasks.TASKS["dream"], dialogue, "list"),
    "words": (
        tags, TAGS, lambda name: {"tokens": ["Ada", "is"], "tags": ["B-PER", "O"]}, "lines",
    ),
    "spans": (
        tags, TAGS,
        lambda name: {
            "text": "Ada is in York",
            "spans": [{"start": 0, "end": 3, "type": "PER"}, {"start": 10, "end": 14, "type": "L"}],
        },
        "lines",
    ),
    "labels": (rows, LABELS, lambda name: {"text": name, "label": "a"}, "lines"),
    "scores": (rows, SCORES, lambda name: {"text": name, "label": 0.5}, "lines"),
}  # fmt: skip


def places(value, place=()):
    """The places of all values inside a value, and of the value."""
    yield place
    keys = range(len(value)) if isinstance(value, list) else value
    for key in keys if isinstance(value, list | dict) else ():
        yield from places(value[key], (*place, key))


def changed(value, place, new):
    """The value with another one at a place, or with none if `new` is an Ellipsis."""
    if not place:
        return None if new is ... else new
    value = copy.deepcopy(value)
    holder = value
    for key in place[:-1]:
        holder = holder[key]
    if new is ...:
        del holder[place[-1]]
    else:
        holder[place[-1]] = new
    return value


def write(folder, form, units):
    """Writes a file, or a folder, with a unit for each reader's row or group of rows."""
    if form == "folder":
        for i, unit in enumerate(units):
            (folder / f"{i:04}.txt").write_text(json.dumps(unit))
        return folder
    path = folder / ("rows.jsonl" if form == "lines" else "rows.json")
    if form == "lines":
        path.write_text("".join(json.dumps(unit) + "\n" for unit in units))
    else:
        path.write_text(json.dumps({"data": units} if form == "squad" else units))
    return path


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_no_row_of_any_form_ends_a_build_that_leaves_bad_rows_out(tmp_path, kind, split):
    read, task, make, form = READERS[kind]
    first, middle, last = map(make, "abc")
    path = write(tmp_path, form, [first])
    alone = list(read(task, path, split, BadRows()))
    write(tmp_path, form, [last])
    alone += read(task, path, split, BadRows())
    odd = [changed(middle, place, new) for place in places(middle) for new in (*ODD, ...)]
    write(tmp_path, form, [first, *odd, last])
    bad = BadRows(skip=True)
    found = list(read(task, path, split, bad))
    half = len(alone) // 2
    assert [*map(shown, found[:half]), *map(shown, found[-half:])] == [*map(shown, alone)]
    assert bad.counts.total() > len(odd) / 3
    with pytest.raises(UserError, match="--skip_bad_rows leaves such rows out"):
        list(read(task, path, split, BadRows()))


def shown(row):
    """A row without the numbers of its place in the file."""
    return re.sub(r"\d+", "", repr(row))
