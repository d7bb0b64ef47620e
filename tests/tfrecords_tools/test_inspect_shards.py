"""Tests of tfrecords_tools.inspect_shards."""

import hashlib
import math
import os

import pytest
import tensorflow as tf

from official import tokenizers
from official.config import Segments
from official.shards import example_bytes, features, manifest, shard_folder
from official.shards.manifest import PretrainingSettings, PretrainingTotals
from official.tasks import Description
from official.utils.errors import UserError
from tests import commands, small, streams
from tfrecords_tools import inspect_shards
from tfrecords_tools.pretraining import tf_models

CONFIG = PretrainingSettings(Segments(format="pairs"))
TOTALS = PretrainingTotals(documents=2, cut_tokens=1234, skipped={"empty documents": 1})


def write_folder(folder, records, kind, names, task=None):
    """A shard folder of these records, and its tokenizer."""
    folder.mkdir()
    tokenizer = tokenizers.load(small.tokenizer_folder(folder.with_name("tokenizer")))
    tokenizer.save(folder / manifest.TOKENIZER_FOLDER)
    entries = []
    for i, record in enumerate(records):
        path = folder / f"train-{i:05d}-of-{len(records):05d}.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as writer:
            writer.write(record)
        entries.append(shard_folder.describe(path))
    read_back = manifest.Manifest(
        kind=kind,
        features=tuple(names),
        tokenizer=tokenizer.files,
        tokenizer_fingerprint=tokenizer.fingerprint,
        max_length=16,
        seed=3,
        shards=tuple(entries),
        task=task,
        **({} if kind == "task" else {"config": CONFIG, "totals": TOTALS}),
        length_histogram=(0,) * 8 + (1, 0, 1),
    )
    manifest.write(folder, read_back)
    return folder


def ids(*pieces):
    vocabulary = [*small.SPECIALS, *small.WORDS, *(f"##{word}" for word in small.WORDS)]
    return [vocabulary.index(piece) for piece in pieces]


def pairs():
    shown = ids("[CLS]", "ba", "[MASK]", "##be", "[SEP]", "da", "ku", "du", "[SEP]")
    first = {
        "token_ids": shown,
        "segment_lengths": [5, 4],
        "next_sentence_label": 1,
        "masked_positions": [2, 3, 6],
        "masked_ids": ids("bi", "##be", "##do"),
    }
    second = {**first, "next_sentence_label": 0, "masked_positions": [], "masked_ids": []}
    return [first, second]


def folder_of_pairs(path):
    return write_folder(path, features.serialize(pairs()), "pretraining", pairs()[0])


def test_summary(tmp_path):
    lines = list(inspect_shards.summary(folder_of_pairs(tmp_path / "made")))
    assert lines[0] == f"{tmp_path}/made: pretraining, 2 examples in 2 shards, 0.0 MB"
    assert lines[1].startswith("  features: token_ids, segment_lengths, next_sentence_label, mask")
    assert lines[2:4] == [
        "  made of: 2 documents, 1,234 cut tokens; left out: 1 empty documents",
        "  lengths: 8-9 50.0%, 10-10 50.0%",
    ]
    assert lines[4].startswith("  settings: seed=3 segments.format=pairs segments.relation=next_s")
    assert lines[4].endswith(" corruption=None format=examples split_sentences=False lexicons=[]")
    assert lines[5].startswith("  tokenizer: vocab.txt, tokenizer_config.json; fingerprint ")
    assert lines[6].startswith("  train-00000-of-00002.tfrecord: 1 records, ")
    assert len(lines) == 8


def test_many_shards_are_not_all_listed(tmp_path):
    records = features.serialize(pairs()) * 10
    lines = list(inspect_shards.summary(write_folder(tmp_path / "m", records, "pretraining", [])))
    assert lines[-1] == "  … and 12 more shards"


EXPECTED = [
    "example 0: 9 tokens, B is from another document\n"
    "  A: [CLS] ba {bi → [MASK]}{be} [SEP]\n"
    "  B: da{do → ku} du [SEP]",
    "example 1: 9 tokens, B follows A\n  A: [CLS] ba [MASK]be [SEP]\n  B: da ku du [SEP]",
]


def test_examples(tmp_path):
    folder = folder_of_pairs(tmp_path / "made")
    assert list(inspect_shards.examples(folder, 9)) == EXPECTED
    assert list(inspect_shards.examples(folder, 1)) == EXPECTED[:1]


def test_examples_in_order_or_swapped(tmp_path):
    example = {k: v for k, v in pairs()[1].items() if k != "next_sentence_label"}
    records = features.serialize([{**example, "sentence_order_label": label} for label in (0, 1)])
    shown = inspect_shards.examples(write_folder(tmp_path / "m", records, "pretraining", []), 2)
    assert [text.splitlines()[0] for text in shown] == [
        "example 0: 9 tokens, B follows A",
        "example 1: 9 tokens, A and B are swapped",
    ]


