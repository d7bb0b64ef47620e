"""Multiple choice: files of RACE, SWAG, DREAM and JSON Lines, and the shards of questions."""

import dataclasses
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
from tfrecords_tools.tasks import multiple_choice, tables

GENERIC = dataclasses.replace(tasks.choice(), labels=("A", "B"))


def race_article(**changes):
    values = {
        "article": "Tom has a dog.\nIt is old.",
        "questions": ["Who has a dog?", "The dog is _ ."],
        "options": [["Tom", "Ann", "Sue", "Bob"], ["old", "new", "red", "big"]],
        "answers": ["A", "A"],
        "id": "high1.txt",
    }
    return json.dumps({**values, **changes})


def folder(path, **files):
    """A folder of text files: __ in a name is a folder, and .txt goes without saying."""
    for name, text in files.items():
        file = path / f"{name.replace('__', '/')}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(**changes):
    values = {"context": "c", "question": "q", "choices": ["x", "y"], "answer": "B"}
    return {k: v for k, v in {**values, **changes}.items() if v is not None}


def read(task, path, optional=False, skip=False):
    bad = tables.BadRows(skip)
    return list(multiple_choice.read(task, path, optional, bad)), bad.counts


def values(question):
    return question.number, question.context, question.text, question.choices, question.answer


def test_articles_of_race_in_folders(tmp_path):
    path = folder(
        tmp_path,
        middle__2=race_article(id="middle2.txt", article="M", answers=["D", "B"]),
        high__1=race_article(),
    )
    (path / "high" / "notes.md").write_text("not an article")
    actual, _ = read(tasks.TASKS["race"], path)
    assert [values(question) for question in actual] == [
        (0, "Tom has a dog.\nIt is old.", "Who has a dog?", ("Tom", "Ann", "Sue", "Bob"), 0),
        (1, "Tom has a dog.\nIt is old.", "The dog is _ .", ("old", "new", "red", "big"), 0),
        (2, "M", "Who has a dog?", ("Tom", "Ann", "Sue", "Bob"), 3),
        (3, "M", "The dog is _ .", ("old", "new", "red", "big"), 1),
    ]
    assert actual[3].location == f"{path}/middle/2.txt, question 2"


def test_race_as_json_lines(tmp_path):
    rows = [
        {
            "example_id": "m1", "question_id": i, "article": "A", "question": f"q{i}",
            "options": ["1", "2", "3", "4"], "answer": answer, "question_type": "detail",
        }
        for i, answer in enumerate("CA")
    ]  # fmt: skip
    actual, _ = read(tasks.TASKS["race"], lines(tmp_path / "race.jsonl", *rows))
    assert [values(question) for question in actual] == [
        (0, "A", "q0", ("1", "2", "3", "4"), 2),
        (1, "A", "q1", ("1", "2", "3", "4"), 0),
    ]
    path = lines(tmp_path / "twice.jsonl", rows[0], rows[1], rows[0])
    with pytest.raises(UserError, match=f"{path}, line 3: id 'm1 0' is already used, .*line 1;"):
        read(tasks.TASKS["race"], path)
    numbered = lines(tmp_path / "numbered.jsonl", {**rows[0], "answer": 2})
    with pytest.raises(UserError, match="line 1: answer 2 is not one of 'A', 'B', 'C', 'D'"):
        read(tasks.TASKS["race"], numbered)


SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"


