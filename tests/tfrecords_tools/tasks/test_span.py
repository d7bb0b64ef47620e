"""SQuAD's files: what is read, what is refused, and the shards that they become."""

import dataclasses
import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset
from official.evaluation import notes, squad_metrics
from official.shards import manifest, parsing, shard_folder, side_texts
from official.utils.errors import UserError
from tests import small, squads
from tfrecords_tools import build_task_shards
from tfrecords_tools.tasks import builder as task_builder
from tfrecords_tools.tasks import span
from tfrecords_tools.tasks.tables import BadRows


def write(path, *paragraphs, **more):
    path.write_text(json.dumps(squads.document(*paragraphs, **more)))
    return path


def test_questions_with_their_answers(tmp_path):
    path = write(
        tmp_path / "a.json",
        ("Bada bede, bédu.", [("q1", "What?", [("bede", 5), ("bédu", 11)]), ("q2", "Why?", [])]),
    )
    first, second = span.read(path, no_answers=True)
    assert first.question == side_texts.Question(
        "q1", "What?", "Bada bede, bédu.", ("bede", "bédu")
    )
    assert first.starts == (5, 11)
    assert second.question.answers == () and second.starts == ()
    # The same without answers, for a test split.
    document = squads.document(("Bada.", [("q1", "What?", [])]))
    del document["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    path.write_text(json.dumps(document))
    (only,) = span.read(path, answered=False)
    assert only.question.answers is None and only.starts == ()


P = "article 1 (Title), paragraph 1, question 'q1'"
BAD = {
    "answer not in its context": (
        ("Bada bede.", [("q1", "What?", [("bede", 4)])]),
        f"{P}: the answer 'bede' is not in the context at 4 (answer_start, in characters), "
        "and first occurs at 5",
    ),
    "empty context": ((" ", [("q1", "What?", [("x", 0)])]), f"{P}: the context is empty"),
    "empty question": (("Bada.", [("q1", " ", [("Bada", 0)])]), f"{P}: the question is empty"),
    "empty answer": (("Bada.", [("q1", "What?", [("", 0)])]), f"{P}: an answer is empty"),
    "without an answer": (
        ("Bada.", [("q1", "What?", [])]),
        f"{P}: has no answer (is_impossible): --task=squad2 has such questions",
    ),
    "duplicate id": (
        ("Bada.", [("q1", "What?", [("Bada", 0)])] * 2),
        f"{P}: the id is already used in FILE: {P}",
    ),
}


@pytest.mark.parametrize("reason", BAD)
def test_questions_that_cannot_be_used(tmp_path, reason):
    paragraph, message = BAD[reason]
    path = write(tmp_path / "a.json", paragraph)
    message = f"{path}: {message.replace('FILE', str(path))}; --skip_bad_rows leaves such rows out"
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        list(span.read(path))
    bad = BadRows(skip=True)
    good = list(span.read(path, bad=bad))
    assert len(good) == (reason == "duplicate id") and bad.counts == {reason: 1}


def test_answers_that_are_nowhere_or_missing(tmp_path):
    path = write(tmp_path / "a.json", ("Bada.", [("q1", "What?", [("bede", 0)])]))
    with pytest.raises(UserError, match="at 0 .*, and does not occur in it"):
        list(span.read(path))
    document = squads.document(("Bada.", [("q1", "What?", [])]))
    document["data"][0]["paragraphs"][0]["qas"][0]["is_impossible"] = False
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="'q1': has no answer and is not marked as impossible"):
        list(span.read(path, no_answers=True))


def test_questions_of_version_2_without_a_flag(tmp_path):
    """The released evaluation asks whether there are answers. Ids may be numbers."""
    asked = [(1, "What?", [("Bada", 0)]), (2, "Why?", [])]
    document = squads.document(("Bada.", asked))
    for question in document["data"][0]["paragraphs"][0]["qas"]:
        del question["is_impossible"]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    found = [each.question for each in span.read(path, no_answers=True)]
    assert [(each.id, each.answers) for each in found] == [("1", ("Bada",)), ("2", ())]
    with pytest.raises(UserError, match="'2': has no answer and --task=squad2 has such questions"):
        list(span.read(path))


