"""B examples of a batch, T tokens with padding."""

import dataclasses
import json
import math

import numpy as np
import pytest
import tensorflow as tf

from official import data, tokenizers
from official.config import Config, Recipe, Segments
from official.config.corruptions import TokenMasksConfig
from official.config.encoders import TransformerConfig, TransformerXLConfig
from official.config.heads import ClassificationConfig
from official.config.objectives import MaskedLMConfig, SentencePairConfig
from official.corruption import token_masks
from official.corruption.vocabulary import Vocabulary
from official.shards import features, manifest, shard_folder, stored_arrays
from official.shards.manifest import PretrainingSettings
from official.tasks import Description
from official.utils import seeding
from official.utils.errors import UserError

V, PAD, CLS, SEP, MASK = 200, 1, 2, 3, 4
T = 16


def write_tokenizer(folder, last="zz"):
    """A WordPiece vocabulary of V pieces; every third one continues a word."""
    words = [f"##x{i}" if i % 3 == 0 else f"x{i}" for i in range(5, V - 1)]
    folder.mkdir(parents=True, exist_ok=True)
    pieces = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", *words, last]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return tokenizers.load(folder)


def make_examples(count, seed=0, **more):
    """Examples [CLS] A [SEP] B [SEP] of 5 to T tokens; label and row are their numbers."""
    rng = np.random.default_rng(seed)
    result = []
    for i in range(count):
        a, b = rng.integers(1, (T - 3) // 2 + 1, 2)
        ids = [CLS, *rng.integers(5, V, a), SEP, *rng.integers(5, V, b), SEP]
        result.append(
            {"token_ids": ids, "segment_lengths": [a + 2, b + 1], "row": i}
            | {name: value(i) for name, value in more.items()}
        )
    return result


def write(folder, examples, shards=3, split="train", kind="pretraining", **more):
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for part, numbers in enumerate(np.array_split(np.arange(len(examples)), shards)):
        path = folder / f"{split}-{part:05d}-of-{shards:05d}.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in features.serialize(examples[i] for i in numbers):
                writer.write(record)
        entries.append(shard_folder.describe(path, split))
    tokenizer = write_tokenizer(folder / "tokenizer")
    manifest.write(
        folder,
        manifest.Manifest(
            kind=kind,
            features=tuple(examples[0]),
            tokenizer=tokenizer.files,
            tokenizer_fingerprint=tokenizer.fingerprint,
            max_length=T,
            seed=0,
            shards=tuple(entries),
            **more,
        ),
    )
    return folder


def make_config(corruption=None, segments=None, **recipe):
    return Config(
        name="test",
        seed=3,
        segments=segments,
        corruption=corruption,
        recipe=Recipe(**({"steps": 1, "batch_size": 4} | recipe)),
    )


def arrays(batches):
    return [{name: value.numpy() for name, value in batch.items()} for batch in batches]


def assert_same(actual, expected):
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)


MASKS = TokenMasksConfig(max_predictions=3, mask_rate=0.3)


def test_every_field_of_a_pass_in_order(tmp_path):
    examples = make_examples(11, next_sentence_label=lambda i: i % 2, score=lambda i: i / 4)
    source = data.ShardDataset(write(tmp_path, examples), make_config())
    assert source.num_examples == 11 and source.max_length == T
    batches = arrays(source.dataset(4))
    assert [len(b["row"]) for b in batches] == [4, 4, 4]
    rows = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
    assert set(rows) == source.fields
    for i, example in enumerate(examples):
        ids = example["token_ids"]
        fill = T - len(ids)
        assert rows["token_ids"][i].tolist() == ids + [PAD] * fill
        assert rows["padding_mask"][i].tolist() == [True] * len(ids) + [False] * fill
        a, b = example["segment_lengths"]
        assert rows["segment_ids"][i].tolist() == [0] * a + [1] * b + [0] * fill
        assert rows["next_sentence_label"][i] == i % 2
        assert rows["score"][i] == i / 4
    assert rows["example_weights"].tolist() == [1.0] * 11 + [0.0]
    assert rows["token_ids"][11].tolist() == rows["token_ids"][8].tolist()
    kinds = {name: value.dtype for name, value in rows.items()}
    assert kinds == {
        "token_ids": np.int32, "segment_ids": np.int32, "padding_mask": bool, "row": np.int32,
        "example_weights": np.float32, "next_sentence_label": np.int32, "score": np.float32,
    }  # fmt: skip


