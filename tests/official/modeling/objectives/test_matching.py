"""The distances between student and teacher against loops by hand, in float64."""

import math
import types

import numpy as np
import pytest
import tensorflow as tf

from official.modeling.objectives import distillation

RNG = np.random.default_rng(0)
REAL = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)


def softmax(x):
    e = [math.exp(v - max(x)) for v in x]
    return [v / sum(e) for v in e]


def kl(p, q):
    return sum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True) if a)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("count", [1, 3])
def test_divergence_is_of_the_mean_of_probabilities(temperature, count):
    student, teachers = RNG.normal(size=(4, 6)) * 3, RNG.normal(size=(count, 4, 6)) * 3
    actual = distillation.divergence(student, list(teachers), temperature)
    for r in range(4):
        targets = [softmax([v / temperature for v in t[r]]) for t in teachers]
        target = [sum(column) / count for column in zip(*targets, strict=True)]
        guess = softmax([v / temperature for v in student[r]])
        assert actual[r].numpy() == pytest.approx(kl(target, guess), abs=1e-12)
    same = distillation.divergence(student, [student] * count, temperature)
    np.testing.assert_allclose(same, 0, atol=1e-12)


def test_divergence_of_certain_teachers_is_finite():
    teachers = [np.array([[800.0, 0, 0]]), np.array([[800.0, 0, 0]])]
    actual = distillation.divergence(np.zeros((1, 3)), teachers)
    np.testing.assert_allclose(actual, [math.log(3)], rtol=1e-12)


def test_cosine_distance_and_squared_error():
    a, b = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 3, 4))
    for index in np.ndindex(2, 3):
        x, y = a[index], b[index]
        product = sum(p * q for p, q in zip(x, y, strict=True))
        lengths = math.sqrt(sum(p * p for p in x)) * math.sqrt(sum(q * q for q in y))
        assert distillation.cosine_distance(a, b)[index].numpy() == pytest.approx(
            1 - product / lengths
        )
        mean = sum((p - q) ** 2 for p, q in zip(x, y, strict=True)) / 4
        assert distillation.squared_error(a, b)[index].numpy() == pytest.approx(mean)


def test_pairs_are_of_real_tokens_of_one_part():
    parts = np.array([[0, 0, 1, 1, 1], [0, 0, 0, 1, 1]])
    blocks = np.array([[0, 0, 0, 1, 1], [0, 0, 1, 1, 1]])
    for batch, causal in [
        ({"padding_mask": REAL}, False),
        ({"padding_mask": REAL.astype("int32")}, True),
        ({"padding_mask": REAL, "part_ids": parts}, False),
        ({"padding_mask": REAL, "part_ids": parts, "block_ids": blocks}, True),
    ]:
        actual = distillation.pairs(batch, causal).numpy()
        for b, i, j in np.ndindex(2, 5, 5):
            expected = REAL[b, i] and REAL[b, j]
            expected &= "part_ids" not in batch or parts[b, i] == parts[b, j]
            expected &= "block_ids" not in batch or blocks[b, i] >= blocks[b, j]
            expected &= not causal or j <= i
            assert actual[b, i, j] == expected, (causal, b, i, j)


def test_score_error():
    student, target = RNG.normal(size=(2, 3, 5, 5)), RNG.normal(size=(2, 3, 5, 5))
    actual = distillation.score_error(student, target, distillation.pairs({"padding_mask": REAL}))
    for b in range(2):
        expected = 0.0
        for n, i, j in np.ndindex(3, 5, 5):
            if REAL[b, i] and REAL[b, j]:
                expected += (student[b, n, i, j] - target[b, n, i, j]) ** 2 / 3
        assert actual[b].numpy() == pytest.approx(expected, abs=1e-9)


def test_relation_divergence_ignores_padding():
    student, target = RNG.normal(size=(2, 3, 5, 5)), RNG.normal(size=(2, 3, 5, 5))
    related = distillation.pairs({"padding_mask": REAL})
    actual = distillation.relation_divergence(student, target, related).numpy()
    for b, i in np.ndindex(2, 5):
        expected, real = 0.0, np.flatnonzero(REAL[b])
        for n in range(3) if REAL[b, i] else ():
            expected += kl(softmax(target[b, n, i, real]), softmax(student[b, n, i, real])) / 3
        assert actual[b, i] == pytest.approx(expected, abs=1e-12)
    student[0, :, :, 3:] = target[0, :, 3:] = 1e5
    again = distillation.relation_divergence(student, target, related).numpy()
    np.testing.assert_allclose(again, actual, atol=1e-12)


@pytest.mark.parametrize("heads", [0, 2, 4, 8])
@pytest.mark.parametrize("kind", ["query", "key", "value"])
def test_relations_join_and_split_the_heads(kind, heads):
    vectors = {name: RNG.normal(size=(2, 4, 5, 6)) for name in ("query", "key", "value")}
    actual = distillation.relation(types.SimpleNamespace(**vectors), kind, heads).numpy()
    count = heads or 4
    joined = vectors[kind].transpose(0, 2, 1, 3).reshape(2, 5, 24)
    size = 24 // count
    assert actual.shape == (2, count, 5, 5)
    for b, g, i, j in np.ndindex(2, count, 5, 5):
        x, y = (joined[b, k, g * size : (g + 1) * size] for k in (i, j))
        assert actual[b, g, i, j] == pytest.approx(float(x @ y) / math.sqrt(size), abs=1e-12)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_relations_in_a_graph_of_the_user(index, default_optimizer):
    """TensorFlow's optimizer computes some products of any output of `unstack` from the first.

    These are float32 products of a scaled output, to which a mask is added.
    """
    joined = tf.constant(RNG.normal(size=(3, 2, 4, 5, 6)), tf.float32)
    related = REAL[:, None, :, None] & REAL[:, None, None, :]
    hidden = tf.constant(np.where(related, 0, -1e9), tf.float32)

    def logits(joined, relation):
        vectors = types.SimpleNamespace(value=tf.unstack(joined)[index])
        return relation(vectors, "value") + hidden

    expected = logits(joined, distillation.relation)
    found = tf.function(logits)(joined, distillation.relation)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_attention_relation_is_the_scores():
    scores = RNG.normal(size=(2, 4, 5, 5))
    attended = types.SimpleNamespace(scores=scores)
    np.testing.assert_array_equal(distillation.relation(attended, "attention"), scores)
