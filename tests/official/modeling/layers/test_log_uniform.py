"""The log-uniform sampler: its law, its tries and its weights."""

import math

import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers.random import Draws
from official.modeling.objectives import bilm


def law(size):
    k = np.arange(size)
    return np.log((k + 2) / (k + 1)) / math.log(size + 1)


def many(count, size, times):
    """The classes [times, count] and the tries [times] of some calls."""

    @tf.function
    def draw():
        one = lambda i: bilm.sampled_classes(count, size, Draws((7, i * 16)))  # noqa: E731
        return tf.vectorized_map(one, tf.range(times))

    classes, tries = draw()
    return classes.numpy(), tries.numpy()


def test_probabilities():
    p = np.array(bilm.log_uniform_probabilities(np.arange(1000), 1000))
    np.testing.assert_allclose(p, law(1000), rtol=2e-6)
    assert p.sum() == pytest.approx(1, abs=1e-6)
    counts = np.exp(bilm.log_expected_counts(np.arange(1000), 300.0, 1000))
    np.testing.assert_allclose(counts, 1 - (1 - law(1000)) ** 300, rtol=1e-5)


def test_classes_come_by_the_law():
    size, times = 6, 20_000
    classes, _ = many(3, size, times)
    assert all(len(set(row)) == 3 for row in classes[:1000].tolist())
    rates = -np.log1p(-law(size))
    # The first class, and the second one after each first one.
    first = np.bincount(classes[:, 0], minlength=size)
    share = rates / rates.sum()
    assert (abs(first - times * share) < 4 * np.sqrt(times * share)).all()
    for k in range(size):
        second = np.bincount(classes[classes[:, 0] == k, 1], minlength=size)
        expected = first[k] * np.delete(rates, k) / np.delete(rates, k).sum()
        assert second[k] == 0
        assert (abs(np.delete(second, k) - expected) < 4.5 * np.sqrt(expected)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [(3, 6), (10, 50)])
def test_weights_of_drawn_classes_have_the_expectation_one(count, size):
    times = 100_000
    classes, tries = many(count, size, times)
    counts = -np.expm1(tries[:, None].astype(float) * np.log1p(-law(size)[classes]))
    total = np.bincount(classes.ravel(), 1 / counts.ravel(), size) / times
    squares = np.bincount(classes.ravel(), 1 / counts.ravel() ** 2, size) / times
    errors = np.sqrt((squares - total**2) / times)
    z = (total - 1) / errors
    assert abs(z).max() < 3.5 and abs(z.mean()) < 3 / math.sqrt(size) * 1.5
    assert (errors < 0.02).all()


def test_tries_are_those_of_tensorflow():
    size, count = 20_000, 500
    _, tries = many(count, size, 30)
    # An expected count of a class of TensorFlow's sampler gives its number of tries.
    theirs = []
    for seed in range(30):
        ids, _, counts = tf.random.log_uniform_candidate_sampler(
            tf.zeros((1, 1), tf.int64), 1, count, unique=True, range_max=size, seed=seed + 1
        )
        p = law(size)[ids.numpy()]
        middle = np.argsort(p)[count // 2]
        theirs.append(math.log1p(-float(counts[middle])) / math.log1p(-p[middle]))
    error = 4 * math.hypot(tries.std(), np.std(theirs)) / math.sqrt(30)
    assert abs(tries.mean() - np.mean(theirs)) < error < 0.05 * np.mean(theirs)


def test_all_classes():
    classes, tries = bilm.sampled_classes(40, 40, Draws((1, 0)))
    assert sorted(np.array(classes).tolist()) == list(range(40))
    assert (np.array(bilm.log_expected_counts(classes, tries, 40)) == 0).all()
    again, _ = bilm.sampled_classes(40, 40, Draws((1, 0)))
    other, _ = bilm.sampled_classes(40, 40, Draws((2, 0)))
    np.testing.assert_array_equal(classes, again)
    assert (np.array(classes) != np.array(other)).any()
