"""A row with a token to predict has a prediction, whatever is hidden and however much of it.

T tokens with padding, P predictions.
"""

import io
import itertools

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from official import data, tokenizers
from official.config.corruptions import (
    COUNTS,
    RUNS,
    TARGET_UNITS,
    UNITS,
    PermutationConfig,
    TokenMasksConfig,
)
from official.corruption import permutation, token_masks
from official.corruption.vocabulary import Vocabulary
from official.data import shared_rows
from official.tokenizers.word_starts import RULES
from official.utils import seeding
from tests import small
from tfrecords_tools.pretraining import builder
from tfrecords_tools.pretraining.settings import Settings

T = 40
TEXTS = {
    "chinese": "北京是中华人民共和国的首都。长江是亚洲第一长河，流经十一个省市。",
    "japanese": "東京は日本の首都であり、世界でも有数の大都市である。カタカナもあります。",
    "thai": "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทยและเป็นศูนย์กลางการปกครอง",
    "english": "Paris is the capital of France, and its largest city by far.",
    "russian": "Москва является столицей России и крупнейшим её городом.",
    "one word": "incomprehensibilitiesandunintelligibilitiesandmanymore",
}


@pytest.fixture(scope="module")
def model():
    """A SentencePiece model of all these scripts."""
    data = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*TEXTS.values()] * 4), model_writer=data, model_type="unigram",
        vocab_size=260, hard_vocab_limit=False, character_coverage=1.0, pad_id=0, unk_id=1,
        bos_id=-1, eos_id=-1, pad_piece="[PAD]", unk_piece="[UNK]",
        control_symbols=["[CLS]", "[SEP]", "[MASK]"], minloglevel=2,
    )  # fmt: skip
    return data.getvalue()


@pytest.fixture(scope="module")
def tokenizer(model):
    return tokenizers.SentencePiece(model, lower_case=False)


def make_rows(tokenizer):
    """Rows of each script and odd ones, each with at least one token to predict."""
    cls, sep, unk, mask = (getattr(tokenizer, f"{n}_id") for n in ("cls", "sep", "unk", "mask"))
    rows = []
    for ids in tokenizer.encode(list(TEXTS.values())):
        ids = ids.tolist()
        for size in (1, 2, 3, 7, 19, T - 3):
            rows.append([cls, *ids[:size], sep])
        half = min(len(ids), T - 3) // 2
        rows.append([cls, *ids[:half], sep, *ids[half : T - 3], sep])
        # Without the piece that begins the word, behind specials, and between them.
        rows += [[cls, sep, *ids[1:9], sep], [sep, sep, sep, sep, ids[1]], [mask, ids[-1], mask]]
    rows += [[cls, *[unk] * n, sep] for n in (1, 5, T - 2)]
    rows += [[cls, *[sep] * n, ids[2], sep] for n in range(1, 12)]
    return rows


def pad(rows, pad_id=0):
    token_ids = np.full((len(rows), T), pad_id, np.int32)
    for i, row in enumerate(rows):
        token_ids[i, : len(row)] = row
    real = np.arange(T) < np.array([len(row) for row in rows])[:, None]
    return {"token_ids": tf.constant(token_ids), "padding_mask": tf.constant(real)}


def configs(unit, rule):
    sizes = ((1e-6, 1), (0.15, 1), (0.15, 4), (1.0, 20))  # mask_rate, max_predictions
    for count, (rate, most) in itertools.product(COUNTS, sizes):
        if count == "each" and unit in RUNS:
            continue
        options = {"count": count, "mask_rate": rate, "max_predictions": most, "word_starts": rule}
        yield TokenMasksConfig(unit=unit, **options)
        if unit == "token" and count != "each":
            yield TokenMasksConfig(replacement=True, **options)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("unit", UNITS)
def test_every_row_has_a_prediction(tokenizer, unit, rule):
    rows = make_rows(tokenizer)
    batch = pad(rows)
    shape = batch["token_ids"].shape
    draws = np.random.default_rng(0).random(shape)
    seeds = seeding.row_seeds(0, 0, tf.range(len(rows), dtype=tf.int64))
    for config in configs(unit, rule):
        # Phrases of no, of some and of all tokens.
        for share in (0.0, 0.6, 1.0) if config.needs() else (0.0,):
            flags = dict.fromkeys(config.needs(), tf.constant(draws < share))
            vocabulary = Vocabulary.from_tokenizer(tokenizer, corruption=config)
            corrupted = token_masks.corrupt(config, vocabulary, {**batch, **flags}, seeds)
            weights = corrupted["masked_weights"].numpy()
            counts = (weights > 0).sum(axis=1)
            assert counts.min() >= 1, (config, rows[counts.argmin()])
            assert counts.max() <= config.max_predictions
            actual = corrupted["masked_ids"].numpy()[weights > 0]
            assert vocabulary.maskable[actual].all()
            hidden = corrupted["token_ids"].numpy() != batch["token_ids"].numpy()
            assert not (hidden & ~vocabulary.maskable[batch["token_ids"]]).any()


