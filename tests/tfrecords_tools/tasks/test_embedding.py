"""Tests of the shards of texts whose vectors are compared."""

import collections
import json

import numpy as np
import pytest
from absl import flags

from official import tasks, tokenizers
from official.shards import manifest
from official.tasks import Columns, embeddings
from official.utils.errors import UserError
from tests import small
from tests.tfrecords_tools.tasks.test_ranking import examples, spelled
from tfrecords_tools import build_task_shards
from tfrecords_tools.tasks import builder as task_builder

NLI = [
    ("ba be", "da", "entailment"), ("ba be", "de", "entailment"), ("ba be", "di", "contradiction"),
    ("ba be", "do", "contradiction"), ("ba be", "du", "neutral"), ("bi", "fa", "entailment"),
    ("bo", "fo", "contradiction"), ("bu", "bu", "entailment"), ("bu", "ga", "contradiction"),
]  # fmt: skip


def planned(*options):
    values = flags.FlagValues()
    build_task_shards.define_flags(values)
    values(["build_task_shards", *options])
    return build_task_shards.plan(values)


def tsv(path, *rows, header=("a", "b", "c")):
    lines = [header[: len(rows[0])], *rows]
    path.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
    return path


def jsonl(path, *objects):
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))
    return path


def build(folder, task, files, name="out", **how):
    if not isinstance(files, dict):
        files = {"train": files}
    return task_builder.build(
        task,
        files,
        tokenizers.load(small.tokenizer_folder(folder / "tokenizer")),
        folder / name,
        **{"report": lambda line: None, "max_length": 16, **how},
    )


def read(folder, built, split="train"):
    """The rows of a split: number, texts as they are spelled, score, hashes."""
    tokenizer = tokenizers.load(folder / "tokenizer")
    rows = examples(folder, split, built)
    found = []
    for i, (ids, lengths) in enumerate(
        zip(rows["token_ids"], rows["sequence_lengths"], strict=True)
    ):
        assert rows["segment_lengths"][i] == lengths  # each text is packed alone
        texts = [
            spelled(part, tokenizer).removeprefix("[CLS] ").removesuffix(" [SEP]")
            for part in np.split(ids, np.cumsum(lengths)[:-1])
        ]
        score = rows["score"][i] if "score" in rows else None
        found.append((rows["row"][i], texts, score))
        hashes = rows["text_hashes"][i]
        assert len(hashes) == len(texts) and len(set(hashes)) == len(set(texts))
    return found


def test_texts_of_columns(tmp_path):
    rows = ("ba be", "da", "di"), ("bi", "de", "do"), ("bi", "du", "fa")
    lines = []
    task = embeddings.of_columns(Columns("a", "b"), ["c"])
    built = build(tmp_path, task, tsv(tmp_path / "t.tsv", *rows), report=lines.append)
    assert read(tmp_path / "out", built) == [(i, [*row], None) for i, row in enumerate(rows)]
    assert lines[0].startswith("train: 3 examples of 3 texts; 28 tokens; 0 cut at 16 tokens")
    assert built.features == tuple(
        "token_ids segment_lengths sequence_lengths row text_hashes".split()
    )
    assert (built.task.kind, built.task.sequences) == ("embedding", {"train": 3})
    assert built.task.metrics == ("accuracy", "mrr") and built.config.form == "texts"
    assert built == manifest.read(tmp_path / "out")

    alone = tsv(tmp_path / "alone.tsv", ("ba be bi bo",), ("bu",))
    task = embeddings.of_columns(Columns("a"))
    built = build(tmp_path, task, alone, "alone", max_length=5)
    assert read(tmp_path / "alone", built) == [(0, ["ba be bi"], None), (1, ["bu"], None)]
    assert built.totals.truncated == 1 and built.task.sequences == {"train": 1}
    with pytest.raises(UserError, match="texts alone have nothing to compare: give --train_file"):
        build(tmp_path, task, {"train": alone, "validation": alone}, "more")


def test_lists_of_negatives(tmp_path):
    path = jsonl(
        tmp_path / "t.jsonl",
        {"q": "ba", "p": "be", "n": ["bi", "bo"]},
        {"q": "da", "p": "de", "n": ["di"]},
        {"q": "fa", "p": "fe", "n": ["fi", "fo"]},
    )
    task = embeddings.of_columns(Columns("q", "p"), ["n"])
    message = f"{path}, line 2: 3 texts where the first row has 4: give every row the same number"
    with pytest.raises(UserError, match=message):
        build(tmp_path, task, path)
    built = build(tmp_path, task, path, skip_bad_rows=True)
    rows = [(0, ["ba", "be", "bi", "bo"], None), (2, ["fa", "fe", "fi", "fo"], None)]
    assert read(tmp_path / "out", built) == rows
    assert built.totals.skipped == {"wrong number of texts": 1}
    empty = jsonl(tmp_path / "e.jsonl", {"q": "ba", "p": "be", "n": ["bi", " "]})
    with pytest.raises(UserError, match=f"{empty}, line 1: a text of a list is empty"):
        build(tmp_path, task, empty, "empty")
    none = jsonl(tmp_path / "none.jsonl", {"q": "ba", "p": "be", "n": []})
    with pytest.raises(UserError, match=f"{none}, line 1: column 'n' is empty"):
        build(tmp_path, task, none, "none")


