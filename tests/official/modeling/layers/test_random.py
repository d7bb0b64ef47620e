import keras
import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers import kernels
from official.modeling.layers.random import Draws, RandomWeights, uniforms


def uniform(rng):
    return np.array(keras.random.uniform((50,), seed=rng))


def test_the_same_pair_gives_the_same_draws_in_the_same_order():
    first, second = Draws((3, 7)), Draws((3, 7))
    for _ in range(3):
        np.testing.assert_array_equal(uniform(first), uniform(second))


def test_steps_and_call_sites_differ():
    rng = Draws((3, 7))
    draws = [uniform(rng), uniform(rng), uniform(rng)]
    draws += [uniform(Draws(pair)) for pair in [(4, 7), (3, 65536 + 7), (2, 7), (7, 3)]]
    for i, a in enumerate(draws):
        for b in draws[:i]:
            assert not np.isin(a, b).any()


@pytest.mark.parametrize(
    "pair",
    [
        (2**32 - 5, 2**31 + 9),
        (-5, 9 - 2**31),
        np.array([2**32 - 5, 2**31 + 9], "uint32"),
        tf.constant([2**32 - 5, 2**31 + 9], tf.uint32),
        (tf.constant(-5), tf.constant(9 - 2**31)),
    ],
)
def test_pairs_are_taken_modulo_2_to_the_32(pair):
    np.testing.assert_array_equal(uniform(Draws(pair)), uniform(Draws((2**32 - 5, 2**31 + 9))))


def test_a_traced_function_draws_anew_for_each_pair():
    @tf.function
    def draw(pair):
        rng = Draws(pair)
        return keras.random.uniform((50,), seed=rng), keras.random.uniform((50,), seed=rng)

    for pair in [(1, 2), (1, 3)]:
        rng = Draws(pair)
        for drawn in draw(tf.constant(pair)):
            np.testing.assert_array_equal(drawn, uniform(rng))


def test_no_variables():
    rng = Draws((1, 2))
    uniform(rng)
    assert not [x for x in vars(rng).values() if isinstance(x, keras.Variable | tf.Variable)]


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.03])
@pytest.mark.parametrize("shape", [(101, 997), (2, 3, 128, 128), (5,), (1,)])
def test_keep_meets_its_rate(rate, shape):
    kept = np.array(Draws((5, 6)).keep(shape, rate))
    assert kept.shape == shape
    assert kept.dtype == bool
    deviation = np.sqrt(rate * (1 - rate) / kept.size)
    assert abs((1 - kept.mean()) - rate) < 4 * deviation + 1 / kept.size


