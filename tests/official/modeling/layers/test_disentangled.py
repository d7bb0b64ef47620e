"""Scores of distances: the buckets of the release, and the terms against loops in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from official.config.encoders import Convolution, Disentangled, TransformerConfig
from official.modeling.layers.attention import Attention
from official.modeling.layers.disentangled import DistanceTable, log_buckets, table_rows
from official.modeling.layers.random import Draws, Initializers

RELEASED = {"buckets": 256, "max_distance": 512}
WORKED = {
    127: 127, 128: 128, 129: 129, 131: 131, 132: 131, 133: 132, 134: 133, 135: 133, 140: 137,
    150: 143, 192: 166, 200: 169, 256: 192, 300: 207, 400: 233, 500: 254, 506: 255, 511: 255,
    512: 255, 9000: 255,
}  # fmt: skip
# The first distance of some buckets.
EDGES = {
    132: 133, 133: 134, 134: 136, 135: 137, 136: 139, 140: 145, 145: 153, 149: 160, 244: 449,
    250: 479, 255: 506,
}  # fmt: skip
SMALL = {16: 16, 17: 17, 18: 17, 19: 18, 24: 19, 32: 22, 48: 24, 64: 27, 96: 29, 127: 31}


def test_buckets_are_those_of_the_release():
    assert log_buckets(list(WORKED), **RELEASED).tolist() == list(WORKED.values())
    small = log_buckets(list(SMALL), buckets=32, max_distance=128)
    assert small.tolist() == list(SMALL.values())
    buckets = log_buckets(np.arange(-600, 601), **RELEASED)
    np.testing.assert_array_equal(buckets, -buckets[::-1])
    np.testing.assert_array_equal(buckets[600 - 128 : 600 + 129], np.arange(-128, 129))
    upward = buckets[600:].tolist()
    for bucket, first in EDGES.items():
        assert upward.index(bucket) == first


def test_rows_of_the_table():
    distances = np.arange(-600, 601)
    rows = table_rows(distances, **RELEASED)
    np.testing.assert_array_equal(rows, log_buckets(distances, **RELEASED) + 256)
    assert rows.min() == 1 and rows.max() == 511  # row 0 is that of no distance
    rows = table_rows(distances, buckets=0, max_distance=512)
    np.testing.assert_array_equal(rows, np.clip(distances + 512, 0, 1023))


def test_only_rows_that_a_length_needs_are_read():
    table = DistanceTable(3, **RELEASED, norm=False, epsilon=1e-7, initializer="normal")
    table.build()
    for length, count in ((1, 3), (64, 129), (128, 257), (200, 339), (512, 511), (700, 511)):
        vectors, *rows = table.read(length)
        assert vectors.shape == (count, 3)
        down, up = np.arange(length, -length, -1), np.arange(-length, length)
        for own, distances in zip(rows, (down, up), strict=True):
            wanted = table.table.numpy()[table_rows(distances, **RELEASED)]
            np.testing.assert_array_equal(np.asarray(vectors)[np.asarray(own)], wanted)


def make(distances, length, buckets=4, max_distance=6):
    """An attention layer in float64, its table of distances, and states."""
    config = TransformerConfig(
        hidden_size=12, num_heads=3, attention_dropout=0.0, positions="none",
        disentangled=Disentangled(buckets, max_distance, own_projections=distances == "own"),
    )  # fmt: skip
    layer = Attention(config.block(), Initializers("normal"), dtype="float64")
    layer.build()
    rng = np.random.default_rng(length)
    for variable in layer.weights:
        variable.assign(rng.standard_normal(variable.shape))
    table = DistanceTable(
        12, buckets=buckets, max_distance=max_distance, norm=True, epsilon=1e-7,
        initializer="normal", dtype="float64",
    )  # fmt: skip
    table.build()
    table.table.assign(rng.standard_normal(table.table.shape))
    return layer, table, rng.standard_normal((2, length, 12))


def by_loop(layer, table, x, mirrored=False):
    """The scores of each pair of positions, one by one: [B, N, T, T]."""
    kernel = layer.query_key_value.kernel.numpy()
    vectors = table.norm(table.table.value).numpy()
    if layer.schemes[0].key_bias:
        bias = layer.query_key_value.bias.numpy()
        of_query, of_key, _ = np.split(vectors @ kernel + bias, 3, axis=-1)
    else:
        bias = np.insert(layer.query_key_value.weights[1].numpy(), 12, np.zeros(12))
        of_key = vectors @ layer.distance_key.kernel.numpy()
        own = layer.distance_query
        of_query = vectors @ own.kernel.numpy() + own.bias.numpy()
    batch, length, size = x.shape
    scores = np.zeros((batch, 3, length, length))
    rule = table.rule
    for b in range(batch):
        query, key, _ = np.split(x[b] @ kernel + bias, 3, axis=-1)
        for n in range(3):
            head = slice(4 * n, 4 * n + 4)
            for i in range(length):
                for j in range(length):
                    row = table_rows(i - j, **rule)
                    other = table_rows(j - i, **rule) if mirrored else row
                    scores[b, n, i, j] = (
                        query[i, head] @ key[j, head]
                        + query[i, head] @ of_key[row, head]
                        + key[j, head] @ of_query[other, head]
                    ) / np.sqrt(3 * 4)
    return scores


@pytest.mark.parametrize("distances", ["shared", "own"])
@pytest.mark.parametrize("buckets", [4, 0])
def test_scores_are_those_of_a_loop(distances, buckets):
    for length in (1, 2, 5, 9):
        layer, table, x = make(distances, length, buckets)
        actual = layer(tf.constant(x), positions=[table.read(length)]).scores
        np.testing.assert_allclose(actual, by_loop(layer, table, x), rtol=1e-12, atol=1e-12)
    # The form that the paper prints is another one.
    assert np.abs(actual - by_loop(layer, table, x, mirrored=True)).max() > 0.5


@pytest.mark.parametrize("distances", ["shared", "own"])
def test_gradients_are_those_of_a_look_up_for_each_pair(distances):
    """With queries at some positions, two of them twice."""
    layer, table, x = make(distances, 7)
    places = np.array([[3, 0, 3, 6], [1, 1, 5, 2]], "int32")
    factors = np.random.default_rng(1).standard_normal((2, 3, 7, 7))
    pairs = np.array([[table_rows(i - j, **table.rule) for j in range(7)] for i in range(7)])

    def looked_up(x):
        query, key, _ = layer.split(layer.query_key_value(x), 3)
        vectors = table.norm(table.table.value)
        if distances == "own":
            of_key, of_query = layer.distance_key(vectors), layer.distance_query(vectors)
        else:
            of_query, of_key, _ = tf.split(layer.query_key_value(vectors), 3, axis=-1)
        of_key, of_query = (tf.gather(tf.reshape(y, (-1, 3, 4)), pairs) for y in (of_key, of_query))
        scores = tf.einsum("bnih,bnjh->bnij", query, key)
        scores += tf.einsum("bnih,ijnh->bnij", query, of_key)
        scores += tf.einsum("bnjh,ijnh->bnij", key, of_query)
        return scores / np.sqrt(12)

    variables = [v for v in (*layer.weights, *table.weights) if "output" not in v.path]
    sources = [tf.constant(x), *(v.value for v in variables)]
    results = []
    for positions in (None, places):
        for way in ("layer", "pairs"):
            with tf.GradientTape() as tape:
                tape.watch(sources[0])
                if way == "layer":
                    read = table.read(7)
                    scores = layer(sources[0], positions=[read], query_positions=positions).scores
                else:
                    scores = looked_up(sources[0])
                    if positions is not None:
                        rows = [tf.gather(scores[b], places[b], axis=1) for b in range(2)]
                        scores = tf.stack(rows)
                total = tf.reduce_sum(scores * factors[:, :, : scores.shape[2]])
            results.append((scores, *tape.gradient(total, sources)))
    for ours, theirs in (results[:2], results[2:]):
        for actual, expected in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


def test_dropout_of_distances_is_drawn_in_each_layer_for_the_whole_batch():
    layer, table, _ = make("shared", 5)
    x = tf.zeros((2, 5, 12), tf.float64)
    rng = Draws((3, 4))
    first, second = (layer(x, positions=[table.read(5)], rng=rng).scores.numpy() for _ in range(2))
    plain = layer(x, positions=[table.read(5)]).scores.numpy()
    np.testing.assert_array_equal(first[0], first[1])
    assert np.abs(first - second).max() > 1e-3 and np.abs(first - plain).max() > 1e-3


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Disentangled(buckets=7), "buckets: 7 is not an even number of at least 4"),
        (lambda: Disentangled(buckets=2), "buckets: 2 is not an even number"),
        (lambda: Disentangled(max_distance=129), "max_distance: 129 is below 130, the minimum"),
        (lambda: Disentangled(buckets=0, max_distance=0), "max_distance: 0 is below 1"),
        (lambda: Convolution(4), "kernel_size: 4 is not an odd number"),
        (lambda: Convolution(3, "sin"), "activation: 'sin' is not one of"),
        (
            lambda: TransformerConfig(causal=True, disentangled=Disentangled()),
            "disentangled: not supported for causal: true; remove it",
        ),
        (
            lambda: TransformerConfig(num_layers=1, convolution=Convolution()),
            "convolution: it comes between two layers, but num_layers is 1",
        ),
    ],
)
def test_settings_that_there_are_none_of(make, message):
    with pytest.raises(ValueError, match=message):
        make()
