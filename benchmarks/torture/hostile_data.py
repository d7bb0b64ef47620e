"""Hostile data: shards whose numbers are out of range, and hostile files of tasks.

The files of such shards are as the manifest says. Files of tasks are questions, tables, words with
tags, and candidates.
"""

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.torture.spoiling import (
    DEEP,
    HUGE,
    NESTED,
    Case,
    endless_line,
    holds,
    linked,
    pickled,
    sparse,
)


def _records(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    """Changes the records of the first shard; the manifest has its checksum."""

    def spoil(folder: Path) -> None:
        import tensorflow as tf

        from official.shards import manifest, shard_folder

        content = manifest.read(folder)
        path = folder / content.shards[0].name
        records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in change(records):
                writer.write(record)
        shards = (shard_folder.describe(path), *content.shards[1:])
        manifest.write(folder, dataclasses.replace(content, shards=shards))

    return spoil


def _first(change: Callable) -> Callable[[Path], None]:
    """Changes the features of the first example."""

    def of_records(records: list[bytes]) -> list[bytes]:
        import tensorflow as tf

        example = tf.train.Example.FromString(records[0])
        change(example.features.feature)
        return [example.SerializeToString(), *records[1:]]

    return _records(of_records)


def _number(name: str, value: int, place: int = 0) -> Callable[[Path], None]:
    def change(features) -> None:
        features[name].int64_list.value[place] = value

    return _first(change)


def _list(name: str, values: list[int]) -> Callable[[Path], None]:
    def change(features) -> None:
        features[name].int64_list.value[:] = values

    return _first(change)


def _floats(features) -> None:
    ids = list(features["token_ids"].int64_list.value)
    features["token_ids"].float_list.value[:] = map(float, ids)


def _text(features) -> None:
    features["token_ids"].bytes_list.value[:] = [b"5"]


def _longer(features) -> None:
    ids = features["token_ids"].int64_list.value
    ids.extend([ids[0]] * 100_000)
    features["segment_lengths"].int64_list.value[0] += 100_000


_read = functools.partial(Case, source="shards", how="examples")
_case = functools.partial(Case, source="shards", how="verify")

EXAMPLE_CASES = [
    _read("an id of the size of the vocabulary", spoil=_number("token_ids", 150, 1)),
    _case("an id of 2^31", spoil=_number("token_ids", 1 << 31, 1)),
    _read("an id of 2^40 + 7", spoil=_number("token_ids", HUGE + 7, 1)),
    _case("an id of -1", spoil=_number("token_ids", -1, 1)),
    _case("an id of -2^63", spoil=_number("token_ids", -(1 << 63), 1)),
    _case("no ids", spoil=_list("token_ids", [])),
    _case("an example of 100,000 ids", spoil=_first(_longer)),
    _read("ids that are floats", spoil=_first(_floats)),
    _case("ids that are text", spoil=_first(_text)),
    _case("an example without ids", spoil=_first(lambda features: features.pop("token_ids"))),
    _case("an example without segments", spoil=_first(lambda f: f.pop("segment_lengths"))),
    _case("an example without its label", spoil=_first(lambda f: f.pop("next_sentence_label"))),
    _case("an example without features", spoil=_records(lambda r: [b"", *r[1:]])),
    _case("two labels", spoil=_list("next_sentence_label", [0, 1])),
    _case("a label of 2", spoil=_number("next_sentence_label", 2)),
    _case("a label of -1", spoil=_number("next_sentence_label", -1)),
    _case("a label of 2^32 + 1", spoil=_number("next_sentence_label", (1 << 32) + 1)),
    _case("segments of 2^40 tokens", spoil=_number("segment_lengths", HUGE)),
    _case("segments of -5 tokens", spoil=_number("segment_lengths", -5)),
    _case("segments of too many tokens", spoil=_number("segment_lengths", 60)),
    _read("100,000 segments", spoil=_list("segment_lengths", [1] * 100_000)),
    _read("a record of random bytes", spoil=_records(lambda r: [bytes(range(256)), *r[1:]])),
    _case("a record that is cut", spoil=_records(lambda r: [r[0][:-3], *r[1:]])),
]  # fmt: skip


QUESTIONS, TABLE, OBJECTS, TAGS = "train.json", "train.tsv", "train.jsonl", "train.conll"
RUN, QRELS = "train.run", "train.qrels"
_LISTS = "[" * DEEP
_DIGITS = "9" * DEEP


def write_tasks(folder: Path) -> None:
    """Writes a good file of each kind."""
    files = {
        QUESTIONS: _questions(),
        TABLE: "sentence\tlabel\nbig city\t1\nbad\t0\n",
        OBJECTS: '{"sentence": "big city", "label": 1}\n{"sentence": "bad", "label": 0}\n',
        TAGS: "Ada B-PER\nwrote O\n\nYork B-LOC\n",
        RUN: "q1 Q0 d1 1 2.5 t\nq1 Q0 d2 2 1.5 t\n",
        QRELS: "q1 0 d1 1\nq1 0 d2 0\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)


def _questions(**changes: Any) -> str:
    """A file of one question, with changes."""
    question = {"id": "1", "question": "who?", "answers": [{"text": "Ada", "answer_start": 0}]}
    paragraphs = [{"context": "Ada wrote.", "qas": [{**question, **changes}]}]
    return json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]})