def test_shapes_are_static(tmp_path):
    source = data.ShardDataset(write(tmp_path, make_examples(9)), make_config(MASKS), training=True)
    spec = source.dataset(8, workers=2, replicas_per_worker=2).element_spec
    assert {name: tuple(value.shape) for name, value in spec.items()} == {
        "token_ids": (2, T), "segment_ids": (2, T), "padding_mask": (2, T), "row": (2,),
        "example_weights": (2,), "masked_positions": (2, 3), "masked_ids": (2, 3),
        "masked_weights": (2, 3),
    }  # fmt: skip


def test_phrases_reach_the_corruption(tmp_path):
    masks = dataclasses.replace(MASKS, unit="phrase", mask_prob=1.0, random_prob=0.0)
    # The last three tokens but one belong together.
    examples = [
        {**e, "phrase_inner": [len(e["token_ids"]) - 3, len(e["token_ids"]) - 2]}
        for e in make_examples(200)
        if e["segment_lengths"][1] > 4
    ]
    source = data.ShardDataset(write(tmp_path, examples), make_config(masks))
    assert "phrase_inner" not in source.fields
    wholes = 0
    for batch in arrays(source.dataset(10)):
        assert source.fields == batch.keys()
        for row, real in zip(batch["token_ids"], batch["padding_mask"], strict=True):
            last = real.sum() - 1
            phrase = row[last - 3 : last] == MASK
            assert phrase.all() or not phrase.any()
            wholes += phrase.all()
    assert wholes > 5
    with pytest.raises(UserError, match="has no entity_inner, .* lexicon .*--entities=FILE"):
        data.ShardDataset(tmp_path, make_config(dataclasses.replace(masks, unit="entity")))


def test_phrases_reach_the_corruption_of_parts(tmp_path):
    masks = dataclasses.replace(MASKS, unit="phrase", mask_rate=0.4)
    masks = dataclasses.replace(masks, mask_prob=1.0, random_prob=0.0)
    alone = [
        e
        for e in make_examples(3000)
        if e["segment_lengths"][1] > 4 and len(e["token_ids"]) <= T // 2
    ]
    rows = []
    for a, b in zip(alone[::2], alone[1::2], strict=False):
        ids = [a["token_ids"], b["token_ids"]]
        ends = [len(ids[0]), len(ids[0]) + len(ids[1])]
        rows.append(
            {
                "token_ids": [*ids[0], *ids[1]],
                "segment_lengths": [*a["segment_lengths"], *b["segment_lengths"]],
                "part_lengths": [len(ids[0]), len(ids[1])],
                "phrase_inner": [end - n for end in ends for n in (3, 2)],
            }
        )
    shared = PretrainingSettings(Segments(packing=2, max_length=T))
    source = data.ShardDataset(write(tmp_path, rows, config=shared), make_config(masks))
    assert "phrase_inner" not in source.fields
    wholes = np.zeros(2, int)
    for batch in arrays(source.dataset(5)):
        assert source.fields == batch.keys()
        for row in np.flatnonzero(batch["example_weights"]):
            for part in range(2):
                last = np.flatnonzero(batch["part_ids"][row] == part)[-1]
                phrase = batch["token_ids"][row, last - 3 : last] == MASK
                assert phrase.all() or not phrase.any()
                wholes[part] += phrase.all()
    assert (wholes > 3).all()


