"""Replaced token detection against NumPy on the tokens that the generator drew."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from official.config.objectives import GeneratorConfig, ReplacedTokensConfig
from official.distribution.statistics import area_under_curve
from official.modeling.layers.random import Draws
from official.modeling.objectives import base
from tests.official.modeling.objectives.test_generator import (
    BATCH,
    CHOSEN,
    ENCODER,
    IDS,
    make,
    tensors,
)

WEIGHTED = {**BATCH, "example_weights": np.array([1, 1], "float32")}
FILLER = {**BATCH, "example_weights": np.array([0, 1], "float32")}
FILLER["masked_weights"] = BATCH["masked_weights"] * [[0], [1]]


def scores(model, token_ids, batch):
    """The discriminator's scores [2, 8] from its variables, by hand from the hidden states on."""
    v = {path: x.numpy() for path, x in model.variables_by_path().items()}
    hidden = model.encode({**batch, "token_ids": token_ids})["sequence_output"].numpy()
    hidden = hidden @ v["replaced_tokens/transform/kernel"] + v["replaced_tokens/transform/bias"]
    hidden = np.maximum(hidden, 0)
    return (hidden @ v["replaced_tokens/output/kernel"] + v["replaced_tokens/output/bias"])[..., 0]


@pytest.mark.parametrize("tokens", ["all", "masked"])
@pytest.mark.parametrize("batch", [WEIGHTED, FILLER])
def test_the_joint_loss_is_that_of_numpy_on_the_captured_draws(tokens, batch):
    relu = dataclasses.replace(ENCODER, activation="relu")
    model = make(GeneratorConfig(1 / 3), ReplacedTokensConfig(tokens=tokens), encoder=relu)
    rng = np.random.default_rng(1)
    for variable in model.objectives[1].variables:
        variable.assign(rng.standard_normal(variable.shape))
    prepared = model.prepare(batch)
    losses, metrics = model.terms(prepared)
    sums = model.weight_sums(batch)

    token_ids = prepared["token_ids"].numpy()  # captured
    logits = prepared["generator_logits"].numpy().reshape(2, 3, 13)
    weights = batch["masked_weights"] * batch["example_weights"][:, None]
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    of_targets = np.take_along_axis(log_probs, BATCH["masked_ids"][..., None], -1)[..., 0]
    generator_loss = -(of_targets * weights).sum()

    z, labels = scores(model, token_ids, batch), (token_ids != IDS).astype(float)
    probability = 1 / (1 + np.exp(-z))
    each = -(labels * np.log(probability) + (1 - labels) * np.log(1 - probability))
    counted = (IDS > 0) if tokens == "all" else CHOSEN
    counted = counted * batch["example_weights"][:, None]

    np.testing.assert_allclose(losses["generator"], generator_loss)
    np.testing.assert_allclose(losses["replaced_tokens"], (each * counted).sum())
    np.testing.assert_allclose(sums["generator"], weights.sum())
    np.testing.assert_allclose(sums["replaced_tokens"], counted.sum())
    joint = sum(model.term_weights[t] * losses[t] / sums[t] for t in losses)
    expected = generator_loss / weights.sum() + 50 * (each * counted).sum() / counted.sum()
    np.testing.assert_allclose(joint, expected)

    hits = ((z > 0) == labels) * counted
    np.testing.assert_allclose(metrics["replaced_tokens_accuracy"], (hits.sum(), counted.sum()))
    np.testing.assert_allclose(
        metrics["replaced_tokens_rate"], ((labels * counted).sum(), counted.sum())
    )
    positive, negative = metrics["replaced_tokens_auc"]
    np.testing.assert_allclose(sum(positive), (labels * counted).sum())
    np.testing.assert_allclose(sum(negative), ((1 - labels) * counted).sum())


def test_weights_of_the_loss():
    model = make(GeneratorConfig(1 / 3), ReplacedTokensConfig())
    assert model.term_weights == {"generator": 1.0, "replaced_tokens": 50.0}


@pytest.mark.slow
def test_a_step_of_a_generator_that_is_the_encoder_compiles():
    model = make(
        GeneratorConfig(1.0, sharing="all"), ReplacedTokensConfig(), dtype="mixed_bfloat16"
    )

    @tf.function(jit_compile=True)
    def step(batch, pair):
        with tf.GradientTape() as tape:
            rng = Draws(pair)
            losses, _ = model.terms(model.prepare(batch, rng), rng)
            assert {loss.dtype for loss in losses.values()} == {tf.float32}
            loss = tf.add_n(list(losses.values()))
        return tape.gradient(loss, [v.value for v in model.trainable_variables])

    assert all(np.isfinite(g).all() for g in step(tensors(), tf.constant([1, 2])))


def test_the_area_under_the_curve():
    rng = np.random.default_rng(0)
    labels = rng.random(20_000) < 0.15
    logits = rng.standard_normal(20_000) * 2 - 2 + labels * 2
    weights = (rng.random(20_000) < 0.9).astype("float64")
    halves = [
        base.score_histograms(logits[part], labels[part], weights[part])
        for part in (slice(0, 5000), slice(5000, None))
    ]
    positive, negative = (np.sum([h[i] for h in halves], axis=0) for i in range(2))
    expected = roc_auc_score(labels, logits, sample_weight=weights)
    assert 0.6 < expected < 0.9
    np.testing.assert_allclose(area_under_curve(positive, negative), expected, atol=2e-4)


def test_the_area_of_extremes():
    assert area_under_curve([0, 0, 2], [3, 0, 0]) == 1
    assert area_under_curve([2, 0, 0], [0, 0, 3]) == 0
    assert area_under_curve([0, 2, 0], [0, 3, 0]) == 0.5
    assert area_under_curve([0, 0], [3, 1]) == 0.5  # nothing was replaced: nothing to tell apart
    far = base.score_histograms(np.array([-1e9, 1e9]), np.array([0, 1]), np.ones(2))
    assert area_under_curve(*far) == 1


def test_needs():
    plain, masked = (ReplacedTokensConfig(tokens=tokens) for tokens in ("all", "masked"))
    assert plain.needs() == {"padding_mask", "replaced"}
    assert masked.needs() == {
        "padding_mask", "replaced", "masked", "masked_weights",
    }  # fmt: skip
    with pytest.raises(ValueError, match="tokens: 'some' is not one of all, masked"):
        ReplacedTokensConfig(tokens="some")