def _answer(**changes: Any) -> str:
    return _questions(answers=[{"text": "Ada", "answer_start": 0, **changes}])


def _bomb(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        endless_line(folder / f"{name}.gz", 512)

    return spoil


def _cases(name: str, how: str):
    """Returns a function that makes a case of other content."""
    case = functools.partial(Case, source="tasks", how=how)
    return lambda what, content: case(f"{name}: {what}", spoil=holds(name, content))


_squad, _table, _objects = (
    _cases(QUESTIONS, "squad"), _cases(TABLE, "tsv"), _cases(OBJECTS, "jsonl"),
)  # fmt: skip
_tags, _run, _qrels = _cases(TAGS, "conll"), _cases(RUN, "run"), _cases(QRELS, "qrels")
_READERS = {QUESTIONS: "squad", TABLE: "tsv", OBJECTS: "jsonl", TAGS: "conll", RUN: "run"}

TASK_CASES = [
    _squad("nested 100,000 deep", NESTED),
    _squad("lists nested 100,000 deep", f'{{"data": {_LISTS}'),
    _squad("a list", "[1, 2]"),
    _squad("data is text", '{"data": "paragraphs"}'),
    _squad("paragraphs of numbers", '{"data": [{"paragraphs": [1, 2]}]}'),
    _squad("questions of numbers", '{"data": [{"paragraphs": [{"context": "a", "qas": [5]}]}]}'),
    _squad("context is a list", '{"data": [{"paragraphs": [{"context": [1], "qas": []}]}]}'),
    _squad("a question that is a list", _questions(question=["who?"])),
    _squad("an id that is an object", _questions(id={"a": 1})),
    _squad("answers that are text", _questions(answers="Ada")),
    _squad("answers of numbers", _questions(answers=[1])),
    _squad("an answer at 2^40", _answer(answer_start=HUGE)),
    _squad("an answer at -3", _answer(answer_start=-3)),
    _squad("an answer at text", _answer(answer_start="0")),
    _squad("an answer at 0.5", _answer(answer_start=0.5)),
    _squad("an answer at true", _answer(answer_start=True)),
    _squad("an answer that is null", _answer(text=None)),
    _squad("an answer at a number of 100,000 digits",
           _answer(answer_start=0).replace('start": 0', f'start": {_DIGITS}')),
    _squad("a lone surrogate", _answer(text="\ud800")),
    _squad("NaN", '{"data": NaN}'),
    _squad("random bytes", bytes(range(256))),
    _table("a row of 100,000 columns", "sentence\tlabel\n" + "a\t" * DEEP + "\n"),
    _table("one column", "sentence\tlabel\nbig\n"),
    _table("a column twice", "label\tlabel\na\tb\n"),
    _table("random bytes", bytes(range(256)) * 4),
    _table("zeros", bytes(100_000)),
    _table("a header alone", "sentence\tlabel\n"),
    _objects("nested 100,000 deep", NESTED),
    _objects("a list", "[1, 2]\n"),
    _objects("a text that is an object", '{"sentence": {"a": 1}, "label": 1}\n'),
    _objects("a text that is null", '{"sentence": null, "label": 1}\n'),
    _objects("a label that is a list", '{"sentence": "a", "label": [1]}\n'),
    _objects("a number of 100,000 digits", f'{{"sentence": "a", "label": {_DIGITS}}}\n'),
    _objects("random bytes", bytes(range(256)) * 4),
    _tags("other numbers of columns", "Ada B-PER\nwrote x O\n"),
    _tags("random bytes", bytes(range(256)) * 4),
    _tags("zeros", bytes(100_000)),
    _tags("no tag", "Ada\n"),
    _run("a score of NaN", "q1 Q0 d1 1 nan t\n"),
    _run("a score of 10^400", "q1 Q0 d1 1 1e400 t\n"),
    _run("five columns", "q1 Q0 d1 1 2.5\n"),
    _run("random bytes", bytes(range(256)) * 4),
    _qrels("a grade of 100,000 digits", f"q1 0 d1 {_DIGITS}\n"),
    _qrels("a grade of 0.5", "q1 0 d1 0.5\n"),
    *(
        Case(f"{name}: {what}", "tasks", how, spoil(name))
        for name, how in _READERS.items()
        for what, spoil in {
            "a TiB": sparse,
            "a pickle": pickled,
        }.items()
    ),
    *(
        # SQuAD's files are read as a whole; a pipe may be what somebody means.
        Case(f"{name}: → /dev/zero", "tasks", how, linked(name, "/dev/zero"))
        for name, how in _READERS.items()
        if name != QUESTIONS
    ),
    *(
        Case(f"{name}.gz: a line without an end", "tasks", f"{how}.gz", _bomb(name))
        for name, how in {TABLE: "tsv", OBJECTS: "jsonl"}.items()
    ),
]  # fmt: skip