def test_counts_of_the_corpus_reach_the_corruption(tmp_path):
    config = make_config(TokenMasksConfig(random_tokens="unigram", mask_prob=0.0, random_prob=1.0))
    for name, token in (("a", 20), ("b", 30)):
        folder = write(tmp_path / name, make_examples(40))
        counts = np.bincount([token], minlength=V)
        digest = stored_arrays.write_token_counts(folder, counts)
        record = manifest.read(folder)
        manifest.write(folder, dataclasses.replace(record, token_counts=digest))
    source = data.ShardDataset([tmp_path / "a", tmp_path / "b"], config)
    (batch,) = arrays(source.dataset(80))
    drawn = batch["token_ids"][np.arange(80)[:, None], batch["masked_positions"]][
        batch["masked_weights"] > 0
    ]
    assert set(drawn) == {20, 30}
    without = write(tmp_path / "c", make_examples(4))
    with pytest.raises(UserError, match="random_tokens: unigram draws tokens as often as the corp"):
        data.ShardDataset(without, config).dataset(4)


def test_static_spans_have_their_boundaries(tmp_path):
    spans = TokenMasksConfig(unit="span", count="up", max_span=2, max_predictions=3)
    examples = [
        {
            "token_ids": [CLS, 9, MASK, MASK, 7, SEP, 8, MASK, SEP],
            "segment_lengths": [6, 3],
            "row": 0,
            "masked_positions": [2, 3, 7],
            "masked_ids": [5, 6, 7],
        }
    ]
    result = PretrainingSettings(corruption=TokenMasksConfig(max_predictions=3))
    folder = write(tmp_path, examples, shards=1, config=result)
    config = make_config(spans, Segments(static_masks=True))
    source = data.ShardDataset(folder, config)
    (batch,) = arrays(source.dataset(1))
    assert source.fields == batch.keys()
    assert batch["span_left"].tolist() == [[1, 1, 0]]
    assert batch["span_right"].tolist() == [[4, 4, 0]]
    assert batch["span_weights"].tolist() == [[1, 1, 0]]


@pytest.mark.slow
def test_the_seed_changes_order_and_masks(tmp_path):
    folder = write(tmp_path, make_examples(30))
    config = make_config(MASKS)
    a, b = (
        arrays(data.ShardDataset(folder, c, training=True).dataset(30).take(1))[0]
        for c in (config, dataclasses.replace(config, seed=4))
    )
    assert (a["row"] != b["row"]).mean() > 0.8
    order_a, order_b = a["row"].argsort(), b["row"].argsort()
    assert (a["masked_positions"][order_a] != b["masked_positions"][order_b]).any(
        axis=1
    ).mean() > 0.5


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("buckets", [(), (8, 11)])
def test_a_resumed_run_gets_the_batches_it_would_have_got(tmp_path, buckets):
    folder = write(tmp_path, make_examples(150), shards=4)
    config = make_config(MASKS, bucket_lengths=buckets)
    source = data.ShardDataset(folder, config, training=True)
    whole = arrays(source.dataset(12).take(50))  # four epochs
    for step in (6, 12, 13, 37):  # 12.5 batches are an epoch, 5.3 a block
        anew = data.ShardDataset(folder, config, training=True)
        rest = arrays(anew.dataset(12, start_step=step).take(13))
        assert_same(rest, whole[step : step + 13])  # more than an epoch


@pytest.mark.slow
@pytest.mark.parametrize(
    "training, buckets, workers, per_worker",
    [
        (True, (), 1, 4),
        (True, (), 4, 1),
        (True, (8, 11), 2, 2),
        (False, (), 2, 2),
        (False, (8, 11), 1, 2),
    ],
)
def test_workers_and_replicas_share_out_the_same_batches(
    tmp_path, training, buckets, workers, per_worker
):
    folder = write(tmp_path, make_examples(50))
    config = make_config(MASKS, bucket_lengths=buckets)
    source = data.ShardDataset(folder, config, training=training)
    whole = arrays(source.dataset(8, start_step=1).take(10))
    parts = [
        arrays(
            source.dataset(
                8, start_step=1, workers=workers, worker=w, replicas_per_worker=per_worker
            ).take(10 * per_worker)
        )
        for w in range(workers)
    ]
    joined = [
        {
            name: np.concatenate(
                [
                    parts[w][step * per_worker + i][name]
                    for w in range(workers)
                    for i in range(per_worker)
                ]
            )
            for name in batch
        }
        for step, batch in enumerate(whole)
    ]
    assert all(len(part) == len(whole) * per_worker for part in parts)
    assert_same(joined, whole)