@pytest.mark.parametrize(
    "text, words",
    [
        (b"{", "is not JSON .*is it one of SQuAD's files"),
        (b'{"data": "\xff"}', "is not UTF-8 .*convert the file"),
        (b"[]", "a.json: expected an object with 'data', got list"),
        (b'{"rows": []}', "a.json: no 'data': its keys are 'rows'; is this one of SQuAD's"),
        (b'{"data": []}', "a.json has no questions"),
        (b'{"data": [{}]}', "a.json: article 1: no 'paragraphs': its keys are none"),
        (b'{"data": [{"paragraphs": [{"qas": []}]}]}', "article 1, paragraph 1: no 'context'"),
        (
            b'{"data": [{"title": "T", "paragraphs": [{"context": "x", "qas": [3]}]}]}',
            r"article 1 \(T\), paragraph 1, question 1: expected an object with 'id', got int",
        ),
        (
            b'{"data": [{"paragraphs": [{"context": "x", "qas": [{"id": 1.5}]}]}]}',
            "article 1, paragraph 1, question 1: 'id' is 1.5, expected a text",
        ),
        (
            b'{"data": [{"paragraphs": [{"context": "x", "qas": [{"id": "q", "question": "x",'
            b'"is_impossible": 1}]}]}]}',
            "question 'q': is_impossible is 1, expected true or false",
        ),
    ],
)
def test_files_of_another_form(tmp_path, text, words):
    path = tmp_path / "a.json"
    path.write_bytes(text)
    with pytest.raises(UserError, match=words):
        list(span.read(path))


def test_no_file(tmp_path):
    with pytest.raises(UserError, match="there is no file .*none.json"):
        list(span.read(tmp_path / "none.json"))
    with pytest.raises(UserError, match="is a folder, not a file"):
        list(span.read(tmp_path))


def records(folder, split):
    record = manifest.read(folder)
    names = [str(folder / shard.name) for shard in record.split(split)]
    serialized = list(tf.data.TFRecordDataset(names).as_numpy_iterator())
    parsed = parsing.parse(serialized, record.features)
    return [
        {name: value[i].numpy() for name, value in parsed.items()} for i in range(len(serialized))
    ]


def test_every_answer_is_found_again_in_its_windows(tmp_path):
    folder = squads.shard_folder(tmp_path / "shards", no_answers=True)
    record = manifest.read(folder)
    assert shard_folder.problems(folder, deep=True) == []
    asked = side_texts.read_questions(folder, "train", record)
    rows = records(folder, "train")
    tokenizer = tokenizers.load(folder / "tokenizer")
    contexts = tokenizer.encode_with_offsets([question.context for question in asked.values()])
    whole = {number: 0 for number in range(len(asked))}
    for row in rows:
        question, (ids, starts, ends) = asked[row["row"]], contexts[row["row"]]
        begin, first = int(row["context_start"]), int(row["window_start"])
        held = ids[first : first + row["context_length"]]
        assert row["token_ids"][begin : begin + len(held)].tolist() == held.tolist()
        assert len(row["token_ids"]) == row["segment_lengths"].sum() <= squads.SIZES["max_length"]
        if row["answer_start"] >= 0:
            assert (
                question.context[starts[row["answer_start"]] : ends[row["answer_end"]]]
                == (question.answers[0])
            )
            whole[int(row["row"])] += 1
        else:
            assert row["answer_end"] == -1
    answered = [number for number, question in asked.items() if question.answers]
    assert answered and len(answered) < len(asked) and len(rows) > len(asked)
    assert sum(whole[number] > 0 for number in answered) >= 0.9 * len(answered)
    assert all(not count or number in answered for number, count in whole.items())
    totals = record.totals.splits["train"]
    assert totals.questions == len(asked) and totals.examples == len(rows)
    assert totals.without_answer == len(asked) - len(answered)
    assert totals.with_answer_in_window == sum(whole.values())
    assert record.length_histogram[squads.SIZES["max_length"]] > 0
    assert record.task.kind == "span" and record.task.doc_stride == squads.SIZES["doc_stride"]


def test_a_test_split_may_be_without_answers(tmp_path):
    document = squads.make(3)
    for paragraph in document["data"][0]["paragraphs"]:
        for asked in paragraph["qas"]:
            del asked["answers"]
            asked.pop("is_impossible", None)
    (tmp_path / "test.json").write_text(json.dumps(document))
    lines = []
    built = task_builder.build(
        tasks.TASKS["squad1"],
        {"test": tmp_path / "test.json"},
        tokenizers.load(small.tokenizer_folder(tmp_path / "tok")),
        tmp_path / "shards",
        **squads.SIZES,
        report=lines.append,
    )
    assert built.task.unlabelled == ("test",) and lines[0].endswith("; no answers")
    asked = side_texts.read_questions(tmp_path / "shards", "test", built)
    assert list(asked) == list(range(len(asked))) and asked
    assert all(question.answers is None for question in asked.values())