def test_elements_of_keep_are_independent():
    dropped = ~np.array(Draws((5, 6)).keep((1, 1_000_000), 0.1))[0]
    for lag in (1, 2, 3, 64, 512, 4096, 65_536):
        both = (dropped[lag:] & dropped[:-lag]).mean()
        assert abs(both - 0.01) < 4 * np.sqrt(0.01 * 0.99 / dropped.size), lag
    # Blocks of any size have as many dropped elements as independent draws have.
    for size in (16, 128, 1000):
        sums = dropped[: dropped.size // size * size].reshape(-1, size).sum(axis=1)
        variance = size * 0.1 * 0.9
        assert abs(sums.var() / variance - 1) < 5 * np.sqrt(2 / len(sums)), size


def test_keep_of_two_places_and_steps_is_independent():
    rng = Draws((5, 6))
    masks = [~np.array(rng.keep((10, 100_000), 0.1)).ravel() for _ in range(3)]
    masks += [
        ~np.array(Draws(pair).keep((10, 100_000), 0.1)).ravel() for pair in [(6, 6), (5, 65_542)]
    ]
    for i, a in enumerate(masks):
        for b in masks[:i]:
            for shift in (0, 1, 2, 1024):
                both = (a & np.roll(b, shift)).mean()
                assert abs(both - 0.01) < 4.5 * np.sqrt(0.01 * 0.99 / a.size)


def test_keep_is_the_same_compiled_and_not(monkeypatch):
    compiled = np.array(Draws((7, 8)).keep((300, 301), 0.3))
    monkeypatch.setattr(kernels, "SMALLEST", 10**9)
    np.testing.assert_array_equal(Draws((7, 8)).keep((300, 301), 0.3), compiled)


def test_keep_compares_hashes_of_rows_and_positions():
    """The hash again, in numpy."""

    def mix(x):
        x = x.astype(np.uint32)
        x ^= x >> np.uint32(16)
        x *= np.uint32(0x85EBCA6B)
        x ^= x >> np.uint32(13)
        x *= np.uint32(0xC2B2AE35)
        return x ^ x >> np.uint32(16)

    def hashes(numbers, one, other):
        return mix(mix(numbers + one) ^ other)

    one, other = mix(mix(1 + np.array([0, 0x9E3779B1], "uint32")) + np.uint32(2))
    rows, positions = np.arange(6, dtype="uint32")[:, None], np.arange(10, dtype="uint32")
    bits = hashes(positions, hashes(rows, one, other), hashes(rows, other, one))
    kept = np.array(Draws((1, 2)).keep((6, 2, 5), 0.25))
    np.testing.assert_array_equal(kept.reshape(6, 10), bits.view(np.int32) >= 2**30 - 2**31)
    drawn = uniforms(np.array([1, 2], "int32"), 10)
    np.testing.assert_array_equal(drawn, (hashes(positions, one, other) >> 8) * 2.0**-24)


def test_keep_depends_on_the_number_of_the_row_alone():
    whole = np.array(Draws((1, 2)).keep((12, 7), 0.5))
    dynamic = tf.function(
        lambda first, shape: Draws((1, 2), first, 2).keep((shape[0], 7), 0.5),
        input_signature=[tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.int32)],
    )
    for first in (0, 2, 4):
        # Two examples, with one row each, and with two.
        for rows in (2, 4):
            wanted = whole[first * rows // 2 :][:rows]
            np.testing.assert_array_equal(Draws((1, 2), first, 2).keep((rows, 7), 0.5), wanted)
            np.testing.assert_array_equal(dynamic(first, [rows, 7]), wanted)
        shared = np.array(Draws((1, 2), first, 2).shared().keep((2, 7), 0.5))
        np.testing.assert_array_equal(shared, Draws((1, 2)).shared().keep((2, 7), 0.5))


def test_rows_of_keep_are_independent():
    """The same element of all rows; and rows of one element, as of a pooled output."""
    for shape in [(100_000, 10), (1_000_000, 1)]:
        dropped = ~np.array(Draws((5, 6)).keep(shape, 0.1))
        for lag in (1, 2, 3, 64, 4096):
            both = (dropped[lag:] & dropped[:-lag]).mean()
            assert abs(both - 0.01) < 4 * np.sqrt(0.01 * 0.99 / dropped.size), lag


def test_the_draws_are_the_same_with_xla():
    def draw():
        rng = Draws((3, 4), 8, 2)
        return rng.keep((4, 3, 50), 0.3), uniforms(rng.next(), 50)

    for ours, compiled in zip(draw(), tf.function(draw, jit_compile=True)(), strict=True):
        np.testing.assert_array_equal(ours, compiled)


def test_keep_of_a_dynamic_shape():
    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def keep(x):
        return Draws((1, 2)).keep(keras.ops.shape(x), 0.5)

    for rows in (1, 4, 7):
        np.testing.assert_array_equal(keep(tf.zeros([rows, 3])), Draws((1, 2)).keep((rows, 3), 0.5))


def test_initial_values_are_seeded_normal_and_cut_at_two_deviations():
    initialize = RandomWeights("truncated_normal", 0.02, Draws((1, 0)))
    first, second = np.array(initialize((200, 300))), np.array(initialize((200, 300)))
    assert not np.isin(first, second).all()
    np.testing.assert_array_equal(
        first, RandomWeights("truncated_normal", 0.02, Draws((1, 0)))((200, 300))
    )
    assert np.abs(first).max() <= 0.04
    # The standard deviation of a normal that is cut at two deviations is 0.8796 of the whole's.
    assert first.std() == pytest.approx(0.02 * 0.8796, rel=0.01)
