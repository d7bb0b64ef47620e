"""Targets in contexts, against a loop over one block."""

import numpy as np
import pytest
import tensorflow as tf

from official.corruption import partial_prediction
from official.utils import seeding
from official.utils.seeding import Stream
from tests.official.corruption.test_units import make_words


def seeds_of(count):
    return seeding.row_seeds(0, 0, tf.range(count, dtype=tf.int64))


def chosen_slowly(words, before, number, lengths, places, order, k, max_span, whole):
    """One block; `before` is the word of the token before it."""
    size, taken, left = len(words), set(), number
    begins = [w >= 0 and w != b for w, b in zip(words, [before, *words], strict=False)]
    text = [i for i, w in enumerate(words) if w >= 0]
    room = text[-1] + 1 if text else 0
    stretched = max(np.float32(k), np.float32((room + 1) / max(number, 1) - 1))
    at, step = np.float32(0), 0
    while max_span and left > 0 and at < size:
        n = min(lengths[step], left)
        context = np.float32(n) * stretched
        begin = ahead = int(at + places[step] * context)
        while begin < size and not begins[begin]:
            begin += 1
        if begin >= size:
            break
        end, seen = begin, 0
        while end < size and words[end] >= 0 and len(range(begin, end)) < left:
            seen += begins[end] if whole else 1
            if seen > n:
                break
            end += 1
        taken |= set(range(begin, end))
        left -= end - begin
        at, step = np.float32(end) + (at + context - np.float32(ahead)), step + 1
    opening = {}  # where each token's word begins in the block
    for i in text:
        goes_on = whole and i > 0 and not begins[i]
        opening[i] = opening[i - 1] if goes_on else i
    free = sorted((i for i in text if i not in taken), key=lambda i: (order[opening[i]], i))
    return taken | set(free[:left])


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("max_span", [0, 1, 5])
@pytest.mark.parametrize(
    "size, share, k", [(64, 0.15, 6), (64, 1.0, 2), (16, 0.3, 3), (10, 0.2, 1)]
)
def test_targets_are_those_of_the_slow_procedure(whole, max_span, size, share, k, backward):
    count, places = 60, 64
    rng = np.random.default_rng(1)
    words = [make_words(rng, n, places) for n in rng.integers(3, places, count)]
    blocks = -(-places // size)
    text = [[sum(w >= 0 for w in row[i * size :][:size]) for i in range(blocks)] for row in words]
    number = np.ceil(np.array(text) * share).astype(np.int32)
    most = int(number.max())
    seeds = seeds_of(count)
    reverse = rng.random(count) < (0.5 if backward else 0)
    result = partial_prediction.choose(
        tf.constant(words, tf.int32), tf.constant(number), seeds,
        size=size, max_targets=most, k=k, max_span=max_span, whole=whole,
        backward=tf.constant(reverse) if backward else None,
    ).numpy()  # fmt: skip
    steps = min(most, size)
    lengths = partial_prediction.span_lengths(seeds, blocks * steps, max(max_span, 1)).numpy()
    uniform = seeding.uniforms(seeds, Stream.CONTEXT, blocks * steps).numpy()
    order = seeding.bits(seeds, Stream.MASK_ORDER, blocks * size).numpy().astype(np.int64)
    for row in range(count):
        for block in range(blocks):
            start = block * size
            own = (words[row] + [-1] * size)[start : start + size]  # the last one may be filled up
            before = words[row][start - 1] if start else -1
            if reverse[row]:  # as it is read
                own, before = own[::-1], (words[row] + [-1] * size)[start + size]
            expected = chosen_slowly(
                own,
                before,
                number[row, block],
                lengths[row, block * steps :],
                uniform[row, block * steps :],
                order[row, start:],
                k, max_span, whole,
            )  # fmt: skip
            if reverse[row]:
                expected = {size - 1 - i for i in expected}
            actual = set(np.flatnonzero(result[row, start : start + size]).tolist())
            assert actual == expected, (row, block)
            assert len(actual) == min(number[row, block], text[row][block])


def test_lengths_of_spans():
    lengths = partial_prediction.span_lengths(seeds_of(2000), 50, 5).numpy()
    expected = np.array([0, 60, 30, 20, 15, 12]) / 137
    np.testing.assert_allclose(np.bincount(lengths.ravel()) / 1e5, expected, atol=0.005)


@pytest.mark.parametrize("number, k", [(14, 6), (21, 6), (40, 2)])
def test_targets_come_from_all_of_a_block(number, k):
    count, size = 4000, 128
    words = tf.tile(tf.range(size)[None], [count, 1])
    result = partial_prediction.choose(
        words, tf.fill([count, 1], number), seeds_of(count),
        size=size, max_targets=number, k=k, max_span=5, whole=True,
    ).numpy()  # fmt: skip
    assert (result.sum(axis=1) == number).all()
    share = result.reshape(count, 8, 16).mean(axis=(0, 2)) / (number / size)
    np.testing.assert_allclose(share[:-1], 1, atol=0.12)
    assert 0.5 < share[-1] < 1.2  # the walk may be at its end before
    assert result.mean(axis=0).min() > 0.01


def test_the_first_span_of_a_block_is_as_drawn():
    """Every token is a word, so nothing moves or shortens it."""
    count, k = 20_000, 6
    words = tf.tile(tf.range(60)[None], [count, 1])
    result = partial_prediction.choose(
        words, tf.fill([count, 1], 8), seeds_of(count),
        size=60, max_targets=8, k=k, max_span=5, whole=False,
    ).numpy()  # fmt: skip
    lengths = partial_prediction.span_lengths(seeds_of(count), 8, 5).numpy()[:, 0]
    begins = result.argmax(axis=1)
    for n in range(1, 6):
        some = begins[lengths == n]
        # Even over the places 0 ... n·k', where k' is 61 / 8 targets - 1.
        assert some.max() == int(n * 6.625)
        np.testing.assert_allclose(some.mean(), (n * 6.625 - 1) / 2, rtol=0.06)
    taken = np.take_along_axis(result, begins[:, None] + np.arange(5), axis=1)
    assert (taken.cumprod(axis=1).sum(axis=1) >= lengths).all()


def test_blocks_of_nothing_but_specials():
    words = tf.constant([[-1, -1, 0, 0, -1, -1], [-1, -1, -1, -1, -1, -1]])
    for whole in (False, True):
        for max_span in (0, 2):
            result = partial_prediction.choose(
                words, tf.constant([[2, 2], [1, 1]]), seeds_of(2),
                size=3, max_targets=4, k=2, max_span=max_span, whole=whole,
            )  # fmt: skip
            assert result.numpy().astype(int).tolist() == [[0, 0, 1, 1, 0, 0], [0] * 6]