def test_questions_that_are_left_out_leave_the_rows_of_the_others(tmp_path):
    chosen = tokenizers.load(small.tokenizer_folder(tmp_path / "tok"))
    path = write(
        tmp_path / "a.json",
        ("Bada \u200b.", [("a", "bada", [("Bada", 0)]), ("b", "What?", [("\u200b", 5)])]),
        ("Bodo.", [("c", "ba", [("Bodo", 0)]), ("d", "be", [("Bodo", 0)])]),
    )
    files = {"validation": path}
    built = task_builder.build(
        tasks.TASKS["squad1"], files, chosen, tmp_path / "shards", **squads.SIZES,
        skip_bad_rows=True, report=lambda line: None,
    )  # fmt: skip
    asked = side_texts.read_questions(tmp_path / "shards", "validation", built)
    assert {row: question.id for row, question in asked.items()} == {0: "a", 2: "c", 3: "d"}
    assert [int(row["row"]) for row in records(tmp_path / "shards", "validation")] == [0, 2, 3]
    assert built.totals.splits["validation"].questions == 3
    lines = (tmp_path / "shards" / "questions-validation.jsonl").read_text().splitlines()
    rows = [each.get("row") for line in lines for each in json.loads(line)["questions"]]
    assert rows == [None, 2, None]  # only where it is not the next one


def test_shards_that_cannot_be_made(tmp_path):
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tok"))
    path = write(tmp_path / "a.json", ("Bada \u200b.", [("q1", "What?", [("\u200b", 5)])]))
    build = lambda **more: task_builder.build(  # noqa: E731
        tasks.TASKS["squad1"], {"train": path}, tokenizer, tmp_path / "out", **squads.SIZES, **more
    )
    with pytest.raises(UserError, match="'q1': the answer '.*' has no token in this vocabulary"):
        build()
    with pytest.raises(UserError, match="no question can be used: 1 answer without a token"):
        build(skip_bad_rows=True)
    with pytest.raises(UserError, match="max_length: 5 has no room"):
        task_builder.build(
            tasks.TASKS["squad1"],
            {},
            tokenizer,
            tmp_path / "out",
            5,
            doc_stride=1,
            max_query_length=5,
        )
    assert not (tmp_path / "out").exists()


def test_questions_that_have_changed(tmp_path):
    folder = squads.shard_folder(tmp_path / "shards")
    record = manifest.read(folder)
    path = folder / "questions-train.jsonl"
    path.write_bytes(path.read_bytes().replace(b"ba", b"bo", 1))
    message = f"{path} has changed since it was written"
    with pytest.raises(UserError, match=f"{message}.*copy the folder again"):
        side_texts.read_questions(folder, "train", record)
    assert message in shard_folder.problems(folder, deep=True)[0]
    path.unlink()
    with pytest.raises(UserError, match="questions-train.jsonl is missing"):
        side_texts.read_questions(folder, "train", record)
    with pytest.raises(UserError, match="has no questions-test.jsonl"):
        side_texts.read_questions(folder, "test", record)


def test_flags(tmp_path):
    values = flags.FlagValues()
    build_task_shards.define_flags(values)
    (tmp_path / "dev.json").write_text("{}")
    plan = lambda *arguments: (  # noqa: E731
        values.unparse_flags(),
        values(["build_task_shards", *arguments]),
        build_task_shards.plan(values),
    )[2]
    task, files = plan("--task=squad2", f"--validation_file={tmp_path}/dev.json")
    assert task.no_answers and list(files) == ["validation"]
    assert (values.doc_stride, values.max_query_length, values.max_length) == (128, 64, None)
    with pytest.raises(
        UserError, match="--doc_stride is for squad1 and squad2, not for --task=rte"
    ):
        plan("--task=rte", f"--test_file={tmp_path}/dev.json", "--doc_stride=3")


def test_the_command_makes_windows_of_384_tokens(tmp_path):
    (tmp_path / "train-v1.1.json").write_text(json.dumps(squads.make(4)))
    tokenizer = small.tokenizer_folder(tmp_path / "tok")
    values = flags.FLAGS
    from absl.testing import flagsaver

    if "task" not in values:
        build_task_shards.define_flags()
    values.mark_as_parsed()
    with flagsaver.flagsaver(
        task="squad1",
        input=str(tmp_path),
        validation_file="",
        tokenizer=str(tokenizer),
        output=str(tmp_path / "shards"),
    ):
        build_task_shards.main([])
    record = manifest.read(tmp_path / "shards")
    assert record.max_length == 384 and record.totals.examples == len(
        records(tmp_path / "shards", "train")
    )
    assert np.array(record.config.doc_stride) == 128


def test_a_file_that_is_larger_than_memory_is_not_read(tmp_path):
    path = tmp_path / "train.json"
    path.write_text("{")
    os.truncate(path, 1 << 40)
    with pytest.raises(UserError, match="train.json has more than 4,294,967,296 bytes"):
        list(span.read(path))


CHINESE = [
    ("他在北京大学学习。", [("q1", "他在哪？", [("北京大学", 2)])]),
    ("叫“李明”。", [("q2", "叫？", [("“李明", 1)])]),
]


def built_of(folder, paragraphs, words, rule="squad", **more):
    """Returns the manifest of a validation split, and the lines about it."""
    lines = []
    folder.mkdir()
    built = task_builder.build(
        dataclasses.replace(tasks.TASKS["squad1"], answer_rule=rule),
        {"validation": write(folder / "a.json", *paragraphs)},
        tokenizers.load(small.tokenizer_folder(folder / "tok", words)),
        folder / "shards", **squads.SIZES, **more, report=lines.append,
    )  # fmt: skip
    return built, lines


def test_the_rule_by_which_answers_are_compared_is_kept(tmp_path):
    words = [*"他在北京大学习哪叫李明", "“", "”", "。", "？"]
    built, lines = built_of(tmp_path / "a", CHINESE, words)
    assert built.task.answer_rule == "squad"
    (note,) = lines[1:]
    assert note.startswith("2 of 2 answers have letters that are not Latin") and "cmrc" in note
    built, lines = built_of(tmp_path / "b", CHINESE, words, "cmrc")
    assert built.task.answer_rule == "cmrc" and len(lines) == 1
    folder = tmp_path / "b" / "shards"
    answers = write_answers(tmp_path / "answers.json", {"q1": "在北京大学", "q2": "李明"})
    figures, count, rule = squad_metrics.score_file(folder, "validation", answers)
    assert (count, rule) == (2, "cmrc")
    assert figures == pytest.approx({"exact_match": 0.5, "f1": (8 / 9 + 1) / 2})
    figures, _, rule = squad_metrics.score_file(folder, "validation", answers, rule="squad")
    assert rule == "squad" and figures == {"exact_match": 0, "f1": 0}
    # A folder of an earlier version names no rule.
    path = folder / "manifest.json"
    values = json.loads(path.read_text())
    del values["task"]["answer_rule"], values["checksum"]
    path.write_text(json.dumps(values))
    assert manifest.read(folder).task.answer_rule is None
    assert squad_metrics.score_file(folder, "validation", answers)[2] == "squad"


def write_answers(path, answers):
    path.write_text(json.dumps(answers))
    return path


def test_answers_that_are_not_made_of_whole_tokens_are_counted(tmp_path):
    paragraphs = [
        ("bada bodo", [("q1", "bo", [("bod", 5)]), ("q2", "ba", [("bada", 0)])]),
        # The second answer, and another place of the first, are whole tokens.
        ("badu. badu BAD", [("q3", "ba", [("bad", 0), ("badu.", 0)]), ("q4", "ba", [("bad", 0)])]),
    ]
    words = ["bada", "bodo", "badu", "bad", ".", "bo", "ba"]
    built, (line,) = built_of(tmp_path / "a", paragraphs, words)
    assert built.totals.splits["validation"].cut_answers == 1
    assert (
        "answers that begin or end inside a token: 1 (25.0%), so exact match cannot exceed 75.0%"
        in line
    )
    config = configs.from_dict(
        {"name": "x", "objectives": [{"type": "span_answer"}], "recipe": {"steps": 1}}
    )
    source = ShardDataset(tmp_path / "a" / "shards", config, "validation")
    assert list(notes.of_source(source)) == [
        "validation: exact match and F1 of answers by the rule squad",
        "validation: 1 of 4 answers begin or end inside a token, so exact match cannot exceed "
        "0.750",
    ]
