"""Which tokens of a batch are drawn, how many and how often. V pieces, T tokens, P predictions."""

import math

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.corruptions import RareTokenMasksConfig
from official.corruption import rare_token_masks
from official.corruption.vocabulary import Vocabulary
from official.utils import seeding
from official.utils.errors import UserError
from tests import small

PAD, CLS, SEP, MASK = 0, 2, 3, 4
V = 12
COUNTS = np.array([0, 9, 9, 9, 9, 0, 1, 4, 16, 64, 256, 10_000])
VOCABULARY = Vocabulary(V, MASK, (PAD, 1, CLS, SEP, MASK), np.ones(V, bool), COUNTS)
CONFIG = RareTokenMasksConfig(max_predictions=16)


def batch_of(lengths, width, seed=0):
    """Rows [CLS] tokens [SEP] with padding; some tokens are unknown."""
    rng = np.random.default_rng(seed)
    ids = rng.choice([1, *range(5, V)], (len(lengths), width))
    real = np.arange(width) < np.array(lengths)[:, None]
    ids[:, 0] = CLS
    ids[np.arange(len(lengths)), np.array(lengths) - 1] = SEP
    return {
        "token_ids": tf.constant(np.where(real, ids, PAD), tf.int32),
        "padding_mask": tf.constant(real),
    }


def corrupt(batch, config=CONFIG, first=0):
    rows = len(batch["token_ids"])
    seeds = seeding.row_seeds(0, 0, tf.range(first, first + rows, dtype=tf.int64))
    result = rare_token_masks.corrupt(config, VOCABULARY, batch, seeds)
    return {name: value.numpy() for name, value in result.items()}


@pytest.mark.parametrize("lengths", [(16, 5, 9), (3, 3), (16, 16, 16, 16, 16), (7,)])
def test_a_share_of_all_tokens_of_the_batch_rounded_up_and_no_special_one(lengths):
    batch = batch_of(lengths, 16)
    ids = batch["token_ids"].numpy()
    for first in range(0, 50, 5):
        actual = corrupt(batch, first=first)
        text = ids >= 5
        number = min(math.ceil(0.15 * sum(lengths)), text.sum())
        assert actual["masked_weights"].sum() == number
        for row, (places, masked, weights) in enumerate(
            zip(actual["masked_positions"], actual["masked_ids"], actual["masked_weights"],
                strict=True)
        ):  # fmt: skip
            count = int(weights.sum())
            assert weights.tolist() == [1] * count + [0] * (16 - count)
            assert (ids[row, places[:count]] == masked[:count]).all()
            assert text[row, places[:count]].all()
            hidden = np.zeros(16, bool)
            hidden[places[:count]] = True
            np.testing.assert_array_equal(actual["token_ids"][row][~hidden], ids[row][~hidden])


def test_rare_tokens_are_drawn_more_often():
    """One token is drawn from one of each count, as often as its weight says."""
    batch = {
        "token_ids": tf.constant([[5, 6, 7, 8, 9, 10]], tf.int32),
        "padding_mask": tf.ones((1, 6), tf.bool),
    }
    draws, counts = 2000, np.zeros(V)
    seeds = seeding.row_seeds(0, 0, tf.range(draws, dtype=tf.int64))
    drawn = tf.function(
        lambda seed: rare_token_masks.corrupt(CONFIG, VOCABULARY, batch, seed)["masked_ids"][0, 0],
        autograph=False,
    )
    for i in range(draws):
        counts[drawn(seeds[i : i + 1])] += 1
    weights = np.maximum(COUNTS[5:11], 1) ** -0.7
    shares = weights / weights.sum()
    sigma = np.sqrt(shares * (1 - shares) / draws)
    assert (np.abs(counts[5:11] / draws - shares) < 4 * sigma).all()


def test_what_becomes_of_them():
    batch = batch_of([400] * 10, 400)
    config = RareTokenMasksConfig(max_predictions=400, mask_rate=0.5, random_prob=0.1)
    ids, actual = batch["token_ids"].numpy(), corrupt(batch, config)
    hidden = np.zeros_like(ids, bool)
    for row, (places, weights) in enumerate(
        zip(actual["masked_positions"], actual["masked_weights"], strict=True)
    ):
        hidden[row, places[weights > 0]] = True
    total = hidden.sum()
    assert total == 2000
    masked = (actual["token_ids"][hidden] == MASK).mean()
    kept = (actual["token_ids"][hidden] == ids[hidden]).mean()
    assert abs(masked - (0.8 + 0.1 / V)) < 4 * math.sqrt(0.8 * 0.2 / total)
    assert abs(kept - (0.1 + 0.1 / V)) < 4 * math.sqrt(0.1 * 0.9 / total)


def test_filler_has_no_predictions_and_rows_no_more_than_p():
    batch = batch_of([16, 16], 16) | {"example_weights": tf.constant([1.0, 0.0])}
    actual = corrupt(batch)
    assert actual["masked_weights"].sum(axis=1).tolist() == [3, 0]
    batch = batch_of([16, 16], 16)
    few = corrupt(batch, RareTokenMasksConfig(max_predictions=2, mask_rate=0.8))
    assert few["masked_weights"].sum(axis=1).tolist() == [2, 2]


def test_errors():
    lacking = Vocabulary(V, MASK, (PAD, CLS, SEP, MASK), np.ones(V, bool))
    with pytest.raises(UserError, match="rare_token_masks draws tokens by their counts"):
        rare_token_masks.corrupt(CONFIG, lacking, batch_of([4], 4), tf.zeros([1], tf.uint64))
    with pytest.raises(
        UserError, match=r"max_predictions: 4 is less than 0.15 × max_length 32 = 5"
    ):
        small.config(corruption={"type": "rare_token_masks", "max_predictions": 4})
    with pytest.raises(UserError, match="static_masks: rare_token_masks is drawn when"):
        small.config(corruption={"type": "rare_token_masks"}, segments__static_masks=True)
    with pytest.raises(UserError, match="mask_prob: 0.9 and random_prob 0.2 exceed 1"):
        small.config(corruption={"type": "rare_token_masks", "mask_prob": 0.9, "random_prob": 0.2})
    assert configs.to_dict(small.config(corruption={"type": "rare_token_masks"}))["corruption"][
        "exponent"
    ] == pytest.approx(0.7)
