"""Hostile files of tasks: questions, tables, words with tags, candidates."""

import functools
import gzip
import json
from pathlib import Path
from typing import Any

from benchmarks.torture import folders
from benchmarks.torture.spoiling import DEEP, HUGE, NESTED, holds, linked, pickled, sparse

QUESTIONS, TABLE, OBJECTS, TAGS = "train.json", "train.tsv", "train.jsonl", "train.conll"
RUN, QRELS = "train.run", "train.qrels"
_LISTS = "[" * DEEP
_DIGITS = "9" * DEEP


def write(folder: Path) -> None:
    """Writes a good file of each kind."""
    questions = [{"id": "1", "question": "who?", "answers": [{"text": "Ada", "answer_start": 0}]}]
    paragraphs = [{"context": "Ada wrote.", "qas": questions}]
    files = {
        QUESTIONS: json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]}),
        TABLE: "sentence\tlabel\nbig city\t1\nbad\t0\n",
        OBJECTS: '{"sentence": "big city", "label": 1}\n{"sentence": "bad", "label": 0}\n',
        TAGS: "Ada B-PER\nwrote O\n\nYork B-LOC\n",
        RUN: "q1 Q0 d1 1 2.5 t\nq1 Q0 d2 2 1.5 t\n",
        QRELS: "q1 0 d1 1\nq1 0 d2 0\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)


def _asked(**changes: Any) -> str:
    question = {"id": "1", "question": "who?", "answers": [{"text": "Ada", "answer_start": 0}]}
    paragraphs = [{"context": "Ada wrote.", "qas": [{**question, **changes}]}]
    return json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]})


def _answer(**changes: Any) -> str:
    return _asked(answers=[{"text": "Ada", "answer_start": 0, **changes}])


def _bomb(name: str):
    def spoil(folder: Path) -> None:
        """A line that does not end, packed."""
        member = gzip.compress(b"a" * (1 << 20))
        (folder / name).unlink()
        (folder / f"{name}.gz").write_bytes(512 * member)

    return spoil


def _cases(name: str, how: str):
    """Returns a function that makes a case of other content."""
    case = functools.partial(folders.Case, source="tasks", how=how)
    return lambda what, content: case(f"{name}: {what}", spoil=holds(name, content))


_squad, _table, _objects = (
    _cases(QUESTIONS, "squad"), _cases(TABLE, "tsv"), _cases(OBJECTS, "jsonl"),
)  # fmt: skip
_tags, _run, _qrels = _cases(TAGS, "conll"), _cases(RUN, "run"), _cases(QRELS, "qrels")
_READERS = {QUESTIONS: "squad", TABLE: "tsv", OBJECTS: "jsonl", TAGS: "conll", RUN: "run"}

CASES = [
    _squad("nested 100,000 deep", NESTED),
    _squad("lists nested 100,000 deep", f'{{"data": {_LISTS}'),
    _squad("a list", "[1, 2]"),
    _squad("data is text", '{"data": "paragraphs"}'),
    _squad("paragraphs of numbers", '{"data": [{"paragraphs": [1, 2]}]}'),
    _squad("questions of numbers", '{"data": [{"paragraphs": [{"context": "a", "qas": [5]}]}]}'),
    _squad("context is a list", '{"data": [{"paragraphs": [{"context": [1], "qas": []}]}]}'),
    _squad("a question that is a list", _asked(question=["who?"])),
    _squad("an id that is an object", _asked(id={"a": 1})),
    _squad("answers that are text", _asked(answers="Ada")),
    _squad("answers of numbers", _asked(answers=[1])),
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
        folders.Case(f"{name}: {what}", "tasks", how, spoil(name))
        for name, how in _READERS.items()
        for what, spoil in {
            "a TiB": sparse,
            "a pickle": pickled,
        }.items()
    ),
    *(
        # SQuAD's files are read as a whole; a pipe may be what somebody means.
        folders.Case(f"{name}: → /dev/zero", "tasks", how, linked(name, "/dev/zero"))
        for name, how in _READERS.items()
        if name != QUESTIONS
    ),
    *(
        folders.Case(f"{name}.gz: a line without an end", "tasks", f"{how}.gz", _bomb(name))
        for name, how in {TABLE: "tsv", OBJECTS: "jsonl"}.items()
    ),
]  # fmt: skip
