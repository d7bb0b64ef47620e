"""The mean of the outputs of several heads against loops by hand."""

import types

import numpy as np
import pytest
import tensorflow as tf

from official.config.heads import TokenClassificationConfig
from official.modeling.objectives import ensembles, token_classification
from tests.official.modeling.objectives.test_span_answer import BERT, batch, make

CLOSE = {"rtol": 0, "atol": 1e-5}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def mean(members, link, how):
    head = types.SimpleNamespace(link=link)
    tensors = [tf.constant(each, tf.float32) for each in members]
    return ensembles.mean_outputs(head, tensors, how).numpy()


@pytest.mark.parametrize("link, probabilities", [("softmax", softmax), ("sigmoid", sigmoid)])
def test_means_of_probabilities_and_of_outputs(link, probabilities):
    members = np.random.default_rng(0).normal(0, 3, (3, 7, 4))
    found = probabilities(mean(members, link, "probabilities").astype(np.float64))
    np.testing.assert_allclose(found, probabilities(members).mean(0), **CLOSE)
    found = mean(members, link, "logits")
    np.testing.assert_allclose(found, members.mean(0), **CLOSE)
    scores = mean(members, None, "probabilities")
    np.testing.assert_allclose(scores, members.mean(0), **CLOSE)


def test_a_member_that_is_sure_decides_by_logits_only():
    """Two members are for class 0 with 0.9, and the third one for class 1 beyond doubt."""
    members = np.log([[[0.9, 0.1]], [[0.9, 0.1]], [[1e-30, 1]]])
    found = softmax(mean(members, "softmax", "probabilities").astype(np.float64))
    np.testing.assert_allclose(found, [[0.6, 0.4]], **CLOSE)
    assert mean(members, "softmax", "logits").argmax() == 1
    # A probability that float32 cannot hold is still one.
    members = np.array([[[200.0, 0, -60]], [[-180, 0, 60]]])
    np.testing.assert_allclose(mean(members, "softmax", "logits"), [[10, 0, 0]], **CLOSE)


@pytest.mark.parametrize("how", ensembles.ENSEMBLE_MEANS)
@pytest.mark.parametrize("candidates", ["context", "row"])
def test_spans_of_two_members_against_a_loop(how, candidates):
    """Every pair of a start and an end, in windows of different lengths."""
    options = {"candidates": candidates, "max_answer_length": 3, "n_best": 4}
    given, rng = batch("cls_first"), np.random.default_rng(1)
    heads = [make(BERT, "independent", **options) for _ in range(2)]
    for head in heads:
        for variable in head.trainable_variables:
            variable.assign(rng.normal(size=variable.shape))
    states = [rng.normal(size=(3, 11, 18)).astype(np.float32) for _ in heads]
    found = ensembles.predictions(
        [(head, None) for head in heads],
        [{"sequence_output": each} for each in states],
        given,
        how,
    )
    logits = []
    for head, each in zip(heads, states, strict=True):
        kernel, bias = (np.asarray(v, np.float64) for v in head.trainable_variables)
        logits.append(each @ kernel + bias)  # [B, T, 2]
    begin, size, first = (
        given[name].numpy() for name in ("context_start", "context_length", "window_start")
    )
    for b in range(3):
        context = range(begin[b], begin[b] + size[b])
        allowed = [0, *context]
        if candidates == "row":
            allowed = np.flatnonzero(given["padding_mask"][b])
        if how == "logits":
            scores = (logits[0][b] + logits[1][b]) / 2  # [T, 2]
        else:
            chances = [
                np.exp(each[b]) / np.exp(each[b][allowed]).sum(0, keepdims=True) for each in logits
            ]
            scores = np.log((chances[0] + chances[1]) / 2)
        spans = [
            (scores[start, 0] + scores[end, 1], start, end)
            for start in context
            for end in context
            if start <= end < start + 3
        ]
        spans.sort(reverse=True)
        best = spans[:4]
        np.testing.assert_allclose(found["span_scores"][b], [s for s, _, _ in best], **CLOSE)
        shift = first[b] - begin[b]
        np.testing.assert_array_equal(found["span_starts"][b], [s + shift for _, s, _ in best])
        np.testing.assert_array_equal(found["span_ends"][b], [e + shift for _, _, e in best])
        np.testing.assert_allclose(found["null_scores"][b], scores[0].sum(), **CLOSE)


def test_tags_of_two_members_have_the_largest_mean_probability():
    rng = np.random.default_rng(2)
    heads = [
        token_classification.Objective(TokenClassificationConfig(num_labels=3), BERT)
        for _ in range(2)
    ]
    chances = []
    states = [rng.normal(size=(2, 5, 18)).astype(np.float32) for _ in heads]
    for head, each in zip(heads, states, strict=True):
        head.build()
        for variable in head.trainable_variables:
            variable.assign(rng.normal(size=variable.shape))
        kernel, bias = (np.asarray(v, np.float64) for v in head.trainable_variables)
        chances.append(softmax(each @ kernel + bias))
    word_ids = tf.constant([[-1, 0, 1, -1, -1], [-1, 0, 1, 2, -1]])
    found = ensembles.predictions(
        [(head, None) for head in heads],
        [{"sequence_output": each} for each in states],
        {"word_ids": word_ids},
        "probabilities",
    )
    both = (chances[0] + chances[1]) / 2
    np.testing.assert_array_equal(found["tags"], both.argmax(-1))
    np.testing.assert_allclose(found["tag_probabilities"], both.max(-1), **CLOSE)
    assert (found["tags"] != chances[0].argmax(-1)).numpy().any()