@pytest.mark.parametrize("unit", TARGET_UNITS)
@pytest.mark.parametrize("size", [None, 1, 2, 5, 8, 20])
def test_every_row_has_a_target(tokenizer, unit, size):
    rows = make_rows(tokenizer)
    seeds = seeding.row_seeds(0, 0, tf.range(len(rows), dtype=tf.int64))
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    for k, number in ((6, 6), (40, 1), (1, 40)):
        config = PermutationConfig(unit=unit, k=k, num_predict=number, perm_size=size)
        for backward in (None, True):
            batch = pad(rows)
            if backward:
                batch["backward"] = tf.ones([len(rows)], tf.bool)
            corrupted = permutation.corrupt(config, vocabulary, batch, seeds)
            counts = corrupted["masked_weights"].numpy().sum(axis=1)
            text = [sum(vocabulary.maskable[i] for i in row) for row in rows]
            expected = [
                min(n, number, max(1, len(row) // k)) for n, row in zip(text, rows, strict=True)
            ]
            assert counts.tolist() == expected


@pytest.mark.parametrize("unit", UNITS)
def test_every_part_of_a_row_has_a_prediction(tokenizer, unit):
    parts = [row for row in make_rows(tokenizer) if len(row) < 12]
    rows = [parts[i : i + 4] for i in range(0, len(parts), 4)]
    parsed = {
        "token_ids": tf.ragged.constant([sum(row, []) for row in rows], dtype=tf.int32),
        "part_lengths": tf.ragged.constant([[len(p) for p in row] for row in rows], tf.int32),
    }
    config = TokenMasksConfig(
        unit=unit, count="up" if unit == "span" else "random", max_predictions=3, mask_rate=0.05
    )
    flags = {
        name: tf.ragged.map_flat_values(lambda ids: ids > 4, parsed["token_ids"])
        for name in config.needs()
    }
    seeds = seeding.row_seeds(0, 0, tf.range(len(rows), dtype=tf.int64))
    corrupted = shared_rows.corrupted(
        config, Vocabulary.from_tokenizer(tokenizer), parsed, flags, seeds, 4
    )
    for row, positions in zip(rows, corrupted["masked_positions"].to_list(), strict=True):
        ends = np.cumsum([len(part) for part in row])
        assert set(np.searchsorted(ends, positions, side="right")) == set(range(len(row)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "static, masks",
    [
        (False, {"unit": "word", "word_starts": "blank"}),
        (True, {"unit": "word", "word_starts": "blank"}),
        (True, {"unit": "ngram", "word_starts": "albert"}),
        (True, {"unit": "word", "count": "each", "word_starts": "blank"}),
        (False, {"unit": "token", "replacement": True, "mask_rate": 0.3}),
        (True, {"unit": "token", "replacement": True, "mask_rate": 0.3}),
    ],
    ids=lambda value: "static" if value is True else None,
)
def test_shards_of_scripts_without_blanks(tmp_path, model, static, masks):
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "spiece.model").write_bytes(model)
    lines = [text[i:] for text in TEXTS.values() for i in range(0, 12, 3)]
    (tmp_path / "text.txt").write_text("\n\n".join(lines) + "\n")
    config = small.config(
        segments={
            "format": "doc_sentences", "max_length": 32, "packing": 3, "row_length": 64,
            "static_masks": static,
        },
        corruption={"type": "token_masks", "max_predictions": 5, **masks},
        encoder__max_positions=64,
        objectives=[{"type": "masked_lm"}],
    )  # fmt: skip
    settings = Settings.from_config(config, tmp_path / "tokenizer")
    builder.build(
        settings, str(tmp_path / "text.txt"), tmp_path / "shards", num_shards=1, report=lambda _: 0
    )
    source = data.ShardDataset(tmp_path / "shards", config)
    parts = 0
    for batch in source.dataset(4).as_numpy_iterator():
        for row in np.flatnonzero(batch["example_weights"]):
            weights = batch["masked_weights"][row]
            positions = batch["masked_positions"][row][weights > 0]
            assert (np.diff(positions) > 0).all()
            count = int(batch["part_weights"][row].sum())
            assert set(batch["part_ids"][row][positions]) == set(range(count))
            parts += count
            if "replacement" in masks:
                owners = batch["part_ids"][row][positions]
                sizes = np.bincount(batch["part_ids"][row])[:count]
                drawn = np.bincount(owners, weights[weights > 0])
                np.testing.assert_array_equal(drawn, np.clip(np.round(0.3 * sizes), 1, 5))
    assert parts >= len(lines)
