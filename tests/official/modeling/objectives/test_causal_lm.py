"""Causal LM: what is read and asked for, the loss by a loop, and what is refused."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.encoders import TransformerConfig
from official.config.objectives import CausalLMConfig
from official.modeling.encoders import transformer
from official.modeling.encoders.inputs import encode
from official.modeling.objectives import causal_lm
from official.training import resolve
from official.utils.errors import UserError
from tests import small

ENCODER = TransformerConfig(
    vocab_size=11,
    hidden_size=8,
    num_layers=2,
    num_heads=2,
    intermediate_size=8,
    max_positions=6,
    segment_types=2,
    norm="pre",
    causal=True,
    pooler=False,
)
CLS, SEP = 1, 2
# Rows of four and six tokens, and one of five that only fills up the batch.
LENGTHS = (4, 6, 5)
BATCH = {
    "token_ids": np.array([[1, 5, 6, 2, 0, 0], [1, 7, 8, 9, 10, 2], [1, 3, 3, 3, 2, 0]], np.int32),
    "segment_ids": np.array([[0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1], [0] * 6], np.int32),
    "padding_mask": np.arange(6) < np.array(LENGTHS)[:, None],
    "example_weights": np.array([1, 1, 0], np.float32),
}
# Two sequences of three and two tokens in one row, and one of four beside padding.
PACKED = {
    "token_ids": np.array([[1, 5, 2, 1, 2, 0], [1, 6, 7, 2, 0, 0]], np.int32),
    "segment_ids": np.zeros((2, 6), np.int32),
    "padding_mask": np.arange(6) < np.array([5, 4])[:, None],
    "part_ids": np.array([[0, 0, 0, 1, 1, 2], [0, 0, 0, 0, 2, 2]], np.int32),
    "positions": np.array([[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 0, 0]], np.int32),
}


def make(dtype="float64", **options):
    encoder = transformer.Encoder(ENCODER, dtype=dtype)
    objective = causal_lm.Objective(CausalLMConfig(**options), ENCODER, dtype=dtype)
    rng = np.random.default_rng(0)
    for layer in (encoder, objective):
        layer.build()
    for variable in encoder.weights:
        variable.assign(rng.standard_normal(variable.shape))
    return objective, encoder


def prepared(batch, **options):
    result = make(**options)[0].prepare({n: tf.constant(v) for n, v in batch.items()})
    return {name: value.numpy() for name, value in result.items()}


def test_forward_reads_all_but_the_last_and_is_asked_for_all_but_the_first():
    corrupted = prepared(BATCH)
    for name in ("token_ids", "segment_ids", "padding_mask"):
        np.testing.assert_array_equal(corrupted[name], BATCH[name][:, :-1])
    np.testing.assert_array_equal(corrupted["causal_ids"], BATCH["token_ids"][:, 1:])
    weights = [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0] * 5]
    np.testing.assert_array_equal(corrupted["causal_weights"], weights)


def test_a_row_that_goes_on_is_read_to_its_end():
    stream = {
        "token_ids": np.array([[5, 6, 7], [8, 9, 10]], np.int32),
        "segment_ids": np.zeros((2, 3), np.int32),
        "padding_mask": np.ones((2, 3), bool),
        "example_weights": np.ones(2, np.float32),
        "next_id": np.array([4, 5], np.int32),
    }
    corrupted = prepared(stream)
    for name in ("token_ids", "segment_ids", "padding_mask"):
        np.testing.assert_array_equal(corrupted[name], stream[name])
    np.testing.assert_array_equal(corrupted["causal_ids"], [[6, 7, 4], [9, 10, 5]])
    np.testing.assert_array_equal(corrupted["causal_weights"], np.ones((2, 3)))
    objective, _ = make()
    for batch in (stream, corrupted):  # before and after `prepare`
        actual = objective.weight_sums({n: tf.constant(v) for n, v in batch.items()})
        assert float(actual["causal_lm"]) == 6


def test_backward_reads_the_text_turned_round():
    corrupted = prepared(BATCH, direction="backward")
    turned = [[2, 6, 5, 1, 0, 0], [2, 10, 9, 8, 7, 1], [2, 3, 3, 3, 1, 0]]
    np.testing.assert_array_equal(corrupted["token_ids"], np.array(turned)[:, :-1])
    np.testing.assert_array_equal(corrupted["causal_ids"], np.array(turned)[:, 1:])
    np.testing.assert_array_equal(corrupted["segment_ids"][:2, :4], [[1, 1, 0, 0], [1, 1, 1, 0]])
    np.testing.assert_array_equal(corrupted["padding_mask"], BATCH["padding_mask"][:, :-1])
    weights = [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0] * 5]
    np.testing.assert_array_equal(corrupted["causal_weights"], weights)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_parts_of_a_row_stay_apart(direction):
    corrupted = prepared(PACKED, direction=direction)
    np.testing.assert_array_equal(corrupted["part_ids"], PACKED["part_ids"][:, :-1])
    np.testing.assert_array_equal(corrupted["positions"], PACKED["positions"][:, :-1])
    np.testing.assert_array_equal(corrupted["causal_weights"], [[1, 1, 0, 1, 0], [1, 1, 1, 0, 0]])
    rows = [[1, 5, 2, 1, 2, 0], [1, 6, 7, 2, 0, 0]]
    if direction == "backward":
        rows = [[2, 5, 1, 2, 1, 0], [2, 7, 6, 1, 0, 0]]
    np.testing.assert_array_equal(corrupted["token_ids"], np.array(rows)[:, :-1])
    np.testing.assert_array_equal(corrupted["causal_ids"], np.array(rows)[:, 1:])


def losses_by_hand(encoder, tokens):
    """-log p of each token but the first, and whether it scored highest; one row alone."""
    states = encoder(np.array([tokens], np.int32))["sequence_output"][0].numpy()
    scores = states @ encoder.token_table.table.numpy().T
    return [
        (math.log(sum(math.exp(x) for x in row)) - row[target], row.argmax() == target)
        for row, target in zip(scores[:-1], tokens[1:], strict=True)
    ]


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_losses_and_hits_are_those_of_a_loop(direction):
    objective, encoder = make(direction=direction)
    batch = {n: tf.constant(v) for n, v in BATCH.items() if n != "segment_ids"}
    assert float(objective.weight_sums(batch)["causal_lm"]) == 8
    batch = objective.prepare(batch)
    terms = objective.terms(batch, encode(encoder, batch), encoder)
    expected = []
    for row, length in zip(BATCH["token_ids"][:2], LENGTHS, strict=False):
        tokens = row[:length].tolist()
        expected += losses_by_hand(encoder, tokens[::-1] if direction == "backward" else tokens)
    np.testing.assert_allclose(terms.losses["causal_lm"], sum(x for x, _ in expected), rtol=1e-9)
    hits, weight = terms.metrics["causal_lm_accuracy"]
    assert (float(hits), float(weight)) == (sum(h for _, h in expected), 8)
    assert float(objective.weight_sums(batch)["causal_lm"]) == 8


def test_a_short_row_that_goes_on_is_asked_for_the_token_behind_it():
    """Of blocks: the last one of a piece is short. The losses are those of the whole text."""
    objective, encoder = make()
    text = [5, 6, 7, 8, 2, 9, 10, 3, 4]
    blocks = {
        "token_ids": np.array([text[:5], [*text[5:8], 0, 0]], np.int32),
        "segment_ids": np.zeros((2, 5), np.int32),
        "padding_mask": np.arange(5) < np.array([5, 3])[:, None],
        "example_weights": np.ones(2, np.float32),
        "next_id": np.array([text[5], text[8]], np.int32),
    }
    batch = {n: tf.constant(v) for n, v in blocks.items()}
    assert float(objective.weight_sums(batch)["causal_lm"]) == len(text) - 1
    batch = objective.prepare(batch)
    weights = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    np.testing.assert_array_equal(batch["causal_weights"], weights)
    asked = batch["causal_ids"].numpy()[weights > 0].tolist()
    assert asked == text[1:]
    actual = objective.terms(batch, encode(encoder, batch), encoder).losses["causal_lm"]
    rows = (text[:6], text[5:])
    expected = sum(loss for row in rows for loss, _ in losses_by_hand(encoder, row))
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_blocks_are_read_backward_too():
    """The token behind the row comes first, and the row's own first one is asked for."""
    objective, _ = make(direction="backward")
    blocks = {
        "token_ids": np.array([[5, 6, 7], [8, 0, 0]], np.int32),
        "segment_ids": np.zeros((2, 3), np.int32),
        "padding_mask": np.array([[1, 1, 1], [1, 0, 0]], bool),
        "example_weights": np.ones(2, np.float32),
        "next_id": np.array([2, 9], np.int32),
    }
    batch = objective.prepare({n: tf.constant(v) for n, v in blocks.items()})
    assert batch["token_ids"].numpy().tolist()[0] == [2, 7, 6]
    assert batch["causal_ids"].numpy().tolist()[0] == [7, 6, 5]
    assert batch["token_ids"].numpy()[1, 0] == 9 and batch["causal_ids"].numpy()[1, 0] == 8
    np.testing.assert_array_equal(batch["causal_weights"], [[1, 1, 1], [1, 0, 0]])