def test_masks_are_those_of_the_example_and_epoch(tmp_path):
    examples = make_examples(60)
    folder = write(tmp_path, examples, shards=5)
    source = data.ShardDataset(folder, make_config(MASKS), training=True)
    vocabulary = Vocabulary.from_tokenizer(source.tokenizer)
    for step, batch in enumerate(arrays(source.dataset(10).take(12))):
        rows = batch["row"]
        clean = {
            "token_ids": np.full((10, T), PAD, np.int32),
            "padding_mask": batch["padding_mask"],
        }
        for place, row in enumerate(rows):
            ids = examples[row]["token_ids"]
            clean["token_ids"][place, : len(ids)] = ids
        seeds = seeding.row_seeds(3, step // 6, tf.constant(rows, tf.int64))
        expected = token_masks.corrupt(
            MASKS, vocabulary, {k: tf.constant(v) for k, v in clean.items()}, seeds
        )
        for name in ("token_ids", *MASKS.gives()):
            np.testing.assert_array_equal(batch[name], expected[name])
        assert batch["masked_weights"].sum() > 10


@pytest.mark.slow
def test_masks_of_an_evaluation_are_always_the_same(tmp_path):
    folder = write(tmp_path, make_examples(30))
    config = make_config(MASKS)
    (batch,) = arrays(data.ShardDataset(folder, config).dataset(30))
    first = next(iter(arrays(data.ShardDataset(folder, config, training=True).dataset(30).take(1))))
    order = first["row"].argsort()
    for name in batch:
        np.testing.assert_array_equal(first[name][order], batch[name])


def test_filler_rows_have_no_weight_anywhere(tmp_path):
    source = data.ShardDataset(write(tmp_path, make_examples(5)), make_config(MASKS))
    batches = arrays(source.dataset(4, workers=2, worker=1))
    assert [b["example_weights"].tolist() for b in batches] == [[1, 1], [0, 0]]
    assert batches[1]["masked_weights"].sum() == 0
    assert batches[0]["masked_weights"].sum() > 0


def test_buckets(tmp_path):
    examples = make_examples(101)
    folder = write(tmp_path, examples)
    source = data.ShardDataset(folder, make_config(bucket_lengths=(8, 11, 64)))
    batches = arrays(source.dataset(8))
    seen = []
    for batch in batches:
        places = batch["token_ids"].shape[1]
        lengths = batch["padding_mask"].sum(axis=1)
        shorter = {8: 0, 11: 8, T: 11}[places]  # 64 is longer than any example
        assert ((lengths > shorter) & (lengths <= places)).all()
        assert len(lengths) == 8
        for row, ids, weight in zip(
            batch["row"], batch["token_ids"], batch["example_weights"], strict=True
        ):
            if weight:
                seen.append(row)
                assert ids[ids != PAD].tolist() == examples[row]["token_ids"]
    assert sorted(seen) == list(range(101))
    assert {b["token_ids"].shape[1] for b in batches} == {8, 11, T}


@pytest.mark.slow
def test_buckets_in_training_leave_nothing_out(tmp_path):
    folder = write(tmp_path, make_examples(60))
    source = data.ShardDataset(folder, make_config(bucket_lengths=(8, 11)), training=True)
    batches = arrays(source.dataset(4).take(75))  # five epochs' worth
    rows = np.concatenate([b["row"] for b in batches])
    assert all(b["example_weights"].all() for b in batches)
    counts = np.bincount(rows, minlength=60)
    assert counts.min() >= 4 and counts.max() <= 6


def test_static_masks_come_from_the_shard(tmp_path):
    examples = make_examples(
        6,
        masked_positions=lambda i: list(range(1, 1 + i % 4)),
        masked_ids=lambda i: [100 + i] * (i % 4),
    )
    folder = write(
        tmp_path,
        examples,
        config=PretrainingSettings(corruption=TokenMasksConfig(max_predictions=3)),
    )
    config = make_config(MASKS, Segments(static_masks=True))
    (batch,) = arrays(data.ShardDataset(folder, config).dataset(6))
    for i, example in enumerate(examples):
        n = i % 4
        assert batch["masked_positions"][i].tolist() == [1, 2, 3][:n] + [0] * (3 - n)
        assert batch["masked_ids"][i].tolist() == [100 + i] * n + [0] * (3 - n)
        assert batch["masked_weights"][i].tolist() == [1.0] * n + [0.0] * (3 - n)
        ids = example["token_ids"]
        assert batch["token_ids"][i, : len(ids)].tolist() == ids


def test_blocks_know_the_token_behind_them(tmp_path):
    """Rows of one text, short or not, and the fields that a causal LM goes by."""
    examples = [
        {**example, "next_id": 5 + i, "segment_lengths": [len(example["token_ids"])]}
        for i, example in enumerate(make_examples(6))
    ]
    blocks, pairs = (PretrainingSettings(Segments(format=name)) for name in ("blocks", "pairs"))
    folder = write(tmp_path / "blocks", examples, config=blocks)
    config = make_config(segments=Segments(format="blocks"))
    source = data.ShardDataset(folder, config)
    assert source.fields >= {"next_id", "token_ids", "padding_mask"}
    (batch,) = arrays(source.dataset(6))
    assert batch["next_id"].tolist() == list(range(5, 11)) and batch["next_id"].dtype == np.int32
    assert not batch["segment_ids"].any()
    lengths = [len(example["token_ids"]) for example in examples]
    assert batch["padding_mask"].sum(axis=1).tolist() == lengths
    with pytest.raises(
        UserError, match="blocks has shards of segments.format: blocks, and the config says pairs:"
    ):
        data.ShardDataset(folder, make_config(segments=Segments()))
    folder = write(tmp_path / "pairs", make_examples(6), config=pairs)
    with pytest.raises(
        UserError,
        match="has shards of segments.format: pairs, and the config says blocks: make the",
    ):
        data.ShardDataset(folder, config)


@pytest.mark.slow
def test_several_folders_are_counted_through(tmp_path):
    a = write(tmp_path / "a", make_examples(7, seed=1), shards=2)
    b = write(tmp_path / "b", make_examples(5, seed=2), shards=1)
    source = data.ShardDataset([a, b], make_config(MASKS))
    assert source.num_examples == 12
    (batch,) = arrays(source.dataset(12))
    assert batch["row"].tolist() == [*range(7), *range(5)]
    training = data.ShardDataset([a, b], make_config(MASKS), training=True)
    (first,) = arrays(training.dataset(12).take(1))
    # The same masks, so the same numbers, in another order.
    key = lambda rows, i: (*rows["token_ids"][i], *rows["masked_ids"][i])  # noqa: E731
    assert sorted(key(first, i) for i in range(12)) == sorted(key(batch, i) for i in range(12))


@pytest.mark.slow
@pytest.mark.parametrize("buckets", [(), pytest.param((8, 11), marks=pytest.mark.long)])
def test_folders_with_shares(tmp_path, buckets):
    a = write(tmp_path / "a", make_examples(70, seed=1), shards=4)
    b = write(tmp_path / "b", make_examples(50, seed=2), shards=4)
    config = make_config(MASKS, bucket_lengths=buckets, steps=15)
    source = data.ShardDataset([a, b], config, training=True, shares=(0.75, 0.25))
    assert source.num_examples == 120
    plain = data.ShardDataset([a, b], config, training=True)
    equal = data.ShardDataset([a, b], config, training=True, shares=(1, 1))
    assert len({each.fingerprint for each in (source, plain, equal)}) == 3
    batches = arrays(source.dataset(8).take(15))
    ours = {tuple(example["token_ids"]) for example in make_examples(50, seed=2)}
    originals = [_originals(batch) for batch in batches]
    shares = [sum(row in ours for row in rows) for rows in originals]
    assert sum(shares) == 30
    if not buckets:
        assert shares == [2] * 15
    halves = [
        arrays(source.dataset(8, start_step=7, workers=2, worker=w).take(8)) for w in range(2)
    ]
    for batch, *parts in zip(batches[7:], *halves, strict=True):
        assert_same([{n: np.concatenate([p[n] for p in parts]) for n in batch}], [batch])


def _originals(batch):
    """The tokens of each row as they are stored."""
    ids = batch["token_ids"].copy()
    for row, positions in enumerate(batch["masked_positions"]):
        real = batch["masked_weights"][row] > 0
        ids[row, positions[real]] = batch["masked_ids"][row][real]
    return [tuple(row[row != PAD].tolist()) for row in ids]


def test_shares_that_cannot_be_given(tmp_path):
    a = write(tmp_path / "a", make_examples(7))
    description = Description("rte", "classification")
    task = write(tmp_path / "task", make_examples(7), kind="task", task=description)
    for folders, shares, training, message in (
        ([a, a], (1, 0), True, "shares 1, 0: all must exceed 0"),
        ([a, a], (1, math.nan), True, "shares 1, nan: all must exceed 0"),
        ([a, a], (1, 1), False, "shares are not supported outside training: remove them"),
        (
            [task],
            (1,),
            True,
            "folders of one task cannot have shares of a batch",
        ),
    ):
        with pytest.raises(UserError, match=message):
            data.ShardDataset(folders, make_config(), training=training, shares=shares)


def test_splits(tmp_path):
    write(tmp_path, make_examples(4), split="test")
    with pytest.raises(UserError, match="has no examples of a train split; it has test"):
        data.ShardDataset(tmp_path, make_config())
    assert data.ShardDataset(tmp_path, make_config(), "test").num_examples == 4


def test_shards_of_pretraining_have_no_task(tmp_path):
    """Prediction asks for the task: `--mode=predict` on such shards ends with a message."""
    source = data.ShardDataset(write(tmp_path, make_examples(4)), make_config())
    assert source.task_name is None
    with pytest.raises(UserError, match=f"{tmp_path}: not the shards of a task; build_task_shards"):
        assert source.task


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(), (8, 12)])
def test_a_task_is_laid_out_as_the_encoder_reads_it(tmp_path, lengths):
    examples = make_examples(11)
    encoder = TransformerXLConfig(vocab_size=V)
    config = dataclasses.replace(make_config(bucket_lengths=lengths), encoder=encoder)
    source = data.ShardDataset(write(tmp_path / "task", examples, kind="task"), config)
    batches = arrays(source.dataset(4))
    actual = []
    for batch in batches:
        width = batch["token_ids"].shape[1]
        assert width in (*lengths, T)
        for row in np.flatnonzero(batch["example_weights"]):
            number = batch["row"][row]
            actual.append(number)
            ids = examples[number]["token_ids"]
            a, b = examples[number]["segment_lengths"]
            fill = width - len(ids)
            assert batch["token_ids"][row].tolist() == [PAD] * fill + ids[1:] + [CLS]
            segments = [4] * fill + [0] * (a - 1) + [1] * b + [2]
            assert batch["segment_ids"][row].tolist() == segments
            assert batch["padding_mask"][row].tolist() == [False] * fill + [True] * len(ids)
    assert sorted(actual) == list(range(11))
    assert len({batch["token_ids"].shape[1] for batch in batches}) == len(lengths) + 1
    # Others read the same shards as they are, and so does this one what is no task.
    first = dataclasses.replace(
        config, encoder=dataclasses.replace(encoder, pooled_position="first")
    )
    plain = arrays(
        data.ShardDataset(tmp_path / "task", make_config(bucket_lengths=lengths)).dataset(4)
    )
    assert_same(arrays(data.ShardDataset(tmp_path / "task", first).dataset(4)), plain)
    write(tmp_path / "pretraining", examples)
    assert_same(arrays(data.ShardDataset(tmp_path / "pretraining", config).dataset(4)), plain)


