"""Token classification against loops by hand."""

import numpy as np
import pytest

from official.modeling.objectives import token_classification
from official.utils.errors import UserError
from tests.official.modeling.objectives.test_objectives import (
    ENCODED,
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
    objective, encoder, v = make(token_classification, num_labels=4)
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
    objective, encoder, v = make(token_classification, num_labels=4, crf=True)
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


def test_a_head_without_labels_is_refused():
    with pytest.raises(UserError, match="neither labels nor num_labels"):
        make(token_classification)
