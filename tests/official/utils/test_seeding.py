import numpy as np
import tensorflow as tf

from official.utils import host_seeding, seeding

WORD = 2**64


def mix(state):
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % WORD
    return state ^ (state >> 31)


def test_mix_is_the_published_splitmix64():
    # The first outputs of SplitMix64 from state 1234567, as its reference code prints them.
    states = tf.constant([(1234567 + i * 0x9E3779B97F4A7C15) % WORD for i in (1, 2, 3)], tf.uint64)
    assert seeding.mix(states).numpy().tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_row_seeds_and_bits_equal_plain_integers():
    step = 0x9E3779B97F4A7C15
    rows = seeding.row_seeds(7, 2, tf.constant([0, 5, 2**40], tf.int64))
    expected = [
        mix((mix((mix(7) + step + 2) % WORD) + step + index) % WORD) for index in (0, 5, 2**40)
    ]
    assert rows.numpy().tolist() == expected
    drawn = seeding.bits(rows, 3, 4).numpy().tolist()
    for row, numbers in zip(expected, drawn, strict=True):
        key = mix(row ^ mix(4 * step % WORD))
        assert numbers == [mix((key + (i + 1) * step) % WORD) for i in range(4)]


def test_any_python_integer_is_a_seed():
    index = tf.range(3, dtype=tf.int64)
    seeds = [seeding.row_seeds(s, 0, index).numpy().tolist() for s in (-1, 0, 1, 2**63)]
    assert len({tuple(s) for s in seeds}) == 4


def test_a_row_draws_the_same_in_any_batch_and_length():
    rows = seeding.row_seeds(1, 0, tf.range(6, dtype=tf.int64))
    whole = seeding.uniforms(rows, 0, 50).numpy()
    np.testing.assert_array_equal(seeding.uniforms(rows[2:4], 0, 20).numpy(), whole[2:4, :20])


def test_the_same_eagerly_and_in_a_graph():
    index = tf.range(4, dtype=tf.int64)

    def draw(epoch):
        return seeding.uniforms(seeding.row_seeds(3, epoch, index), 1, 9)

    np.testing.assert_array_equal(
        tf.function(draw)(tf.constant(5, tf.int64)).numpy(), draw(5).numpy()
    )


def test_uniforms_are_uniform_and_independent():
    rows = seeding.row_seeds(0, 0, tf.range(1000, dtype=tf.int64))
    u = seeding.uniforms(rows, 0, 128).numpy().astype(np.float64)
    assert 0 <= u.min() and u.max() < 1
    n = u.size
    assert abs(u.mean() - 0.5) < 3 * np.sqrt(1 / 12 / n)
    counts = np.histogram(u, bins=64, range=(0, 1))[0]
    chi2 = ((counts - n / 64) ** 2 / (n / 64)).sum()
    assert abs(chi2 - 63) < 4 * np.sqrt(2 * 63)
    for other in (
        np.roll(u, 1, axis=0),  # the next example
        np.roll(u, 1, axis=1),  # the next place
        seeding.uniforms(rows, 1, 128).numpy(),  # another stream
        seeding.uniforms(seeding.row_seeds(0, 1, tf.range(1000)), 0, 128).numpy(),  # epoch
        seeding.uniforms(seeding.row_seeds(1, 0, tf.range(1000)), 0, 128).numpy(),  # seed
    ):
        assert abs(np.corrcoef(u.ravel(), other.ravel())[0, 1]) < 4 / np.sqrt(n)


def test_integers_cover_the_range_evenly():
    rows = seeding.row_seeds(0, 0, tf.range(1000, dtype=tf.int64))
    drawn = seeding.integers(rows, 0, 100, 30).numpy()
    assert drawn.dtype == np.int32
    counts = np.bincount(drawn.ravel(), minlength=30)
    assert len(counts) == 30
    expected = drawn.size / 30
    assert np.abs(counts - expected).max() < 4 * np.sqrt(expected)


def test_weighted_draws_follow_the_counts():
    rows = seeding.row_seeds(0, 0, tf.range(1000, dtype=tf.int64))
    counts = np.array([0, 5, 0, 0, 3 * 2**40, 2**40, 0])
    drawn = seeding.weighted(rows, 0, 100, np.cumsum(counts)).numpy()
    assert drawn.dtype == np.int32 and drawn.shape == (1000, 100)
    actual = np.bincount(drawn.ravel(), minlength=7)
    assert actual[[0, 1, 2, 3, 6]].sum() == 0
    assert abs(actual[4] - 75_000) < 4 * np.sqrt(1e5 * 0.75 * 0.25)
    # Every piece that has a count can be drawn.
    few = seeding.weighted(rows, 0, 100, np.cumsum([1, 0, 1, 2])).numpy()
    np.testing.assert_allclose(np.bincount(few.ravel()) / 1e5, [0.25, 0, 0.25, 0.5], atol=0.01)


def test_numpy_rng_depends_on_every_counter_and_their_number():
    keys = [(1,), (1, 0), (1, 1), (0, 1), (2**32 + 1,), (1, 0, 0)]
    draws = {host_seeding.numpy_rng(*key).random() for key in keys}
    assert len(draws) == len(keys)
    assert host_seeding.numpy_rng(1, 2).random() == host_seeding.numpy_rng(1, 2).random()


def test_numpy_rng_stays_what_it_was():
    # Shards made today must be made again tomorrow.
    assert host_seeding.numpy_rng(0, 1).integers(0, 1000, 4).tolist() == [662, 61, 625, 113]