def test_packed_rows_lose_what_their_parts_would_alone():
    objective, encoder = make()
    batch = objective.prepare({n: tf.constant(v) for n, v in PACKED.items()})
    actual = objective.terms(batch, encode(encoder, batch), encoder).losses["causal_lm"]
    parts = ([1, 5, 2], [1, 2], [1, 6, 7, 2])
    expected = sum(loss for part in parts for loss, _ in losses_by_hand(encoder, part))
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_tokens_asked_for_are_never_seen(direction):
    objective, encoder = make(direction=direction)

    def losses(tokens):
        batch = {**BATCH, "token_ids": tokens, "example_weights": np.ones(3, np.float32)}
        batch = objective.prepare({n: tf.constant(v) for n, v in batch.items()})
        states = encode(encoder, batch)["sequence_output"].numpy()
        return states

    before = losses(BATCH["token_ids"])
    changed = BATCH["token_ids"].copy()
    changed[1, 3] = 4  # of six; the fourth from either end but one
    after = losses(changed)
    first = 3 if direction == "forward" else 2  # where it is read
    np.testing.assert_array_equal(before[1, :first], after[1, :first])
    assert (np.abs(before[1, first:] - after[1, first:]).max(axis=-1) > 1e-6).all()
    np.testing.assert_array_equal(before[[0, 2]], after[[0, 2]])