def test_examples_of_a_stream(tmp_path):
    token_ids = ids("ba", "da", "[SEP]", "ku", "[SEP]", "[CLS]")
    row = {"token_ids": token_ids, "segment_lengths": [3, 2, 1]}
    records = features.serialize({**row, "continues": i, "backward": 1 - i} for i in range(2))
    folder = write_folder(
        tmp_path / "s", records, "pretraining", ["token_ids", "continues", "backward"]
    )
    first, second = inspect_shards.examples(folder, 2)
    assert first.splitlines() == [
        "example 0: 6 tokens, begins anew, backward",
        "  A: ba da [SEP]", "  B: ku [SEP]", "  C: [CLS]",
    ]  # fmt: skip
    assert "example 1: 6 tokens, continues the batch before, forward" in second


def test_examples_of_a_stream_are_shown_step_by_step(tmp_path):
    """The shards are row by row."""
    documents, words = streams.marked()
    folder = streams.stream_folder(tmp_path / "s", streams.config(), documents, words, 4)
    shown = [text.splitlines()[0] for text in inspect_shards.examples(folder, 6)]
    goes_on = ["begins anew"] * 4 + ["continues the batch before"] * 2
    assert shown == [f"example {i}: 16 tokens, {goes_on[i]}" for i in range(6)]


def test_examples_of_several_parts(tmp_path):
    tokens = [*ids("[CLS]", "ba", "[SEP]", "da", "[SEP]"), *ids("[CLS]", "ku", "[SEP]")]
    example = {
        "token_ids": tokens,
        "segment_lengths": [3, 2, 3],
        "part_lengths": [5, 3],
        "sentence_order_label": [1, 0],
    }
    (shown,) = inspect_shards.examples(
        write_folder(tmp_path / "m", features.serialize([example]), "pretraining", []), 1
    )
    assert shown.splitlines() == [
        "example 0: 8 tokens, 2 parts, A and B are swapped, B follows A",
        "  1A: [CLS] ba [SEP]",
        "  1B: da [SEP]",
        "  2A: [CLS] ku [SEP]",
    ]


@pytest.mark.parametrize("format_", tf_models.FORMATS)
def test_examples_of_the_model_garden(tmp_path, format_):
    ids_name, _, segments_name = tf_models.FORMATS[format_][:3]
    records = []
    for example in pairs():
        a, b = example["segment_lengths"]
        count = len(example["masked_ids"])
        columns = {
            ids_name: example["token_ids"] + [0] * 3,
            "input_mask": [1] * (a + b) + [0] * 3,
            segments_name: [0] * a + [1] * b + [0] * 3,
            "masked_lm_positions": example["masked_positions"] + [0] * (4 - count),
            "masked_lm_ids": example["masked_ids"] + [0] * (4 - count),
            "next_sentence_labels": [example["next_sentence_label"]],
        }
        columns = {
            name: example_bytes.rows(tf.constant([v]).numpy()) for name, v in columns.items()
        }
        weights = tf.constant([[1.0] * count + [0.0] * (4 - count)])
        records += example_bytes.serialize(
            {**columns, "masked_lm_weights": example_bytes.rows(weights.numpy())}
        )
    folder = write_folder(tmp_path / "made", records, "tf_models", tf_models.FORMATS[format_])
    assert list(inspect_shards.examples(folder, 2)) == EXPECTED


def test_examples_of_a_task(tmp_path):
    tokens = ids("[CLS]", "ba", "##be", "[SEP]")
    base = {"token_ids": tokens, "segment_lengths": [4], "row": 12}
    task = Description("moods", "classification", labels=("bad", "good"))
    records = features.serialize([{**base, "label": 1}, {**base, "score": 2.5}, base])
    folder = write_folder(tmp_path / "made", records, "task", ["token_ids"], task)
    assert [text.splitlines()[0] for text in inspect_shards.examples(folder, 3)] == [
        "example 0: 4 tokens, label good, row 12",
        "example 1: 4 tokens, score 2.5, row 12",
        "example 2: 4 tokens, row 12",
    ]
    assert "  task: moods (classification) bad, good" in inspect_shards.summary(folder)


def _flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "has changed since it was written": _flip,
    "is empty": lambda path: path.write_bytes(b""),
    "is cut": lambda path: os.truncate(path, path.stat().st_size - 5),
    "is missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("message", DAMAGE)
