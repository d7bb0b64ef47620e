"""Batches in which no text stands twice: which rows they have."""

import numpy as np
import pytest

from official.data import distinct_texts

COMMON = 9999


def check(texts, places):
    """No text is in two rows of a batch, no row in two batches, and what is empty is at the end."""
    rows = places[places >= 0]
    assert len(set(rows)) == len(rows)
    for batch in places:
        own = batch[batch >= 0]
        assert batch[: len(own)].tolist() == own.tolist() and len(own)
        kept = [text for row in own for text in set(texts[row])]
        assert len(set(kept)) == len(kept)
    return np.setdiff1d(np.arange(len(texts)), rows)


def test_rows_go_to_the_first_batch_with_room_and_none_of_their_texts():
    texts = np.array([[1, 2], [3, 1], [4, 5], [5, 6], [7, 8], [2, 9], [10, 10], [11, 12]])
    places = distinct_texts.places(texts, 2)
    # Row 1 has a text of row 0, and row 3 one of row 2; row 5 waits because of row 0.
    assert places.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert check(texts.tolist(), places).size == 0


def test_a_row_moves_for_one_that_waits():
    texts = np.array([[1], [2], [3], [3]])
    assert distinct_texts.places(texts, 2).tolist() == [[1, 3], [2, 0]]
    # Two rows wait: one takes the place of a row that moves, and so does the other.
    texts = np.array([[1], [2], [3], [4], [4], [4]])
    places = distinct_texts.places(texts, 3)
    assert check(texts.tolist(), places).size == 0


def test_a_text_of_more_rows_than_batches():
    texts = np.array([[5], [5], [5], [5], [5], [1], [2], [3], [4]])
    places = distinct_texts.places(texts, 3)
    assert check(texts.tolist(), places).tolist() == [3, 4]
    assert (places < 0).sum() == 2 and (places[:, 0] >= 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_left_out_that_has_a_place(seed):
    """As in data of inference: each premise is in four rows; then one text is in 38 of 640."""
    rng = np.random.default_rng(seed)
    count, batches = 640, 20
    first = rng.permutation(np.repeat(np.arange(count // 4), 4))
    second = rng.integers(1000, 1400, count)
    texts = np.stack([first, second], axis=1)
    places = distinct_texts.places(texts, batches)
    assert check(texts.tolist(), places).size == 0 and places.shape == (20, 32)
    common = np.where(rng.random(count) < 0.06, COMMON, second + 1000)
    left = check(
        np.stack([first, common], 1).tolist(),
        distinct_texts.places(np.stack([first, common], 1), batches),
    )
    assert (common[left] == COMMON).all() and len(left) == (common == COMMON).sum() - batches
    np.testing.assert_array_equal(places, distinct_texts.places(texts, batches))