def test_it_has_no_variables_and_the_table_gets_both_gradients():
    objective, encoder = make()
    assert objective.variables == []
    batch = objective.prepare({n: tf.constant(v) for n, v in BATCH.items()})
    table = encoder.token_table.table.value
    with tf.GradientTape() as tape:
        loss = objective.terms(batch, encode(encoder, batch), encoder).losses["causal_lm"]
    gradient = tape.gradient(loss, table)
    # 4 is in no row, so its gradient is the output's; 5 is read as well.
    hidden = encode(encoder, batch)["sequence_output"].numpy()
    scores = hidden @ table.numpy().T
    chances = np.exp(scores - scores.max(-1, keepdims=True))
    chances = chances[..., 4] / chances.sum(-1) * batch["causal_weights"].numpy()
    np.testing.assert_allclose(gradient[4], np.einsum("bt,btd->d", chances, hidden), rtol=1e-9)
    assert not np.allclose(gradient[5], np.einsum("bt,btd->d", chances, hidden), rtol=1e-3)


def whole(**changes):
    settings = {
        "segments__format": "full_sentences",
        "corruption": None,
        "encoder__causal": True,
        "objectives": [{"type": "causal_lm"}],
    }
    return small.config(**{**settings, **changes})


def test_a_config_without_corruption():
    config = whole()
    assert config.objectives == (CausalLMConfig(),)
    assert configs.from_dict(configs.to_dict(config)) == config
    assert whole(segments__packing=4).segments.packing == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"objectives": [{"type": "causal_lm", "direction": "left"}]},
            r"objectives\.0\.direction: 'left' is not one of forward, backward",
        ),
        (
            {"encoder__causal": False},
            r"objectives\.0: causal_lm: the encoder sees the tokens that are predicted: set "
            r"encoder\.causal: true",
        ),
        (
            {"encoder__embedding_size": 8},
            r"causal_lm: encoder\.embedding_size: 8 is not the hidden size 16, which an output",
        ),
        (
            {"corruption": {"type": "token_masks", "max_predictions": 5}},
            "causal_lm: it predicts the tokens that it reads: remove `corruption`",
        ),
        (
            {
                "objectives": [{"type": "causal_lm"}, {"type": "sentence_pair"}],
                "segments__format": "pairs",
            },
            "causal_lm: it shifts the rows that the encoder reads, .*: remove the other objectives",
        ),
        (
            {
                "segments": {"format": "stream", "rows": 4, "max_length": 16},
                "objectives": [{"type": "causal_lm", "direction": "backward"}],
            },
            "direction: backward reverses single rows, but the rows of a stream continue each",
        ),
    ],
)
def test_what_does_not_suit_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        whole(**changes)


def test_an_encoder_that_comes_later_is_refused_too():
    for changes, message in (
        (
            {"causal": False},
            r"objectives\.0: causal_lm: the encoder sees the tokens that are pred",
        ),
        ({"embedding_size": 4}, r"objectives\.0: causal_lm: encoder\.embedding_size: 4 is not the"),
    ):
        later = dataclasses.replace(ENCODER, **changes)
        config = dataclasses.replace(whole(), encoder=later)
        with pytest.raises(UserError, match=message):
            resolve.fill_in(resolve.inherit(config), ENCODER.vocab_size)


def test_bfloat16_keeps_losses_in_float32():
    objective, encoder = make("mixed_bfloat16")
    batch = objective.prepare({n: tf.constant(v) for n, v in BATCH.items()})
    loss = objective.terms(batch, encode(encoder, batch), encoder).losses["causal_lm"]
    assert loss.dtype == tf.float32 and np.isfinite(loss)
