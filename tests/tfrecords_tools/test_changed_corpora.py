"""Corpora that change while they are read: refused by name, and never a part of them."""

import gzip
import json
import shutil

import pytest

from official.shards.text_filters import TextFilters
from tests import changed_files, small
from tfrecords_tools.pretraining import builder
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import corpus
from tfrecords_tools.vocabulary import builder as vocabulary
from tfrecords_tools.vocabulary import phrases
from tfrecords_tools.writing.execution import Execution

FILTERS = TextFilters(min_words=2, deduplicate="exact")


def _silent(line: str) -> None:
    del line


def _vocabulary(text, output):
    vocabulary.build(str(text), output, "wordpiece", 60, report=_silent)


def _phrases(text, output):
    phrases.build(str(text), output, 2, -1, text_filters=FILTERS, report=_silent)


def _shards(text, output, filters=None, config=None):
    tokenizer = text.parent / "tokenizer"
    if not tokenizer.exists():
        small.tokenizer_folder(tokenizer)
    settings = Settings.from_config(config or small.config(), str(tokenizer), filters=filters)
    builder.build(settings, str(text), output, Execution(), report=_silent)


def _filtered(text, output):
    _shards(text, output, FILTERS)


def _stream(text, output):
    segments = {"format": "stream", "max_length": 16, "rows": 2}
    _shards(text, output, config=small.config(segments=segments, objectives=[]))


COMMANDS = (_vocabulary, _phrases, _shards, _filtered, _stream)


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 400)
    monkeypatch.setattr(corpus, "MAX_RANGE_BYTES", 400)


@pytest.mark.parametrize(
    "name",
    [
        "a.txt",
        *(
            pytest.param(name, marks=[pytest.mark.slow, pytest.mark.long])
            for name in ("a.jsonl", "a.txt.gz")
        ),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_corpus_that_changes_is_refused(tmp_path, monkeypatch, command, name):
    """In all ways, and in any of the passes over it."""
    documents = ["\n".join(each) for each in small.documents(20)]
    text = "\n\n".join(documents)
    if name == "a.jsonl":
        text = "".join(json.dumps({"text": each}) + "\n" for each in documents)
    data = text.encode()
    path, output = tmp_path / name, tmp_path / "made" / "output"
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)

    def run():
        shutil.rmtree(output.parent, ignore_errors=True)
        command(path, output)

    refused = list(changed_files.refusals(monkeypatch, path, run))
    assert set(refused) == set(changed_files.CHANGES)
    assert not output.exists() and not list(output.parent.glob("*"))
