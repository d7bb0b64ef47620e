"""Permutation LM with the encoder and the corruption that it is made for."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.corruptions import PermutationConfig
from official.config.encoders import TransformerXLConfig
from official.config.objectives import PermutationLMConfig
from official.corruption import permutation
from official.modeling.encoders import transformer_xl
from official.modeling.encoders.inputs import encode
from official.modeling.objectives import permutation_lm
from official.training import resolve
from official.utils.errors import UserError
from tests.official.corruption.test_token_masks import CLS, SEP, VOCABULARY, pad, seeds_of

ENCODER = TransformerXLConfig(
    vocab_size=VOCABULARY.size,
    hidden_size=16,
    num_layers=3,
    num_heads=2,
    intermediate_size=20,
    segment_types=0,
)


def make(encoder_config=ENCODER, dtype="float32"):
    """An encoder and the objective, with random values in all variables."""
    encoder = transformer_xl.Encoder(encoder_config, dtype=dtype)
    encoder.build()
    objective = permutation_lm.Objective(PermutationLMConfig(), encoder_config, dtype=dtype)
    objective.build()
    rng = np.random.default_rng(1)
    for variable in [*encoder.weights, *objective.variables]:
        noise = 0.4 * rng.standard_normal(variable.shape)
        variable.assign(1 + noise if variable.path.endswith("scale") else noise)
    return encoder, objective


def permuted(unit="token", perm_size=None):
    """Two rows with different padding, and their targets."""
    rows = [np.array([CLS, *range(10, 20), SEP]), np.array([CLS, 20, 21, 22, 23, SEP, 24, 25, SEP])]
    config = PermutationConfig(unit=unit, k=2, num_predict=6, max_span=3, perm_size=perm_size)
    corrupted = permutation.corrupt(config, VOCABULARY, pad(rows), seeds_of(2))
    return {name: value.numpy() for name, value in corrupted.items()}


@pytest.mark.parametrize("unit, perm_size", [("token", None), ("word_span", 6)])
def test_nothing_leaks(unit, perm_size):
    """Bit for bit: what a target may not see does not reach it, and what it may see does."""
    encoder, _ = make()
    batch = permuted(unit, perm_size)
    run = tf.function(lambda token_ids: encode(encoder, {**batch, "token_ids": token_ids}))
    before = run(tf.constant(batch["token_ids"]))["query_output"].numpy()
    places, real = batch["masked_positions"], batch["masked_weights"] > 0
    counts = {False: 0, True: 0}
    for t in range(12):
        changed = batch["token_ids"].copy()
        changed[:, t] = 500 + t
        after = run(tf.constant(changed))["query_output"].numpy()
        for row, p in zip(*np.nonzero(real), strict=True):
            may = batch["permutation_mask"][row, places[row, p], t]
            may &= batch["padding_mask"][row, t]
            same = (before[row, p] == after[row, p]).all()
            assert same == (not may), (row, p, t)
            counts[bool(may)] += 1
    assert counts[True] > 20 and counts[False] > 20


def test_what_is_hidden_is_the_target_and_what_comes_later():
    """The masks say what the rule says: no target sees itself, or a later one, or a later block."""
    batch = permuted("token", 6)
    order = permutation.orders(seeds_of(2), 12).numpy()
    for row in range(2):
        targets = batch["masked_positions"][row][batch["masked_weights"][row] > 0].tolist()
        for target, other in itertools.product(targets, repeat=2):
            seen = batch["permutation_mask"][row, target, other]
            later = (other // 6, order[row, other]) >= (target // 6, order[row, target])
            assert seen == (not later)


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-12), ("float32", 1e-5)])
def test_every_order_gives_a_joint_distribution(dtype, tolerance):
    """The product of the conditionals over all 4-token sequences sums to 1, whatever the order."""
    encoder, objective = make(dataclasses.replace(ENCODER, vocab_size=3), dtype)
    sequences = np.array(list(itertools.product(range(3), repeat=4)), np.int32)  # [81, 4]
    orders = np.array(list(itertools.permutations(range(1, 5))))  # [24, 4]
    batch = {
        "token_ids": np.tile(sequences, (24, 1)),
        "permutation_mask": np.repeat(
            permutation.may_attend(orders, tf.ones([24, 4], tf.bool)), 81, axis=0
        ),
        "masked_positions": np.tile(np.arange(4, dtype=np.int32), (24 * 81, 1)),
    }
    query = encode(encoder, batch)["query_output"]
    logits = objective.logits(tf.reshape(query, [-1, 16]), encoder)
    conditionals = tf.nn.log_softmax(logits).numpy().reshape(24, 81, 4, 3)
    actual = np.take_along_axis(conditionals, sequences[None, :, :, None], axis=3)
    joint = np.exp(actual[..., 0].sum(axis=2))  # [24, 81]
    np.testing.assert_allclose(joint.sum(axis=1), 1, rtol=0, atol=tolerance)
    # Each order has a distribution of its own, and none is uniform.
    assert (joint.std(axis=0) > 1e-4).mean() > 0.8 and (joint.std(axis=1) > 1e-3).all()


def test_loss_is_that_of_a_loop():
    encoder, objective = make(dtype="float64")
    batch = {**permuted(), "example_weights": np.array([1, 0.5], "float32")}
    encoded = encode(encoder, batch)
    terms = objective.terms(batch, encoded, encoder)
    v = {path.rpartition("/")[2]: x.numpy() for path, x in
         [(x.path, x) for x in (encoder.token_table.table, objective.output_bias)]}  # fmt: skip
    loss = weight = hits = 0
    for row, share in enumerate(batch["example_weights"]):
        for p, real in enumerate(batch["masked_weights"][row]):
            scores = encoded["query_output"].numpy()[row, p] @ v["table"].T + v["output_bias"]
            target = batch["masked_ids"][row, p]
            loss += share * real * (np.log(np.exp(scores).sum()) - scores[target])
            hits += share * real * (scores.argmax() == target)
            weight += share * real
    np.testing.assert_allclose(terms.losses["permutation_lm"], loss, rtol=1e-9)
    np.testing.assert_allclose(objective.weight_sums(batch)["permutation_lm"], weight)
    hit, of = terms.metrics["permutation_lm_accuracy"]
    np.testing.assert_allclose([hit, of], [hits, weight])
    assert weight == 6 + 0.5 * 4


def test_its_only_variable_is_a_bias():
    _, objective = make()
    assert [(v.path, v.shape) for v in objective.variables] == [
        ("permutation_lm/output_bias", (VOCABULARY.size,))
    ]


def raw(**encoder):
    return {
        "name": "xlnet",
        "segments": {"max_length": 32},
        "corruption": {"type": "permutation", "num_predict": 5, "max_span": 3},
        "encoder": {"type": "transformer_xl", "hidden_size": 8, "num_heads": 2, **encoder},
        "objectives": [{"type": "permutation_lm"}],
        "recipe": {"steps": 1},
    }


@pytest.mark.parametrize(
    "encoder, message",
    [
        (
            {"query_stream": False},
            "the encoder has no query stream, from which targets are predicted: take encoder.type: "
            "transformer_xl with query_stream: true",
        ),
        (
            {"attention": "uni"},
            "encoder.attention: uni hides tokens that the order makes visible to a target: take bi",
        ),
    ],
)
def test_encoders_that_cannot_answer_are_refused(encoder, message):
    with pytest.raises(UserError) as caught:
        configs.from_dict(raw(**encoder))
    assert str(caught.value) == f"config: objectives.0: permutation_lm: {message}"
    read = configs.from_dict(raw())
    assert configs.from_dict(configs.to_dict(read)) == read


def test_an_encoder_of_another_kind_is_refused():
    config = configs.from_dict({**raw(), "encoder": None})
    other = configs.from_dict({"name": "x", "encoder": {"type": "transformer", "vocab_size": 9}})
    with pytest.raises(
        UserError, match="objectives.0: permutation_lm: the encoder has no query st"
    ):
        resolve.fill_in(resolve.inherit(config, other), 9)


def test_without_the_corruption_it_is_refused():
    masked = {**raw(), "corruption": {"type": "token_masks"}}
    with pytest.raises(UserError, match="permutation_lm needs permutation_mask, which neither"):
        configs.from_dict(masked)