def test_scores(tmp_path):
    path = tsv(tmp_path / "t.tsv", ("ba", "be", 5), ("bi", "bi", "1.25"), ("bo", "bu", 0))
    test = tsv(tmp_path / "test.tsv", ("ba", "da"), ("", "de"))
    task = embeddings.of_columns(Columns("a", "b", "c"), score_range=(0, 5))
    lines = []
    built = build(tmp_path, task, {"train": path, "test": test}, report=lines.append)
    rows = [(0, ["ba", "be"], 1.0), (1, ["bi", "bi"], 0.25), (2, ["bo", "bu"], 0.0)]
    assert read(tmp_path / "out", built) == rows
    assert built.task.metrics == ("spearman", "pearson") and built.config.score_range == (0, 5)
    assert built.task.unlabelled == ("test",) and lines[1].endswith("no scores")
    with pytest.raises(UserError, match=f"{path}, line 2: score 5 is not from 0 to 1: give the"):
        build(tmp_path, embeddings.of_columns(Columns("a", "b", "c")), path, "over")
    words = tsv(tmp_path / "w.tsv", ("ba", "be", "high"))
    with pytest.raises(UserError, match="'high' in column 'c' is not a number"):
        build(tmp_path, task, words, "words")

    named = embeddings.of_task(tasks.find("stsb"), "scores")
    header = "sentence1", "sentence2", "score"
    path = tsv(tmp_path / "sts.tsv", ("ba", "be", "2.5"), header=header)
    assert read(tmp_path / "sts", build(tmp_path, named, path, "sts"))[0][2] == 0.5


def test_pairs_with_a_label_and_without_it(tmp_path):
    header = "question1", "question2", "is_duplicate"
    rows = ("ba", "be", 1), ("ba", "bi", 0), ("bo", "bo", 1)
    path = tsv(tmp_path / "t.tsv", *rows, header=header)
    task = embeddings.of_task(tasks.find("qqp"), "binary")
    built = build(tmp_path, task, path)
    assert read(tmp_path / "out", built) == [
        (0, ["ba", "be"], 1), (1, ["ba", "bi"], 0), (2, ["bo", "bo"], 1)
    ]  # fmt: skip
    assert built.task.metrics == ("average_precision",) and built.task.labels == ()
    task = embeddings.of_task(tasks.find("qqp"), "pairs")
    built = build(tmp_path, task, path, "pairs")
    assert read(tmp_path / "pairs", built) == [(0, ["ba", "be"], None)]
    assert built.totals.skipped == {"with the same text twice": 1}


def test_pairs_with_their_labels(tmp_path):
    path = tsv(tmp_path / "t.tsv", *NLI)
    test = tsv(tmp_path / "test.tsv", ("ba", "be"))
    task = embeddings.of_task(tasks.generic("classification", "a", "b", "c"), "labels")
    lines = []
    built = build(tmp_path, task, {"train": path, "test": test}, report=lines.append)
    rows = read(tmp_path / "out", built)
    assert rows == [
        (i, [first, second], float(label == "entailment"))
        for i, (first, second, label) in enumerate(NLI)
    ]
    names = [built.task.labels[i] for i in examples(tmp_path / "out", "train", built)["label"]]
    assert names == [label for *_, label in NLI]
    assert built.task.labels == ("contradiction", "entailment", "neutral")
    assert built.task.metrics == ("average_precision",) and built.features[-2:] == (
        "score",
        "label",
    )
    assert built.task.unlabelled == ("test",) and lines[1].endswith("no scores")


def test_triples_with_the_margins_of_a_teacher(tmp_path):
    header = "query", "document", "other", "margin"
    rows = ("ba", "be", "bi", 7.5), ("ba", "ba", "bi", 1), ("bo", "be", "bu", -3.25)
    path = tsv(tmp_path / "t.tsv", *rows, header=header)
    task = embeddings.of_columns(Columns("query", "document", "margin"), ["other"])
    built = build(tmp_path, task, path)
    assert read(tmp_path / "out", built) == [
        (0, ["ba", "be", "bi"], 7.5), (2, ["bo", "be", "bu"], -3.25)
    ]  # fmt: skip
    assert built.totals.skipped == {"with the same text twice": 1}
    assert built.task.metrics == ("accuracy", "mrr") and built.config.form == "margins"
    words = tsv(tmp_path / "w.tsv", ("ba", "be", "bi", "high"), header=header)
    with pytest.raises(UserError, match="'high' in column 'margin' is not a number"):
        build(tmp_path, task, words, "words")