def test_verify(tmp_path, message):
    folder = folder_of_pairs(tmp_path / "made")
    assert inspect_shards.verify(folder) == []
    DAMAGE[message](folder / "train-00001-of-00002.tfrecord")
    (problem,) = inspect_shards.verify(folder)
    assert f"train-00001-of-00002.tfrecord {message}" in problem


def test_verify_finds_a_cut_between_records(tmp_path):
    folder = tmp_path / "made"
    folder_of_pairs(folder)
    path = folder / "train-00000-of-00002.tfrecord"
    whole = path.read_bytes()
    path.write_bytes(whole + whole)
    record = manifest.read(folder)
    entries = (shard_folder.describe(path), *record.shards[1:])
    manifest.write(folder, manifest.Manifest(**{**vars(record), "shards": entries}))
    assert inspect_shards.verify(folder) == []
    path.write_bytes(whole)
    (problem,) = inspect_shards.verify(folder)
    assert f"{path} is cut: expected {2 * len(whole)} bytes, found {len(whole)}" in problem


def test_verify_looks_at_the_tokenizer(tmp_path):
    folder = folder_of_pairs(tmp_path / "made")
    (folder / "tokenizer/vocab.txt").write_text("other\n")
    (folder / "tokenizer/tokenizer_config.json").unlink()
    missing, changed = sorted(inspect_shards.verify(folder))
    assert missing == f"{folder}/tokenizer/tokenizer_config.json is missing"
    recorded = manifest.read(folder).tokenizer["vocab.txt"]
    changed_to = hashlib.sha256(b"other\n").hexdigest()
    assert changed == (
        f"{folder}/tokenizer/vocab.txt has changed since it was written: expected SHA-256 "
        f"{recorded}, found {changed_to}"
    )


def test_damaged_examples(tmp_path):
    folder = folder_of_pairs(tmp_path / "made")
    _flip(folder / "train-00000-of-00002.tfrecord")
    with pytest.raises(UserError, match="made: a shard is damaged or missing: --verify says which"):
        list(inspect_shards.examples(folder, 2))


def test_unigram_entropy_leaves_specials_out(tmp_path):
    examples = [*pairs(), {"token_ids": ids("[CLS]", "ba", "ba", "[SEP]"), "segment_lengths": [4]}]
    folder = write_folder(
        tmp_path / "made", features.serialize(examples), "pretraining", pairs()[0]
    )
    entropy, tokens = inspect_shards.unigram_entropy(folder)
    # ba four times; ##be, da, ku and du twice each
    assert tokens == 12
    assert entropy == pytest.approx(math.log(3) / 3 + 4 * math.log(6) / 6)


def test_examples_that_are_out_of_range_are_named(tmp_path):
    good, bad = pairs()
    bad = {**bad, "token_ids": [2, -5, *bad["token_ids"][2:]], "segment_lengths": [5, 5]}
    folder = write_folder(tmp_path / "made", features.serialize([good, bad]), "pretraining", good)
    assert inspect_shards.verify(folder) == []
    problems, count = inspect_shards.verify_examples(folder)
    assert count == 2
    assert problems == [
        f"{folder}/train-00001-of-00002.tfrecord: example 0: "
        "segment_lengths: the sum is not the length of token_ids; "
        "token_ids: a number is not from 0 to 124"
    ]


def test_records_that_are_no_examples_are_named(tmp_path):
    records = [features.serialize(pairs())[0], b"\xff\xff"]
    folder = write_folder(tmp_path / "made", records, "pretraining", pairs()[0])
    problems, _ = inspect_shards.verify_examples(folder)
    assert problems == [
        f"{folder}/train-00001-of-00002.tfrecord: example 0: an example cannot be parsed"
    ]
    first, second = inspect_shards.examples(folder, 2)
    assert first.startswith("example 0: 9 tokens")
    assert second == "example 1: cannot be shown: --verify says what is wrong with it"


def run(*arguments):
    return commands.run("tfrecords_tools.inspect_shards", *arguments)


@pytest.mark.slow
def test_command_line(tmp_path):
    folder = folder_of_pairs(tmp_path / "made")
    done = run(folder, "--verify", "--examples", "1")
    assert done.returncode == 0, done.stderr
    assert EXPECTED[0] in done.stdout and "example 1" not in done.stdout
    assert "\nverified: every file is as it was written\nverified: 2 examples, " in done.stdout
    _flip(folder / "train-00001-of-00002.tfrecord")
    done = run("--verify", "--examples=0", folder)
    assert done.returncode == 1
    assert "train-00001-of-00002.tfrecord has changed since it was written" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: name one shard folder"),
        (["a", "b"], "error: name one shard folder"),
        (["/nowhere"], "error: /nowhere: no such folder"),
    ],
)
def test_command_line_errors(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr
