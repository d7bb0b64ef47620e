"""Tests of the shards of pairs that are ranked: QNLI as distributed, and tables."""

import pytest
from absl import flags

from official import tasks, tokenizers
from official.shards import manifest, side_texts
from official.tasks import best_rows
from official.utils.errors import UserError
from tests import small
from tests.tfrecords_tools.tasks.test_ranking import examples, spelled
from tfrecords_tools import build_task_shards
from tfrecords_tools.tasks import builder as task_builder

YES, NO = "entailment", "not_entailment"
TRAIN = [
    ("ba be", "da", YES), ("bi", "de", YES), ("ba be", "di", NO), ("bo", "do", NO),
    ("ba be", "du", NO), ("ba be", "ga", NO), ("bu", "fa", YES), ("bu", "fe", NO),
]  # fmt: skip
DEV = [("bi", "de", NO), ("bo", "do", YES), ("bi", "di", YES), ("bu", "fa", NO), ("bi", "du", NO)]


def qnli(path, rows):
    """A file of QNLI; rows without a label are those of a test file."""
    header = ["index", "question", "sentence", *(["label"] if len(rows[0]) == 3 else [])]
    lines = [header, *([str(number), *row] for number, row in enumerate(rows))]
    path.write_text("".join("\t".join(line) + "\n" for line in lines))
    return path


def build(folder, task=None, **how):
    """The shards of QNLI as a ranking, in `folder` / "out", and their manifest."""
    files = how.pop("files", None) or {
        "train": qnli(folder / "train.tsv", TRAIN),
        "validation": qnli(folder / "dev.tsv", DEV),
        "test": qnli(folder / "test.tsv", [row[:2] for row in DEV]),
    }
    return task_builder.build(
        task or best_rows.of_task(tasks.find("qnli"), "pair_ranking", YES),
        files,
        tokenizers.load(small.tokenizer_folder(folder / "tokenizer")),
        folder / "out",
        max_length=16,
        **{"report": lambda line: None, **how},
    )


def test_triples_and_rows_with_their_groups(tmp_path):
    lines = []
    built = build(tmp_path, negatives=2, report=lines.append)
    tokenizer = tokenizers.load(tmp_path / "out" / "tokenizer")

    rows = examples(tmp_path / "out", "train", built)
    triples = {
        (spelled(ids[: lengths[0]], tokenizer), spelled(ids[lengths[0] :], tokenizer))
        for ids, lengths in zip(rows["token_ids"], rows["sequence_lengths"], strict=True)
    }
    of_first = {b for a, b in triples if a == "[CLS] ba be [SEP] da [SEP]"}
    assert of_first < {f"[CLS] ba be [SEP] {word} [SEP]" for word in ("di", "du", "ga")}
    assert len(of_first) == 2 and len(triples) == 3  # two of three, as asked, and one of `bu`
    assert ("[CLS] bu [SEP] fa [SEP]", "[CLS] bu [SEP] fe [SEP]") in triples
    left_out = {
        "queries without a relevant document": 1,  # bo
        "queries without a candidate that is not relevant": 1,  # bi
    }
    assert built.totals.splits["train"].left_out == left_out

    rows = examples(tmp_path / "out", "validation", built)
    assert rows["row"] == [0, 1, 2, 3, 4]
    texts = [f"[CLS] {first} [SEP] {second} [SEP]" for first, second, _ in DEV]
    assert [spelled(ids, tokenizer) for ids in rows["token_ids"]] == texts
    groups = [0, 1, 0, 2, 0]
    for split, labels in (("validation", [row[2] == YES for row in DEV]), ("test", [None] * 5)):
        compared = side_texts.read_compared(tmp_path / "out", split, built)
        assert compared == [*map(side_texts.ComparedRow, range(5), groups, labels)]
    assert built.task.unlabelled == ("test",) and built.task.best == YES
    assert built.task.sequences == {"train": 2, "validation": 1, "test": 1}
    assert built == manifest.read(tmp_path / "out")
    assert "validation: 3 queries, 5 candidates" in lines[1]
    assert lines[1].endswith("2 rows have no other to be compared with")
    with pytest.raises(UserError, match="name another one, such as --split=validation"):
        side_texts.read_compared(tmp_path / "out", "train", built)


def test_what_cannot_be_used(tmp_path):
    bad = qnli(tmp_path / "bad.tsv", [*TRAIN[:2], ("ba", "di", "maybe")])
    with pytest.raises(UserError, match=f"{bad}, line 4: label 'maybe' in column 'label'"):
        build(tmp_path, files={"train": bad})
    alone = qnli(tmp_path / "alone.tsv", [TRAIN[0], TRAIN[1], ("bo", "do", NO)])
    message = "nothing to learn from: 2 queries without a candidate that is not relevant, 1 queries"
    with pytest.raises(UserError, match=f"{alone}: {message}"):
        build(tmp_path, files={"train": alone})
    for task, best, message in (
        ("qnli", "entails", "qnli has no such label .did you mean 'entailment'?"),
        ("mnli", YES, "mnli has 3 labels, and rows that are compared have two"),
        ("sst2", "positive", "is for classifications of pairs of texts, not for sst2"),
        ("stsb", "1", "not for stsb"),
    ):
        with pytest.raises(UserError, match=message):
            best_rows.of_task(tasks.find(task), "pair_ranking", best)
    table = tasks.generic("classification", "question", "sentence", "label")
    with pytest.raises(UserError, match="--rank_pairs=yes: classification has no such label"):
        build(tmp_path, best_rows.of_task(table, "pair_ranking", "yes"))


def planned(*options):
    values = flags.FlagValues()
    build_task_shards.define_flags(values)
    values(["build_task_shards", *options])
    return build_task_shards.plan(values)


def test_the_flag(tmp_path):
    qnli(tmp_path / "train.tsv", TRAIN)
    qnli(tmp_path / "dev.tsv", DEV)
    given = [f"--input={tmp_path}", f"--rank_pairs={YES}"]
    task, _ = planned("--task=qnli", "--negatives=1", *given)
    assert (task.kind, task.best) == ("pair_ranking", YES)
    assert task.metrics == ("accuracy", "compared_accuracy")
    columns = ["--text_column=question", "--text_pair_column=sentence", "--label_column=label"]
    columns += ["--task=classification", f"--train_file={tmp_path}/train.tsv"]
    assert planned(*columns, *given)[0].kind == "pair_ranking"
    for more, message in (
        (["--metrics=f1"], "--metrics is not supported with --rank_pairs"),
        (["--unlabelled_train"], "--unlabelled_train is for"),
        (["--text_to_text"], "--text_to_text is not supported for classification"),
    ):
        with pytest.raises(UserError, match=message):
            planned(*columns, *given, *more)
    with pytest.raises(UserError, match="--negatives is for --task=ranking, --rank_pairs, --fill"):
        planned("--task=qnli", f"--input={tmp_path}", "--negatives=1")