def test_rows_with_the_scores_of_a_teacher(tmp_path):
    """Lists in JSON Lines, and numbers with blanks in a table; one for each text but the first."""
    path = jsonl(
        tmp_path / "t.jsonl",
        {"q": "ba", "p": "be", "n": ["bi", "bo"], "s": [7.5, -1, 0.25]},
        {"q": "ba", "p": "be", "n": ["bi", "bu"], "s": [7.5, -1]},
        {"q": "bo", "p": "be", "n": ["bu", "ba"], "s": ["3", 2, 1]},
    )
    options = "--task=embedding --text_column=q --text_pair_column=p --negative_columns=n"
    task, _ = planned(*options.split(), "--teacher_scores_column=s", f"--train_file={path}")
    assert task.form == "teacher_scores" and task.metrics == ("accuracy", "mrr")
    built = build(tmp_path, task, path, skip_bad_rows=True)
    assert built.totals.skipped == {"wrong number of scores": 1}
    assert [texts for _, texts, _ in read(tmp_path / "out", built)] == [
        ["ba", "be", "bi", "bo"], ["bo", "be", "bu", "ba"]
    ]  # fmt: skip
    found = examples(tmp_path / "out", "train", built)["teacher_scores"]
    assert [list(row) for row in found] == [[7.5, -1, 0.25], [3, 2, 1]]
    with pytest.raises(UserError, match="line 2: 2 scores of a teacher for 3 texts: give"):
        build(tmp_path, task, path, "strict")
    header = "q", "p", "n", "s"
    table = tsv(tmp_path / "t.tsv", ("ba", "be", "bi", "1e3 -2"), header=header)
    built = build(tmp_path, task, table, "table")
    (row,) = examples(tmp_path / "table", "train", built)["teacher_scores"]
    assert list(row) == [1000, -2]
    words = tsv(tmp_path / "w.tsv", ("ba", "be", "bi", "1 high"), header=header)
    with pytest.raises(UserError, match="'1 high' in column 's' is not a number"):
        build(tmp_path, task, words, "words")


def test_pairs_and_triples_of_entailment(tmp_path):
    task = tasks.generic("classification", "a", "b", "c")
    path = tsv(tmp_path / "t.tsv", *NLI)
    built = build(tmp_path, embeddings.of_task(task, "pairs"), path)
    texts = [(number, pair) for number, pair, _ in read(tmp_path / "out", built)]
    assert texts == [(0, ["ba be", "da"]), (1, ["ba be", "de"]), (5, ["bi", "fa"])]

    found = set()
    for seed in range(8):
        name = f"triples{seed}"
        built = build(tmp_path, embeddings.of_task(task, "triples"), path, name, seed=seed)
        rows = read(tmp_path / name, built)
        assert [(number, pair) for number, (*pair, _), _ in rows] == texts[:2]
        assert {other for _, (*_, other), _ in rows} == {"di", "do"}  # each in its turn
        found.add(rows[0][1][2])
    assert found == {"di", "do"}  # the seed decides
    assert built.totals.skipped == {
        "with the same text twice": 1,
        "without a contradiction of the same text": 1,
    }
    with pytest.raises(UserError, match="--embed_as=triples: qqp has no labels entailment and con"):
        embeddings.of_task(tasks.find("qqp"), "triples")
    two = tsv(tmp_path / "two.tsv", ("ba", "be", "no"), ("ba", "bi", "yes"))
    with pytest.raises(UserError, match="no labels entailment and contradiction, only 'no', 'yes'"):
        build(tmp_path, embeddings.of_task(task, "triples"), two, "two")
    test = tsv(tmp_path / "test.tsv", ("ba", "be"))
    with pytest.raises(UserError, match=f"{test}, line 2: pairs and triples are made by labels"):
        build(tmp_path, embeddings.of_task(task, "pairs"), {"train": path, "test": test}, "test")


