"""Shards of questions with choices: what a sequence is, what is cut, what is counted."""

import json

import numpy as np
import pytest
import tensorflow as tf

from official import tasks, tokenizers
from official.shards import manifest
from official.utils import strict
from official.utils.errors import UserError
from tests import choices
from tfrecords_tools import inspect_shards
from tfrecords_tools.tasks import builder as task_builder

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] a dog is old new . who what ? tom ann big".split()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return tokenizers.load(folder)


def build(task, files, tokenizer, output, **options):
    said = []
    built = task_builder.build(task, files, tokenizer, output, report=said.append, **options)
    return built, said


def records(folder, split="train"):
    actual = []
    for shard in manifest.read(folder).split(split):
        for record in tf.data.TFRecordDataset(str(folder / shard.name)).as_numpy_iterator():
            example = tf.train.Example.FromString(record).features.feature
            actual.append({name: list(value.int64_list.value) for name, value in example.items()})
    return sorted(actual, key=lambda each: each["row"]) if split == "train" else actual


def sequences(record):
    ends = np.cumsum(record["sequence_lengths"])
    parts = np.split(record["token_ids"], ends[:-1])
    return [" ".join(VOCABULARY[i] for i in part) for part in parts]


def article(**changes):
    values = {
        "article": "a dog is old . tom is new .",
        "questions": ["who is new ?", "a dog is _ ."],
        "options": [["tom", "ann", "a dog", "a new dog"], ["old", "new", "big", "a dog"]],
        "answers": ["A", "B"],
        "id": "1",
    }
    return json.dumps({**values, **changes})


def test_race(tmp_path, tokenizer):
    for split in ("train", "dev"):
        (tmp_path / split / "middle").mkdir(parents=True)
        (tmp_path / split / "middle" / "1.txt").write_text(article())
    files = {"train": tmp_path / "train", "validation": tmp_path / "dev"}
    output = tmp_path / "shards"
    result, said = build(tasks.TASKS["race"], files, tokenizer, output, max_length=18)
    first, second = records(output)
    # The context is cut, to the room that the question and each choice leave.
    assert sequences(first) == [
        "[CLS] a dog is old . tom is new . [SEP] who is new ? tom [SEP]",
        "[CLS] a dog is old . tom is new . [SEP] who is new ? ann [SEP]",
        "[CLS] a dog is old . tom is new . [SEP] who is new ? a dog [SEP]",
        "[CLS] a dog is old . tom is new [SEP] who is new ? a new dog [SEP]",
    ]
    assert first["sequence_lengths"] == [17, 17, 18, 18]
    assert first["segment_lengths"] == [11, 6, 11, 6, 11, 7, 10, 8]
    assert (first["row"], first["answer"]) == ([0], [0])
    assert sequences(second)[3] == "[CLS] a dog is old . tom is new . [SEP] a dog is a dog . [SEP]"
    assert (second["row"], second["answer"]) == ([1], [1])
    assert result == manifest.read(output)
    assert result.features == ("token_ids", "segment_lengths", "sequence_lengths", "row", "answer")
    assert (result.kind, result.max_length) == ("task", 18)
    assert result.task.labels == ("A", "B", "C", "D")
    assert result.task.sequences == {"train": 4, "validation": 4}
    assert (result.task.kind, result.task.blank, result.task.pair) == ("choice", True, True)
    assert strict.to_dict(result.totals.splits["train"]) == {
        "examples": 2, "tokens": sum(first["sequence_lengths"] + second["sequence_lengths"]),
        "truncated": 1, "skipped": {}, "answers": {"A": 1, "B": 1, "C": 0, "D": 0},
    }  # fmt: skip
    assert result.length_histogram[17:] == (0, 4) and sum(result.length_histogram) == 4
    shown = [text.splitlines() for text in inspect_shards.examples(output, 2)]
    [(facts, *texts)] = [lines for lines in shown if lines[0].endswith("row 1")]
    assert [facts.partition(": ")[2], *texts[:2]] == [
        "69 tokens, answer B, row 1",
        "  1A: [CLS] a dog is old . tom is new . [SEP]",
        "  1B: a dog is old . [SEP]",
    ]
    assert said[0] == (
        "train: 2 questions; 139 tokens; 1 with their context cut, at 18 tokens; "
        "A 1 (50.0%), B 1 (50.0%), C 0 (0.0%), D 0 (0.0%)"
    )


def test_the_files_say_how_many_choices(tmp_path, tokenizer):
    row = {"context": "a dog", "question": "who ?", "choices": ["tom", "ann"], "answer": "B"}
    unanswered = {key: value for key, value in row.items() if key != "answer"}
    files = {
        "train": choices.write(tmp_path / "train.jsonl", [row, {**row, "answer": 0}]),
        "test": choices.write(tmp_path / "test.jsonl", [{**unanswered, "question": ""}]),
    }
    output = tmp_path / "shards"
    result, said = build(tasks.choice(), files, tokenizer, output)
    assert [record["answer"] for record in records(output)] == [[1], [0]]
    (test,) = records(output, "test")
    assert "answer" not in test
    assert sequences(test) == ["[CLS] a dog [SEP] tom [SEP]", "[CLS] a dog [SEP] ann [SEP]"]
    assert result.task.labels == ("A", "B") and result.task.unlabelled == ("test",)
    assert result.task.blank is False
    assert said[1].endswith("0 with their context cut, at 512 tokens; no answers")


def test_a_question_that_leaves_no_room(tmp_path, tokenizer):
    row = {"context": "a dog", "question": "who ?", "choices": ["tom", "a new dog"], "answer": 0}
    path = choices.write(tmp_path / "train.jsonl", [row, {**row, "choices": ["tom", "ann"]}])
    output = tmp_path / "shards"
    with pytest.raises(UserError) as error:
        build(tasks.choice(), {"train": path}, tokenizer, output, max_length=8)
    assert str(error.value) == (
        f"{path}, line 1: question and choice have 5 tokens, which leaves nothing of "
        "--max_length=8 for the context: make it at least 9; --skip_bad_rows leaves such rows out"
    )
    assert not output.exists()
    build(tasks.choice(), {"train": path}, tokenizer, tmp_path / "nine", max_length=9)
    assert sequences(records(tmp_path / "nine")[0])[1] == "[CLS] a [SEP] who ? a new dog [SEP]"
    result, said = build(
        tasks.choice(), {"train": path}, tokenizer, output, max_length=8, skip_bad_rows=True
    )
    assert [record["row"] for record in records(output)] == [[1]]
    assert result.totals.skipped == {"question too long": 1}
    assert "left out: 1 question too long" in said[0]
    path = choices.write(tmp_path / "none.jsonl", [row])
    with pytest.raises(UserError, match="no question can be used: 1 question too long"):
        build(
            tasks.choice(), {"train": path}, tokenizer, tmp_path / "out", max_length=8,
            skip_bad_rows=True,
        )  # fmt: skip
    with pytest.raises(UserError, match="--max_length=4 leaves no room for the text"):
        build(tasks.choice(), {"train": path}, tokenizer, output, max_length=4)
