"""Tests of the shards of candidates for pronouns: WNLI as distributed."""

import pytest

from official import tasks, tokenizers
from official.shards import manifest
from official.shards.side_texts import ComparedRow, read_compared
from official.tasks import best_rows
from official.utils.errors import UserError
from tests import small
from tests.tfrecords_tools.tasks.test_pair_ranking import planned
from tests.tfrecords_tools.tasks.test_ranking import examples, spelled
from tfrecords_tools.tasks import builder as task_builder

JUG = "i filled the cup from the jug until it was full ."
HAIR = "the drain is full of hair . it must go ."
DOG = "a dog saw a cat and it ran ."
WORDS = sorted({*f"{JUG} {HAIR} {DOG}".split(), "big"})
YES, NO = "entailment", "not_entailment"
TRAIN = [
    (JUG, "the cup was full .", 1), (JUG, "the jug was full .", 0), (HAIR, "hair must go .", 1),
    (JUG, "it is full .", 1), (JUG, "the drain was full .", 0), (DOG, "the cat ran .", 0),
]  # fmt: skip
DEV = [
    (HAIR, "drain must go .", 0), (DOG, "dog ran .", 1), (DOG, "cat , dog .", 1),
    (DOG, "the cat ran .", 0), (JUG, "the jug was full .", 0),
]  # fmt: skip


def wnli(path, rows):
    """A file of WNLI; rows without a label are those of a test file."""
    header = ["index", "sentence1", "sentence2", *(["label"] if len(rows[0]) == 3 else [])]
    lines = [header, *([number, *row] for number, row in enumerate(rows))]
    path.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
    return path


def build(folder, max_length=24, files=None, output="out", **how):
    """The shards of WNLI, in `folder` / "out", and their manifest."""
    files = files or {
        "train": wnli(folder / "train.tsv", TRAIN),
        "validation": wnli(folder / "dev.tsv", DEV),
        "test": wnli(folder / "test.tsv", [row[:2] for row in DEV]),
    }
    return task_builder.build(
        best_rows.of_task(tasks.find("wnli"), "pronoun", YES),
        files,
        tokenizers.load(small.tokenizer_folder(folder / "tokenizer", WORDS)),
        folder / output,
        max_length,
        **{"report": lambda line: None, **how},
    )


def sequences(rows, number, tokenizer):
    """The sequences of an example, and the tokens that their masks hide."""
    ids, hidden = rows["token_ids"][number], rows["candidate_ids"][number]
    start, result = 0, []
    for length in rows["sequence_lengths"][number]:
        end = start + length
        pairs = [(ids[i], hidden[i]) for i in range(start, end) if hidden[i] >= 0]
        assert {masked for masked, _ in pairs} == {tokenizer.mask_id}
        assert ids[start:end].count(tokenizer.mask_id) == len(pairs)
        tokens = [token for _, token in pairs]
        result.append((spelled(ids[start:end], tokenizer), spelled(tokens, tokenizer)))
        start = end
    return result


def test_candidates_become_masks(tmp_path):
    lines = []
    built = build(tmp_path, report=lines.append)
    tokenizer = tokenizers.load(tmp_path / "out" / "tokenizer")
    masks = "[CLS] i filled the cup from the jug until {} was full . [SEP]".format("[MASK] [MASK]")

    rows = examples(tmp_path / "out", "train", built)
    made = [sequences(rows, i, tokenizer) for i in range(2)]
    assert {pair[0] for pair in made} == {(masks, "the cup")}
    assert {pair[1] for pair in made} == {(masks, "the jug"), (masks, "the drain")}
    left_out = {
        "queries without a candidate that is not relevant": 1,  # the drain
        "queries without a relevant document": 1,  # the dog
    }
    assert built.totals.splits["train"].left_out == left_out
    assert "1 rows without a pronoun that is found" in lines[0]

    # Candidates that other files name come after the rows; the drain has hair in the train file.
    rows = examples(tmp_path / "out", "validation", built)
    assert rows["row"] == list(range(7))
    ran, go = "[CLS] a dog saw a cat and {} ran . [SEP]", "of hair . [MASK] must go . [SEP]"
    expected = [
        (f"[CLS] the drain is full {go}", "drain"), (ran.format("[MASK]"), "dog"),
        (ran.format("[MASK] [MASK]"), "the cat"), (masks, "the jug"),
        (f"[CLS] the drain is full {go}", "hair"), (masks, "the cup"), (masks, "the drain"),
    ]  # fmt: skip
    assert [sequences(rows, i, tokenizer) for i in range(7)] == [[each] for each in expected]
    groups = [0, 1, None, 1, 2]
    more = [ComparedRow(None, 0, None), ComparedRow(None, 2, None), ComparedRow(None, 2, None)]
    for split, labels in (("validation", [row[2] == 1 for row in DEV]), ("test", [None] * 5)):
        assert read_compared(tmp_path / "out", split, built) == [
            *map(ComparedRow, range(5), groups, labels), *more
        ]  # fmt: skip
    assert built.task.max_candidate_length == 2
    assert built.task.sequences == {"train": 2, "validation": 1, "test": 1}
    assert "3 candidates of other files" in lines[1] and built.task.unlabelled == ("test",)
    assert built == manifest.read(tmp_path / "out")


def test_what_cannot_be_used(tmp_path):
    train = wnli(tmp_path / "one.tsv", TRAIN)
    with pytest.raises(UserError, match=f"{train}, row 0 .from 0.: the sentence has 13 tokens"):
        build(tmp_path, max_length=14, files={"train": train})
    short = build(tmp_path, 14, {"validation": wnli(tmp_path / "two.tsv", DEV)}, skip_bad_rows=True)
    assert short.totals.skipped == {"sentence too long": 1}
    compared = read_compared(tmp_path / "out", "validation", short)
    assert [each.row for each in compared] == [0, 1, 2, 3]  # no candidates that others name
    none = wnli(tmp_path / "none.tsv", TRAIN[2:4])
    with pytest.raises(UserError, match="no pronoun with candidates: 1 queries without a candid"):
        build(tmp_path, files={"train": none}, output="none")
    bad = wnli(tmp_path / "bad.tsv", [*TRAIN, (JUG, "", 1)])
    with pytest.raises(UserError, match=f"{bad}, line 8: column 'sentence2' is empty"):
        build(tmp_path, files={"train": bad}, output="bad")


def test_the_flag(tmp_path):
    wnli(tmp_path / "train.tsv", TRAIN)
    wnli(tmp_path / "dev.tsv", DEV)
    given = [f"--input={tmp_path}", "--task=wnli"]
    task, _ = planned(f"--fill_pronouns={YES}", *given)
    assert (task.kind, task.best, task.name) == ("pronoun", YES, "wnli")
    with pytest.raises(UserError, match="--fill_pronouns=right: wnli has no such label"):
        planned("--fill_pronouns=right", *given)
    with pytest.raises(UserError, match="--rank_pairs|--fill_pronouns is for classifications"):
        planned(f"--fill_pronouns={YES}", f"--rank_pairs={YES}", *given)
