import numpy as np
import pytest
import tensorflow as tf

from official.config.encoders import TransformerXLConfig
from official.modeling.layers import positions
from official.modeling.layers.positions import distance_vectors
from official.modeling.layers.random import Initializers
from official.modeling.layers.relative_attention import (
    AttentionStream,
    RelativeAttention,
    RelativePositions,
)


def by_distance(rng, rows, keys, length, bidirectional):
    """Scores [2, 3, rows, R], and how to find that of a distance."""
    count = keys + (length if bidirectional else 1)
    return rng.standard_normal((2, 3, rows, count)), lambda distance: keys - distance


@pytest.mark.parametrize("bidirectional", [True, False])
def test_shift_equals_a_matrix_made_by_hand(bidirectional):
    rng = np.random.default_rng(0)
    for length in range(1, 13):
        for memory in (0, 1, 4):
            keys = memory + length
            scores, column = by_distance(rng, length, keys, length, bidirectional)
            actual = np.asarray(positions.shift(tf.constant(scores), keys))
            assert actual.shape == (2, 3, length, keys)
            for i in range(length):
                for j in range(keys):
                    distance = memory + i - j
                    if bidirectional or distance >= 0:
                        expected = scores[:, :, i, column(distance)]
                        np.testing.assert_array_equal(actual[:, :, i, j], expected)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_rows_from_anywhere_and_their_gradient(bidirectional):
    rng = np.random.default_rng(1)
    for length in range(1, 13):
        for memory in (0, 3):
            keys = memory + length
            scores, column = by_distance(rng, 5, keys, length, bidirectional)
            places = rng.integers(0, length, (2, 5)).astype("int32")
            factors = rng.standard_normal((2, 3, 5, keys))
            scores = tf.constant(scores)
            with tf.GradientTape() as tape:
                tape.watch(scores)
                actual = positions.shift_to(scores, tf.constant(length - places), keys=keys)
                # What lies after a query has no score of its own where distances are one-sided.
                after = np.arange(keys) > memory + places[:, None, :, None]
                counted = np.where(after & (not bidirectional), 0, factors)
                total = tf.reduce_sum(actual * counted)
            gradient = np.zeros(scores.shape)
            for b in range(2):
                for p in range(5):
                    for j in range(keys):
                        distance = memory + places[b, p] - j
                        if bidirectional or distance >= 0:
                            c = column(distance)
                            np.testing.assert_array_equal(actual[b, :, p, j], scores[b, :, p, c])
                            gradient[b, :, p, c] += counted[b, :, p, j]
            np.testing.assert_allclose(tape.gradient(total, scores), gradient, atol=1e-12)


@pytest.mark.parametrize("clamp", [0, 2])
def test_distance_vectors(clamp):
    vectors = distance_vectors(
        3, 5, 6, bidirectional=True, clamp=clamp, backward=True, dtype="float64"
    ).numpy()
    assert vectors.shape == (2, 8, 6)
    for column, distance in enumerate(range(5, -3, -1)):
        distance = max(-2, min(2, distance)) if clamp else distance
        for sign, actual in zip((1, -1), vectors[:, column], strict=True):
            angles = [sign * distance * 10000 ** (-2 * i / 6) for i in range(3)]
            np.testing.assert_allclose(actual, [*np.sin(angles), *np.cos(angles)], atol=1e-12)
    one_sided = distance_vectors(3, 5, 6, bidirectional=False, clamp=clamp, dtype="float64")
    np.testing.assert_allclose(one_sided, vectors[:1, :6], atol=1e-12)


def test_one_product_or_two_make_the_same():
    sizes = {"hidden_size": 8, "num_heads": 2, "head_size": 3, "attention_dropout": 0.0}
    parts = TransformerXLConfig(**sizes, segment_types=2).block()
    layer = RelativeAttention(parts, Initializers("glorot_normal"), name="a")
    layer.build()
    rng = np.random.default_rng(2)
    x = tf.constant(rng.standard_normal((2, 5, 8)), tf.float32)
    distances = distance_vectors(5, 5, 8, bidirectional=True, dtype="float32")
    options = {"streams": [AttentionStream()], "positions": RelativePositions(distances)}
    fused, weights, _ = layer(x, **options)
    apart, again, _ = layer(x, content=x, **options)
    np.testing.assert_allclose(fused, apart, atol=1e-6)
    np.testing.assert_allclose(weights[0], again[0], atol=1e-6)
    np.testing.assert_array_equal(layer(x)[0], fused)  # what is not given is all of it
    # A memory nobody may look into changes nothing, and the first key keeps its distance.
    longer = distance_vectors(5, 7, 8, bidirectional=True, dtype="float32")
    mask = np.arange(7)[None, None, None] >= 2
    masked, weights, _ = layer(
        x,
        streams=[AttentionStream(mask)],
        positions=RelativePositions(longer),
        memory=tf.ones((2, 2, 8)),
    )
    np.testing.assert_allclose(masked, fused, atol=1e-6)
    np.testing.assert_array_equal(weights[0][..., :2], np.zeros((2, 2, 5, 2)))