def test_a_laid_out_batch_of_training_has_static_shapes(tmp_path):
    config = dataclasses.replace(make_config(), encoder=TransformerXLConfig(vocab_size=V))
    folder = write(tmp_path, make_examples(9), kind="task")
    dataset = data.ShardDataset(folder, config, training=True).dataset(4)
    for name in ("token_ids", "segment_ids", "padding_mask"):
        assert dataset.element_spec[name].shape == (4, T)


def test_an_unlabelled_split_has_no_label(tmp_path):
    folder = write(
        tmp_path,
        make_examples(4),
        split="test",
        kind="task",
        task=Description("rte", "classification", unlabelled=("test",)),
    )
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    content["features"].append("label")
    del content["checksum"]
    path.write_text(json.dumps(content))
    source = data.ShardDataset(folder, make_config(), "test")
    (batch,) = arrays(source.dataset(4))
    assert "label" not in batch and batch["row"].tolist() == [0, 1, 2, 3]
    config = dataclasses.replace(
        make_config(),
        objectives=(ClassificationConfig(labels=("a", "b")),),
        encoder=TransformerConfig(vocab_size=V, max_positions=T),
    )
    source.check(config, predicting=True)
    with pytest.raises(UserError, match="the test split does not give label, which classification"):
        source.check(config)


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[12] ^= 1  # the first byte of the first record
    path.write_bytes(content)