def test_swag(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text(
        f"{SWAG},label\n"
        '0,v1,12,A man sits. He,A man sits.,He,gold,"sings, loudly.",eats.,runs.,flies.,2\n'
        "1,v1,13,Rain falls. It,Rain falls.,It,gold,a.,b.,c.,d.,0\n"
    )
    actual, _ = read(tasks.TASKS["swag"], path)
    assert [values(question) for question in actual] == [
        (0, "A man sits.", "He", ("sings, loudly.", "eats.", "runs.", "flies."), 2),
        (1, "Rain falls.", "It", ("a.", "b.", "c.", "d."), 0),
    ]
    test = tmp_path / "test.csv"
    test.write_text(f"{SWAG}\n0,v1,12,A man sits. He,A man sits.,He,gold,s.,e.,r.,f.\n")
    actual, _ = read(tasks.TASKS["swag"], test, optional=True)
    assert [question.answer for question in actual] == [None]
    with pytest.raises(UserError, match="test.csv has no column 'label'"):
        list(multiple_choice.read(tasks.TASKS["swag"], test, False, tables.BadRows()))
    path.write_text(f"{SWAG},label\n0,v,1,s,a,b,gold,1,2,3,4,4\n")
    with pytest.raises(UserError, match="line 2: answer '4' is not one of '0', '1', '2', '3'"):
        read(tasks.TASKS["swag"], path)


DIALOGUE = [
    ["M: Hello.", "W: Good morning!"],
    [{"question": "When is it?", "choice": ["Noon.", "Morning.", "Night."], "answer": "Morning."}],
    "3-1",
]


def test_dream(tmp_path):
    path = tmp_path / "train.json"
    second = [["W: Yes."], [{**DIALOGUE[1][0], "answer": "Noon."}] * 2, "3-2"]
    path.write_text(json.dumps([DIALOGUE, second]))
    actual, _ = read(tasks.TASKS["dream"], path)
    context, choices = "M: Hello.\nW: Good morning!", ("Noon.", "Morning.", "Night.")
    assert [values(question) for question in actual] == [
        (0, context, "When is it?", choices, 1),
        (1, "W: Yes.", "When is it?", choices, 0),
        (2, "W: Yes.", "When is it?", choices, 0),
    ]
    assert actual[2].location == f"{path}, dialogue 2, question 2"


def test_json_lines_of_ones_own(tmp_path):
    rows = [row(answer=0, id="a"), row(question=None), row(answer=1, id=7)]
    actual, _ = read(GENERIC, lines(tmp_path / "own.jsonl", *rows))
    assert [(q.text, q.choices, q.answer) for q in actual] == [
        ("q", ("x", "y"), 0),
        ("", ("x", "y"), 1),
        ("q", ("x", "y"), 1),
    ]
    assert multiple_choice.count_choices(tmp_path / "own.jsonl") == 2
    test = lines(tmp_path / "test.jsonl", row(answer=None), row(answer=None))
    actual, _ = read(GENERIC, test, optional=True)
    assert [question.answer for question in actual] == [None, None]


BAD_ROWS = {
    "empty context": (row(context=" \n"), "the context is empty"),
    "not a text": (row(question=[1]), "the question is a list, not a text"),
    "wrong number of choices": (
        row(choices=["x", "y", "z"]),
        "3 choices, expected 2: A, B",
    ),
    "empty choice": (row(choices=["x", ""]), "choice B is empty"),
    "answer not in the set": (row(answer="C"), "answer 'C' is not one of 'A', 'B', 0, 1"),
    "duplicate id": (row(id=3), "id '3' is already used, .*own.jsonl, line 1"),
    "no answer": (row(answer=None), "no answer; only a test file may lack answers"),
    "not a JSON object": ([1], "every line is to be a JSON object"),
}


@pytest.mark.parametrize("reason", BAD_ROWS)
def test_what_cannot_be_used_is_named_or_counted(tmp_path, reason):
    bad, words = BAD_ROWS[reason]
    path = lines(tmp_path / "own.jsonl", row(id=3), bad, row(id=4, context="last"))
    with pytest.raises(UserError, match=f"own.jsonl, line 2: {words}; --skip_bad_rows leaves"):
        read(GENERIC, path)
    actual, counts = read(GENERIC, path, skip=True)
    assert [(q.number, q.context) for q in actual] == [(0, "c"), (2, "last")]
    assert counts == {reason: 1}


@pytest.mark.parametrize("answer", [True, 1.0, ["A"], "a", 2, -1])
def test_odd_answers(tmp_path, answer):
    path = lines(tmp_path / "own.jsonl", row(answer=answer))
    with pytest.raises(UserError, match="line 1: answer .* is not one of 'A', 'B', 0, 1"):
        read(GENERIC, path)


def test_choices_that_are_no_texts(tmp_path):
    for wrong in ("xy", [1, 2], None):
        path = lines(tmp_path / "own.jsonl", row(choices=wrong))
        with pytest.raises(UserError, match="line 1: the choices are not a list of texts"):
            read(GENERIC, path)
    with pytest.raises(UserError, match="own.jsonl: no line with two or more `choices`"):
        multiple_choice.count_choices(path)
    path = lines(tmp_path / "own.jsonl", row(choices=["x"] * 27))
    with pytest.raises(UserError, match="own.jsonl, line 1: 27 choices, the maximum is 26"):
        multiple_choice.count_choices(path)
    path = lines(tmp_path / "own.jsonl", row(choices=["x"] * 27), row())
    assert multiple_choice.count_choices(path, skip_bad_rows=True) == 2


def test_answers_for_all_or_for_none(tmp_path):
    path = lines(tmp_path / "test.jsonl", row(answer=None), row())
    with pytest.raises(UserError, match="line 2: an answer, unlike the first question: give it"):
        read(GENERIC, path, optional=True)
    path = lines(tmp_path / "test.jsonl", row(), row(answer=None))
    with pytest.raises(UserError, match="line 2: no answer, unlike the first question: give it"):
        read(GENERIC, path, optional=True)


BAD_ARTICLES = {
    "not an article": ({"options": "ABCD"}, "questions, options and answers must be lists"),
    "wrong number of answers": (
        {"answers": ["A"]},
        "2 questions, 2 lists of options and 1 answers",
    ),
    "duplicate id": ({"id": "high0.txt"}, "id 'high0.txt' is already used, .*/0.txt"),
}


@pytest.mark.parametrize("reason", BAD_ARTICLES)
def test_articles_that_cannot_be_used(tmp_path, reason):
    changes, words = BAD_ARTICLES[reason]
    path = folder(
        tmp_path,
        **{
            "0": race_article(id="high0.txt"),
            "1": race_article(**changes),
            "2": race_article(id="2"),
        },
    )
    with pytest.raises(UserError, match=f"/1.txt: {words}"):
        read(tasks.TASKS["race"], path)
    actual, counts = read(tasks.TASKS["race"], path, skip=True)
    assert counts == {reason: 1} and [q.number for q in actual] == [0, 1, 4, 5]


def test_an_article_that_is_damaged(tmp_path):
    path = folder(tmp_path, **{"0": race_article(), "1": "{", "2": race_article(id="2")})
    (path / "3.txt").write_bytes(b"\xff")
    with pytest.raises(UserError, match="/1.txt: not JSON .*--skip_bad_rows leaves such rows out"):
        read(tasks.TASKS["race"], path)
    actual, counts = read(tasks.TASKS["race"], path, skip=True)
    assert counts == {"not JSON": 2} and len(actual) == 4


def test_questions_of_an_article_that_cannot_be_used(tmp_path):
    options = [["Tom", "Ann", "Sue", "Bob"], ["old", "new", "red"]]
    path = folder(tmp_path, one=race_article(options=options))
    with pytest.raises(UserError, match="one.txt, question 2: 3 choices, expected 4: A, B, C, D"):
        read(tasks.TASKS["race"], path)
    path = folder(tmp_path, one=race_article(answers=["A", "E"]))
    with pytest.raises(UserError, match="one.txt, question 2: answer 'E' is not one of 'A'"):
        read(tasks.TASKS["race"], path)
    path = folder(tmp_path, one=race_article(article=""))
    with pytest.raises(UserError, match="one.txt, question 1: the article is empty"):
        read(tasks.TASKS["race"], path)


BAD_DIALOGUES = {
    "not a dialogue": ([["M: Hello."], []], "not a list of turns, questions and id"),
    "duplicate id": (DIALOGUE, "id '3-1' is already used, dialogue 1"),
    "answer not in the set": (
        [["M: Hello."], [{**DIALOGUE[1][0], "answer": "Noon"}], "3-2"],
        "question 1: answer 'Noon' is not one of its choices",
    ),
    "not a text": ([["M: Hello."], ["?"], "3-2"], "question 1: the choices are not a list"),
}


@pytest.mark.parametrize("reason", BAD_DIALOGUES)
def test_dialogues_that_cannot_be_used(tmp_path, reason):
    dialogue, words = BAD_DIALOGUES[reason]
    path = tmp_path / "dev.json"
    path.write_text(json.dumps([DIALOGUE, dialogue]))
    with pytest.raises(UserError, match=f"dev.json, dialogue 2(, |: ){words}"):
        read(tasks.TASKS["dream"], path)
    actual, counts = read(tasks.TASKS["dream"], path, skip=True)
    assert len(actual) == 1 and counts == {reason: 1}


def test_an_answer_that_stands_twice_among_the_choices(tmp_path):
    asked = {"question": "?", "choice": ["a", "b", "a"], "answer": "a"}
    (tmp_path / "dev.json").write_text(json.dumps([[["M: x"], [asked], "1"]]))
    with pytest.raises(UserError, match="question 1: answer 'a' is not one of its choices"):
        read(tasks.TASKS["dream"], tmp_path / "dev.json")


def test_files_that_cannot_be_read(tmp_path):
    race, dream = tasks.TASKS["race"], tasks.TASKS["dream"]
    with pytest.raises(UserError, match="there is no file .*none"):
        read(race, tmp_path / "none")
    with pytest.raises(UserError, match="has no articles: neither it nor"):
        read(race, tmp_path)
    with pytest.raises(UserError, match="is a folder, not a file"):
        read(dream, tmp_path)
    (tmp_path / "a.txt").write_text("Tom has a dog.")
    with pytest.raises(UserError, match=r"a.txt: not JSON \(Expecting value"):
        read(race, tmp_path)
    with pytest.raises(UserError, match=r"a.txt: expected a folder of articles or a file of JSON "):
        read(race, tmp_path / "a.txt")
    (tmp_path / "a.txt").write_bytes(b'{"article": "\xff"}')
    with pytest.raises(UserError, match="a.txt: not UTF-8: convert the file"):
        read(race, tmp_path)
    (tmp_path / "a.txt").write_text("[]")
    with pytest.raises(UserError, match="a.txt: a list, not a JSON object"):
        read(race, tmp_path)
    with pytest.raises(UserError, match="is empty: it has no questions"):
        read(dream, tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("{}")
    with pytest.raises(UserError, match="a.txt: a dict, not a JSON list of dialogues"):
        read(dream, tmp_path / "a.txt")
    (tmp_path / "a.csv").write_text("context,question\n")
    with pytest.raises(UserError, match="a.csv: expected a file of JSON Lines"):
        read(GENERIC, tmp_path / "a.csv")


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


def test_the_form_of_roberta(tmp_path, tokenizer):
    """<s> question and choice, cut </s> article, cut </s>, as a reading of Liu et al., 2019, says.

    Section 5.3: questions with answers are cut at so many tokens, and the article so that the whole
    has at most so many. The release has them in this order, and so do the served rows.
    """
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "1.txt").write_text(article())
    result, said = build(
        tasks.TASKS["race"], {"train": tmp_path / "train"}, tokenizer, tmp_path / "shards",
        max_length=18, choice_first=True, max_choice_length=6,
    )  # fmt: skip
    context = "a dog is old . tom is new .".split()
    for record, question in zip(records(tmp_path / "shards"), (0, 1), strict=True):
        expected, sizes = [], []
        for choice in json.loads(article())["options"][question]:
            text = (f"who is new ? {choice}", f"a dog is {choice} .")[question].split()[:6]
            kept = context[: 18 - 3 - len(text)]
            expected.append(" ".join(["[CLS]", *text, "[SEP]", *kept, "[SEP]"]))
            sizes += [len(text) + 2, len(kept) + 1]
        assert sequences(record) == expected
        assert record["segment_lengths"] == sizes
    assert sequences(records(tmp_path / "shards")[0])[3].startswith(
        "[CLS] who is new ? a new [SEP]"
    )
    assert (result.task.choice_first, result.task.max_choice_length) == (True, 6)
    assert "0 with their context cut, at 18 tokens" in said[0]
    # Without the flags nothing is recorded, as before.
    plain, _ = build(
        tasks.TASKS["race"], {"train": tmp_path / "train"}, tokenizer, tmp_path / "plain"
    )
    assert {"choice_first", "max_choice_length"}.isdisjoint(strict.to_dict(plain.task))


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
        "--max_length=8 for the context: make it at least 9, or cut them with "
        "--max_choice_length; --skip_bad_rows leaves such rows out"
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


def test_questions_that_are_marked_are_left_out(tmp_path):
    rows = [
        {"context": "c", "question": "q", "choices": ["x", "y"], "answer": 0, "status": status}
        for status in ("done", "rejected")
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = dataclasses.replace(tasks.choice(), labels=("A", "B"))
    bad = tables.BadRows()
    assert len(list(multiple_choice.read(task, path, False, bad))) == 1
    assert bad.counts == {"marked status=rejected": 1}
