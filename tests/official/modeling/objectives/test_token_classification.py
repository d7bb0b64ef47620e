"""Token classification against loops by hand."""

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config import compatibility
from official.config.heads import Mix, TokenClassificationConfig
from official.modeling.layers.random import Draws
from official.modeling.model import Model
from official.utils.errors import UserError
from tests.official.modeling.objectives.test_objectives import (
    ENCODED,
    ENCODER,
    check_terms,
    cross_entropy,
    make,
)

BATCH = {
    "token_ids": np.zeros((3, 5), "int32"),
    "padding_mask": np.ones((3, 5), bool),
    "example_weights": np.array([1, 1, 0], "float32"),
    "word_ids": np.array([[-1, 0, -1, 1, -1], [-1, 4, 5, 6, -1], [-1, 0, -1, -1, -1]], "int32"),
    "tag_ids": np.array([[-1, 2, -1, 0, -1], [-1, 1, 3, 1, -1], [-1, 2, -1, -1, -1]], "int32"),
}


def scores(v):
    kernel, bias = (v[f"token_classification/output/{name}"] for name in ("kernel", "bias"))
    return ENCODED["sequence_output"] @ kernel + bias


def test_each_first_token_is_classified():
    objective, encoder, v = make(TokenClassificationConfig, num_labels=4)
    logits = scores(v)
    losses, hits = [], []
    for b, t in np.argwhere(BATCH["tag_ids"] >= 0):
        tag, weight = BATCH["tag_ids"][b, t], BATCH["example_weights"][b]
        losses.append((weight, cross_entropy(logits[b, t], tag)))
        hits.append((weight, logits[b, t].argmax() == tag))
    terms = objective.terms(BATCH, ENCODED, encoder)
    check_terms(terms, "token_classification", losses, hits)
    assert float(objective.weight_sums(BATCH)["token_classification"]) == 5
    actual = objective.predictions(BATCH, ENCODED, encoder)
    np.testing.assert_array_equal(actual["tags"], logits.argmax(-1))
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(actual["tag_probabilities"], softmax.max(-1), rtol=1e-9)


def test_with_a_crf_the_loss_is_that_of_the_chains():
    objective, encoder, v = make(TokenClassificationConfig, num_labels=4, crf=True)
    mask = BATCH["tag_ids"] >= 0
    likelihood = objective.crf.log_likelihood(scores(v), BATCH["tag_ids"], mask).numpy()
    terms = objective.terms(BATCH, ENCODED, encoder)
    total = terms.losses["token_classification"]
    np.testing.assert_allclose(total, -(likelihood[0] + likelihood[1]), rtol=1e-9)
    decoded = objective.crf.decode(scores(v), mask).numpy()
    hits, weight = terms.metrics["token_classification_accuracy"]
    assert float(hits) == (decoded == BATCH["tag_ids"])[:2].sum()
    assert float(weight) == 5
    actual = objective.predictions(BATCH, ENCODED, encoder)
    np.testing.assert_array_equal(actual["tags"], decoded)
    marginals = objective.crf.marginals(scores(v), mask).numpy()
    expected = np.take_along_axis(marginals, decoded[..., None], -1)[..., 0]
    np.testing.assert_allclose(actual["tag_probabilities"], expected, rtol=1e-9)


def test_with_a_bilstm_the_tags_read_its_outputs():
    objective, encoder, v = make(TokenClassificationConfig, num_labels=4, bilstm=3)
    real = np.arange(5) < np.array([[5], [4], [2]])
    encoded = ENCODED | {"padding_mask": real}
    outputs = objective.bilstm(ENCODED["sequence_output"], real).numpy()  # see `test_bilstm`
    kernel, bias = (v[f"token_classification/output/{name}"] for name in ("kernel", "bias"))
    assert kernel.shape == (6, 4)
    logits = outputs @ kernel + bias
    np.testing.assert_allclose(objective.logits(encoded), logits, rtol=1e-9)
    states = np.where(real[..., None], ENCODED["sequence_output"], 9.0)
    other = {"sequence_output": states, "padding_mask": real}
    np.testing.assert_array_equal(objective.logits(other), objective.logits(encoded))
    losses = [
        (BATCH["example_weights"][b], cross_entropy(logits[b, t], BATCH["tag_ids"][b, t]))
        for b, t in np.argwhere(BATCH["tag_ids"] >= 0)
    ]
    check_terms(objective.terms(BATCH, encoded, encoder), "token_classification", losses)


@pytest.mark.parametrize("options", [{}, {"crf": True, "bilstm": 3}])
def test_losses_are_float32_and_all_gradients_finite(options):
    """In bfloat16, compiled by XLA, with dropout, and with a row that has no labels."""
    objective, encoder, _ = make(
        TokenClassificationConfig, "mixed_bfloat16", num_labels=4, dropout=0.5, **options
    )
    batch = {name: tf.constant(value) for name, value in BATCH.items()}
    batch["tag_ids"] = tf.constant(np.where([[1], [0], [1]], BATCH["tag_ids"], -1))
    states = tf.constant(ENCODED["sequence_output"], tf.bfloat16)
    variables = [variable.value for variable in objective.trainable_variables]

    @tf.function(jit_compile=True, autograph=False)
    def gradients(states):
        with tf.GradientTape() as tape:
            tape.watch(states)
            encoded = {"sequence_output": states, "padding_mask": batch["padding_mask"]}
            terms = objective.terms(batch, encoded, encoder, Draws((0, 1)))
            loss = terms.losses["token_classification"]
        return loss, tape.gradient(loss, [states, *variables])

    loss, found = gradients(states)
    assert loss.dtype == tf.float32 and float(loss) > 0
    for gradient in found:
        values = tf.cast(gradient, tf.float32).numpy()
        assert np.isfinite(values).all() and (values != 0).any()


@pytest.mark.parametrize("options", [{}, {"bilstm": 3, "crf": True}])
def test_saved_states_of_a_frozen_encoder_give_the_same_tags(options):
    head = TokenClassificationConfig(num_labels=4, mix=Mix(norm="token"), **options)
    read = configs.Config(
        name="x",
        encoder=ENCODER,
        objectives=(head,),
        recipe=configs.Recipe(steps=1, freeze_encoder=True, layer_states="states"),
    )
    compatibility.check(read, "x")
    model = Model(read, dtype="float64")
    model.freeze_encoder()
    names = {variable.path for variable in model.trainable_variables}
    assert names and all("token_classification/" in name for name in names)
    batch = BATCH | {
        "token_ids": np.arange(15, dtype="int32").reshape(3, 5) % 11,
        "padding_mask": np.arange(5) < np.array([[5], [5], [3]]),
    }
    layers = model.encode(batch, output_all=True)["hidden_states"]
    states = np.stack(layers, axis=2) * batch["padding_mask"][..., None, None]
    expected, found = model.predictions(batch), model.predictions(batch | {"layer_states": states})
    read = batch["word_ids"] >= 0
    for name in ("tags", "tag_probabilities"):
        np.testing.assert_allclose(found[name][read], expected[name][read], rtol=1e-9)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"bilstm": 0}, "bilstm"),
        ({"num_labels": 1}, "num_labels"),
        ({"num_labels": 3, "labels": ("O", "B-X")}, "num_labels: 3, but there are 2 labels"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_bad_configs(changes, message):
    with pytest.raises(ValueError, match=message):
        TokenClassificationConfig(**changes)


def test_a_head_without_labels_is_refused():
    with pytest.raises(UserError, match="neither labels nor num_labels"):
        make(TokenClassificationConfig)
