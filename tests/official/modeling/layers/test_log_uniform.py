"""The log-uniform sampler: its joint law of classes and tries, by draws with replacement."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers import log_uniform
from official.modeling.layers.random import Draws


def law(size):
    k = np.arange(size)
    return np.log((k + 2) / (k + 1)) / math.log(size + 1)


def many(count, size, times):
    """The classes [times, count] and the tries [times] of some calls."""

    @tf.function
    def draw():
        one = lambda i: log_uniform.sample(count, size, Draws((7, i * 16)))  # noqa: E731
        return tf.vectorized_map(one, tf.range(times))

    classes, tries = draw()
    return classes.numpy(), tries.numpy()


def with_replacement(count, size, times, rng):
    """The same by draws with replacement until there are enough different classes."""
    classes, tries = [], []
    for _ in range(times):
        seen = []
        number = 0
        while len(seen) < count:
            number += 1
            drawn = int(rng.choice(size, p=law(size)))
            seen += [drawn] if drawn not in seen else []
        classes.append(seen)
        tries.append(number)
    return np.array(classes), np.array(tries)


def test_probabilities():
    p = np.array(log_uniform.probabilities(np.arange(1000), 1000))
    np.testing.assert_allclose(p, law(1000), rtol=2e-6)
    assert p.sum() == pytest.approx(1, abs=1e-6)
    counts = np.exp(log_uniform.log_expected_counts(np.arange(1000), 300.0, 1000))
    np.testing.assert_allclose(counts, 1 - (1 - law(1000)) ** 300, rtol=1e-5)
    _, _, theirs = tf.random.log_uniform_candidate_sampler(
        tf.zeros((1, 1), tf.int64), 1, 40, unique=False, range_max=1000
    )
    assert theirs.shape == (40,)


@pytest.mark.slow
def test_classes_and_tries_have_the_law_of_draws_with_replacement():
    size, count, times = 6, 3, 20_000
    classes, tries = many(count, size, times)
    assert all(len(set(row)) == count for row in classes.tolist())
    expected_classes, expected_tries = with_replacement(
        count, size, times, np.random.default_rng(0)
    )
    # Of each ordered triple with its number of tries.
    ours, theirs = (
        collections.Counter((*row, int(number)) for row, number in zip(*pair, strict=True))
        for pair in ((classes.tolist(), tries), (expected_classes.tolist(), expected_tries))
    )
    checked = 0
    for key, number in theirs.items():
        if number < 50:
            continue
        checked += 1
        assert abs(ours[key] - number) < 4.5 * math.sqrt(2 * number), key
    assert checked > 60
    # The first class has the law itself, and the mean number of tries is that of the draws.
    first = np.bincount(classes[:, 0], minlength=size) / times
    np.testing.assert_allclose(first, law(size), atol=4 * 0.5 / math.sqrt(times))
    error = 4 * math.sqrt(2) * expected_tries.std() / math.sqrt(times)
    assert abs(tries.mean() - expected_tries.mean()) < error


def test_tries_of_a_large_vocabulary_are_those_of_tensorflow():
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
    classes, tries = log_uniform.sample(40, 40, Draws((1, 0)))
    assert sorted(np.array(classes).tolist()) == list(range(40))
    assert 40 < float(tries) < 1e5
    again, _ = log_uniform.sample(40, 40, Draws((1, 0)))
    other, _ = log_uniform.sample(40, 40, Draws((2, 0)))
    np.testing.assert_array_equal(classes, again)
    assert (np.array(classes) != np.array(other)).any()
