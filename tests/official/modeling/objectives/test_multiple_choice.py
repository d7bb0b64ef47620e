"""Multiple choice against loops by hand."""

import dataclasses

import numpy as np
import pytest

from official.config.heads import MultipleChoiceConfig
from official.modeling.objectives import base
from tests.official.modeling.objectives.test_objectives import (
    ENCODER,
    RNG,
    check_terms,
    cross_entropy,
    make,
)

B, C, T = 3, 4, 5
BATCH = {
    "token_ids": np.arange(B * C * T).reshape(B, C, T).astype("int32") % 11,
    "segment_ids": np.zeros((B, C, T), "int32"),
    "padding_mask": np.ones((B, C, T), bool),
    "example_weights": np.array([1, 1, 0], "float32"),
    "answer": np.array([3, 0, 1], "int32"),
}


def test_values():
    objective, encoder, v = make(MultipleChoiceConfig)
    batch = objective.prepare(BATCH)
    encoded = {"pooled_output": RNG.standard_normal((B * C, 8))}
    kernel, bias = v["multiple_choice/output/kernel"], v["multiple_choice/output/bias"]
    logits = (encoded["pooled_output"] @ kernel + bias).reshape(B, C)
    terms = objective.terms(batch, encoded, encoder)
    check_terms(
        terms,
        "multiple_choice",
        [(w, cross_entropy(x, a)) for x, a, w in zip(logits, [3, 0, 1], [1, 1, 0], strict=True)],
        [(w, x.argmax() == a) for x, a, w in zip(logits, [3, 0, 1], [1, 1, 0], strict=True)],
    )
    assert float(objective.weight_sums(BATCH)["multiple_choice"]) == 2
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    actual = objective.predictions(batch, encoded, encoder)
    np.testing.assert_allclose(actual["probabilities"], expected, rtol=1e-9)
    # The same head with two choices: it knows nothing of their number.
    two = {**batch, "example_weights": np.ones(6, "float32")}
    actual = objective.predictions(two, encoded, encoder)["probabilities"]
    expected = np.exp(logits.reshape(6, 2)) / np.exp(logits.reshape(6, 2)).sum(1, keepdims=True)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_every_choice_is_a_row_for_the_encoder():
    objective, _, _ = make(MultipleChoiceConfig)
    batch = objective.prepare(BATCH)
    assert batch["token_ids"].shape == batch["padding_mask"].shape == (B * C, T)
    np.testing.assert_array_equal(batch["token_ids"], BATCH["token_ids"].reshape(-1, T))
    assert batch["answer"] is BATCH["answer"]
    again = base.sequences_apart(batch)
    assert all(again[name] is batch[name] for name in batch)


def test_the_first_position_in_place_of_a_pooler():
    objective, encoder, v = make(MultipleChoiceConfig, pooling="first")
    states = RNG.standard_normal((B * C, T, 8))
    actual = objective.predictions(BATCH, {"sequence_output": states}, encoder)["probabilities"]
    scores = states[:, 0] @ v["multiple_choice/output/kernel"]
    logits = scores.reshape(B, C)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_errors():
    with pytest.raises(ValueError, match=r"dropout: 1.0 is not in \[0, 1\)"):
        MultipleChoiceConfig(dropout=1.0)
    with pytest.raises(ValueError, match="pooling: 'last' is not one of"):
        MultipleChoiceConfig(pooling="last")
    config = dataclasses.replace(ENCODER, pooler=False)
    with pytest.raises(ValueError, match="reads the pooled output: set encoder"):
        MultipleChoiceConfig().check_encoder(config)