def test_pairs_of_texts_of_one_label(tmp_path):
    rng = np.random.default_rng(0)
    rows = [(word, "abc"[rng.integers(3)]) for word in small.WORDS[:40]] + [("to", "d")]
    path = tsv(tmp_path / "t.tsv", *rows, header=("text", "label"))
    task = embeddings.of_task(tasks.generic("classification", "text", None, "label"), "pairs")
    orders = []
    for seed in range(2):
        built = build(tmp_path, task, path, f"out{seed}", seed=seed)
        pairs = read(tmp_path / f"out{seed}", built)
        label = dict(rows)
        assert [(number, first) for number, (first, _), _ in pairs] == [
            (i, word) for i, (word, _) in enumerate(rows[:-1])
        ]
        assert all(label[first] == label[second] for _, (first, second), _ in pairs)
        assert collections.Counter(second for _, (_, second), _ in pairs) == collections.Counter(
            label.keys() - {"to"}
        )
        assert built.totals.skipped == {"without another text of the label": 1}
        orders.append(pairs)
        # The texts of a label form one ring: following it meets each of them.
        following = {first: second for _, (first, second), _ in pairs}
        for name in "abc":
            ring = [next(word for word, each in rows if each == name)]
            while (word := following[ring[-1]]) != ring[0]:
                ring.append(word)
            assert len(ring) == sum(each == name for _, each in rows)
    assert orders[0] != orders[1]


@pytest.mark.parametrize(
    "task, form, message",
    [
        ("stsb", "binary", "--embed_as=binary is for pairs of texts with labels, not for stsb"),
        ("sst2", "triples", "is for pairs of texts with labels, not for sst2"),
        ("mrpc", "scores", "is for pairs of texts with scores, not for mrpc"),
        ("squad1", "pairs", "is for texts or pairs with labels, not for squad1"),
    ],
)
def test_forms_that_a_task_cannot_have(task, form, message):
    with pytest.raises(UserError, match=message):
        embeddings.of_task(tasks.find(task), form)


@pytest.mark.parametrize(
    "options, message",
    [
        ("--task=embedding", "needs --text_column"),
        ("--task=embedding --text_column=a --negative_columns=b", "--negative_columns needs pairs"),
        ("--task=embedding --text_column=a --label_column=b", "--label_column needs pairs"),
        (
            "--task=embedding --text_column=a --text_pair_column=b --negative_columns=c,e "
            "--label_column=d",
            "--label_column has the margin between two texts: name one of --negative_columns=c,e",
        ),
        (
            "--task=embedding --text_column=a --text_pair_column=b --negative_columns=c "
            "--label_column=d --score_range=0,5",
            "--score_range: numbers of a teacher are taken as they are",
        ),
        (
            "--task=embedding --text_column=a --text_pair_column=b --teacher_scores_column=c",
            "--teacher_scores_column needs texts that do not suit the query: name them",
        ),
        (
            "--task=embedding --text_column=a --text_pair_column=b --negative_columns=c "
            "--label_column=d --teacher_scores_column=e",
            "--label_column is not for --teacher_scores_column",
        ),
        ("--task=sst2 --embed_as=labels", "--embed_as=labels is for pairs of texts with labels"),
        ("--task=embedding --text_column=a --text_pair_column=a", "column 'a' is given twice"),
        ("--task=embedding --text_column=a --score_range=0,5", "--score_range needs scores"),
        ("--task=embedding --text_column=a --labels=b,c", "--labels is not for --task=embedding"),
        ("--task=stsb --embed_as=scores --score_range=5", "--score_range=5: expected two numbers"),
        ("--task=stsb --embed_as=scores --score_range=5,0", "--score_range=5.0,0.0: the first is"),
        ("--task=mrpc --embed_as=binary --score_range=0,1", "--embed_as=binary has no scores"),
        ("--task=stsb --score_range=0,5", "--score_range is for embedding, not for --task=stsb"),
        (
            "--task=classification --text_column=a --text_pair_column=b --label_column=c "
            "--embed_as=pairs --metrics=spearman",
            "'spearman' does not suit the form pairs: its metrics are 'accuracy', 'mrr'",
        ),
        (
            "--task=stsb --embed_as=scores --text_to_text",
            "--text_to_text is not supported for stsb, a task of the kind embedding",
        ),
    ],
)
def test_flags_that_do_not_fit(tmp_path, options, message):
    tsv(tmp_path / "train.tsv", ("ba", "be", 1))
    given = [f"--input={tmp_path}", "--train_file=train.tsv", "--validation_file="]
    with pytest.raises(UserError, match=message):
        planned(*options.split(), *given)


def test_the_flags(tmp_path):
    for name in ("train", "dev_matched", "dev_mismatched", "test_matched"):
        tsv(tmp_path / f"{name}.tsv", ("ba", "be", 1))
    given = f"--input={tmp_path}", "--task=mnli", "--embed_as=pairs", "--task_name=nli"
    task, files = planned(*given)
    assert (task.kind, task.form, task.name) == ("embedding", "pairs", "nli")
    assert list(files) == ["train", "validation", "validation_mismatched"]
    options = "--task=embedding --text_column=q --text_pair_column=p --negative_columns=n1,n2"
    task, _ = planned(*options.split(), f"--train_file={tmp_path}/train.tsv")
    assert (task.columns.text_pair, task.form) == ("p", "texts")
    assert task.negative_columns == ("n1", "n2")