def test_every_byte_is_compared_where_it_is_asked_for(tmp_path):
    folder = write(tmp_path, make_examples(4), shards=2)
    flip_a_bit(folder / "train-00001-of-00002.tfrecord")
    message = "train-00001-of-00002.tfrecord has changed .*: copy the folder again"
    for options in ({}, {"verify": True}, {"training": True, "verify": True}):
        with pytest.raises(UserError, match=message):
            data.ShardDataset(folder, make_config(), **options)
    for options in ({"training": True}, {"verify": False}):
        source = data.ShardDataset(folder, make_config(), **options)
        with pytest.raises(tf.errors.DataLossError):
            list(source.dataset(4).take(1))


class TestRefused:
    def test_no_manifest(self, tmp_path):
        with pytest.raises(UserError, match="manifest.json is missing"):
            data.ShardDataset(tmp_path, make_config())

    def test_unknown_version(self, tmp_path):
        folder = write(tmp_path, make_examples(2))
        path = folder / "manifest.json"
        path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 9'))
        with pytest.raises(UserError, match="format_version 9, this program reads 1"):
            data.ShardDataset(folder, make_config())

    def test_shards_for_others(self, tmp_path):
        folder = write(tmp_path, make_examples(2), kind="tf_models")
        with pytest.raises(UserError, match="written with --format=tf_models, for other programs"):
            data.ShardDataset(folder, make_config())

    @pytest.mark.parametrize(
        "damage, message",
        [
            (lambda b: b"", r"is empty: expected \d+ bytes, found 0"),
            (lambda b: b[: 12 + 4 + int.from_bytes(b[:8], "little")], r"is cut: expected \d+"),
            (lambda b: b[:20] + bytes([b[20] ^ 1]) + b[21:], "has changed since it was written"),
        ],
    )
    def test_damaged_shard(self, tmp_path, damage, message):
        folder = write(tmp_path, make_examples(9))
        path = folder / "train-00001-of-00003.tfrecord"
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(UserError, match=message) as error:
            data.ShardDataset(folder, make_config())
        assert str(path) in str(error.value)
        assert "copy the folder again" in str(error.value)

    def test_missing_shard(self, tmp_path):
        folder = write(tmp_path, make_examples(9))
        (folder / "train-00002-of-00003.tfrecord").unlink()
        with pytest.raises(UserError, match=r"train-00002-of-00003.tfrecord is missing"):
            data.ShardDataset(folder, make_config())

    def test_tokenizer_that_was_changed(self, tmp_path):
        folder = write(tmp_path, make_examples(2))
        was = manifest.read(folder).tokenizer_fingerprint[:16]
        now = write_tokenizer(folder / "tokenizer", last="other").fingerprint[:16]
        with pytest.raises(UserError) as error:
            data.ShardDataset(folder, make_config())
        message = f"{folder / 'tokenizer'} is another tokenizer ({now}…) than the one"
        assert message in str(error.value)
        assert f"the shards of {folder} were made with ({was}…)" in str(error.value)

    def test_tokenizer_of_another_model(self, tmp_path):
        source = data.ShardDataset(write(tmp_path / "shards", make_examples(2)), make_config())
        theirs = tmp_path / "model"
        write_tokenizer(theirs)
        source.check_tokenizer(theirs)
        other = write_tokenizer(theirs, last="other")
        with pytest.raises(UserError) as error:
            source.check_tokenizer(theirs)
        for part in (tmp_path / "shards", source.tokenizer.fingerprint[:16], theirs,
                     other.fingerprint[:16], f"--tokenizer={theirs}"):  # fmt: skip
            assert str(part) in str(error.value)

    def test_folders_that_do_not_fit_together(self, tmp_path):
        a = write(tmp_path / "a", make_examples(2))
        b = write(tmp_path / "b", make_examples(2, label=lambda i: 0))
        with pytest.raises(UserError, match=r"a and .*b cannot be read together: features"):
            data.ShardDataset([a, b], make_config())
        c = write(
            tmp_path / "c",
            make_examples(2),
            kind="task",
            task=Description("rte", "classification", labels=("x", "y")),
        )
        with pytest.raises(
            UserError, match=r"labels None in the first, \['x', 'y'\] in the second"
        ):
            data.ShardDataset([a, c], make_config())

    def test_static_masks_where_the_config_has_none_and_the_other_way(self, tmp_path):
        folder = write(tmp_path / "a", make_examples(2))
        with pytest.raises(UserError, match="has no static masks, and the config says .*: true"):
            data.ShardDataset(folder, make_config(MASKS, Segments(static_masks=True)))
        examples = make_examples(2, masked_positions=lambda i: [1], masked_ids=lambda i: [9])
        folder = write(
            tmp_path / "b",
            examples,
            config=PretrainingSettings(corruption=TokenMasksConfig(max_predictions=5)),
        )
        with pytest.raises(UserError, match="has static masks, and the config says .*: false"):
            data.ShardDataset(folder, make_config(MASKS, Segments()))
        with pytest.raises(UserError, match="max_predictions: 5, and the config says 3"):
            data.ShardDataset(folder, make_config(MASKS, Segments(static_masks=True)))

    def test_features_that_the_objectives_need(self, tmp_path):
        folder = write(tmp_path, make_examples(2))
        config = dataclasses.replace(
            make_config(MASKS),
            objectives=(MaskedLMConfig(), SentencePairConfig()),
            encoder=TransformerConfig(vocab_size=V, max_positions=T),
        )
        source = data.ShardDataset(folder, config, training=True)
        message = "does not give next_sentence_label, which sentence_pair needs; it gives .*row"
        with pytest.raises(UserError, match=message):
            source.check(config)
        source.check(dataclasses.replace(config, objectives=(MaskedLMConfig(),)))
        with pytest.raises(UserError, match="does not give masked_ids, masked_positions, masked_w"):
            data.ShardDataset(folder, make_config()).check(config)

    def test_too_few_positions(self, tmp_path):
        source = data.ShardDataset(write(tmp_path, make_examples(2)), make_config())
        config = dataclasses.replace(
            make_config(), encoder=TransformerConfig(vocab_size=V, max_positions=T - 1)
        )
        message = rf"up to {T} tokens, and the encoder has positions for {T - 1}"
        with pytest.raises(UserError, match=message):
            source.check(config)
        source.check(
            dataclasses.replace(config, encoder=TransformerConfig(vocab_size=V, max_positions=T))
        )

    def test_batches_that_cannot_be_shared_out(self, tmp_path):
        folder = write(tmp_path, make_examples(2))
        config = make_config(batch_size=30, accumulation=4, eval_batch_size=7)
        training = data.ShardDataset(folder, config, training=True)
        message = (
            "a batch of 30 cannot be shared by 2 replicas × 4 accumulation steps = 8 parts: "
            "make it a multiple of 8, such as 24 or 32"
        )
        with pytest.raises(UserError, match=message):
            training.check(config, replicas=2)
        with pytest.raises(UserError, match=message):
            training.dataset(30, workers=2)
        with pytest.raises(UserError, match="batch of 7 cannot be shared by 2 replicas = 2 parts"):
            data.ShardDataset(folder, config).check(config, replicas=2)
        with pytest.raises(UserError, match="batch of 3 .* multiple of 4, such as 4$"):
            data.ShardDataset(folder, config).dataset(3, workers=2, replicas_per_worker=2)
