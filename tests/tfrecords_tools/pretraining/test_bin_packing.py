"""Tests of tfrecords_tools.pretraining.bin_packing."""

import itertools

import numpy as np
import pytest

from tfrecords_tools.pretraining import bin_packing
from tfrecords_tools.pretraining.bin_packing import pack


def rows(lengths, room, most):
    members, splits = pack(np.array(lengths), room, most)
    return [members[a:b].tolist() for a, b in itertools.pairwise(splits)]


def test_best_fit():
    # 9 | 6 | 5 (6 has no room) | 4 fits exactly beside the 6, 3 beside the 5, 1 beside the 9.
    assert rows([1, 6, 3, 9, 4, 5], 10, 9) == [[3, 0], [1, 4], [5, 2]]
    # What is left of 5 + 3 is 2: two of 1 go there after the 9 is full.
    assert rows([9, 5, 3, 1, 1, 1], 10, 9) == [[0, 3], [1, 2, 4, 5]]


def test_what_fills_a_row_exactly():
    # Best fit begins with 5 and 4, and 4, 3 and 2: a 2 is left. One of 5 needs 2 and 3 beside it.
    assert rows([5, 4, 4, 3, 2, 2], 10, 9) == [[0, 4, 3], [1, 5, 2]]
    assert rows([5, 4, 4, 3, 2, 2], 10, 2) == [[0, 1], [2, 3], [4, 5]]  # no more than two


def test_no_more_than_may_share_a_row():
    assert rows([1, 1, 1, 1, 1], 10, 2) == [[0, 1], [2, 3], [4]]
    assert rows([3, 9, 2], 10, 1) == [[0], [1], [2]]  # as given


def test_nothing_to_pack():
    assert rows([], 10, 4) == rows([], 10, 1) == []


@pytest.mark.parametrize("room", [128, 200, 512])
@pytest.mark.parametrize("most", [2, 3, 8])
@pytest.mark.parametrize("way", [bin_packing.best_fit, bin_packing.exact_fit])
def test_every_example_once_and_no_row_too_long(way, most, room):
    lengths = np.random.default_rng(most).integers(5, 129, 3000)
    result = way(lengths, room, most)
    assert sorted(itertools.chain(*result)) == list(range(3000))
    assert all(lengths[row].sum() <= room and len(row) <= most for row in result)
    assert len(rows(lengths, room, most)) <= len(result)


def test_little_is_left_free():
    lengths = np.clip(np.random.default_rng(0).normal(50, 20, 3000).astype(int), 5, 128)
    assert lengths.sum() / (128 * len(rows(lengths, 128, 8))) > 0.98


@pytest.mark.parametrize("seed", range(3))
def test_little_is_left_free_of_rows_that_are_longer_than_their_examples(seed):
    # Examples that end where the next sentence does not fit, and a few short ones.
    rng = np.random.default_rng(seed)
    lengths = np.r_[rng.normal(110, 12, 2000), rng.uniform(5, 129, 300)]
    lengths = np.clip(lengths.astype(int), 5, 128)
    assert lengths.sum() / (128 * len(rows(lengths, 128, 32))) < 0.9
    assert lengths.sum() / (512 * len(rows(lengths, 512, 32))) > 0.99
