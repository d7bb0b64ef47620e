import numpy as np
import pytest
from keras import ops

from official.modeling import masks

# A batch of two with different padding: on the right, and on the left.
PADDING = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]], bool)


def test_parts():
    mask = np.array(masks.parts(np.array([[0, 0, 1, 2], [0, 1, 1, 1]])))
    assert mask.shape == (2, 1, 4, 4)
    assert mask[0, 0].astype(int).tolist() == [
        [1, 1, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
    ]
    assert mask[1, 0].astype(int).tolist() == [
        [1, 0, 0, 0],
        [0, 1, 1, 1],
        [0, 1, 1, 1],
        [0, 1, 1, 1],
    ]


def test_blocks_see_themselves_and_those_before():
    ids = np.array([[0, 0, 1, 1, 1, 2], [0, 1, 1, 2, 3, 3]])
    mask = np.array(masks.combine(masks.blocks(ids), masks.padding(ids < 3)))
    assert mask.shape == (2, 1, 6, 6)
    for b in range(2):
        for t in range(6):
            for s in range(6):
                assert mask[b, 0, t, s] == (ids[b, s] <= ids[b, t] and ids[b, s] < 3)


def test_padding_lets_every_query_see_the_real_keys():
    mask = np.broadcast_to(masks.padding(PADDING), (2, 3, 4, 5))
    for b in range(2):
        for n in range(3):
            for t in range(4):
                for s in range(5):
                    assert mask[b, n, t, s] == PADDING[b, s]


def test_padding_takes_numbers_too():
    np.testing.assert_array_equal(masks.padding(PADDING.astype("int32")), masks.padding(PADDING))


@pytest.mark.parametrize("query_length, key_length", [(1, 1), (5, 5), (3, 7)])
def test_causal_sees_memory_itself_and_what_is_before(query_length, key_length):
    mask = np.array(masks.causal(query_length, key_length))
    assert mask.shape == (1, 1, query_length, key_length)
    memory = key_length - query_length
    for t in range(query_length):
        for s in range(key_length):
            assert mask[0, 0, t, s] == (s < memory or s - memory <= t)


def test_causal_from_a_slot_on_sees_what_is_before_and_not_what_is_to_come():
    mask = np.array(masks.causal(2, 7, 3))
    expected = [[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0, 0]]
    np.testing.assert_array_equal(mask[0, 0], np.array(expected, bool))


def test_causal_reaches_no_further_than_it_is_told():
    mask = np.array(masks.causal(3, 7, attention_window=4))
    expected = [[0, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1]]
    np.testing.assert_array_equal(mask[0, 0], np.array(expected, bool))
    mask = np.array(masks.causal(2, 7, 2, attention_window=2))
    expected = [[0, 1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0]]
    np.testing.assert_array_equal(mask[0, 0], np.array(expected, bool))
    np.testing.assert_array_equal(masks.causal(3, 7, attention_window=9), masks.causal(3, 7))


def test_combine_allows_what_all_allow():
    combined = np.array(masks.combine(masks.padding(PADDING), None, masks.causal(5, 5)))
    assert combined.shape == (2, 1, 5, 5)
    for b in range(2):
        for t in range(5):
            for s in range(5):
                assert combined[b, 0, t, s] == (PADDING[b, s] and s <= t)


def test_combine_of_nothing_is_none():
    assert masks.combine() is None
    assert masks.combine(None, None) is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_bias_hides_completely_and_adds_exactly_nothing(dtype):
    scores = np.array([[3.0, -50.0, 40.0], [2.0, 1.0, 0.5]], "float64")
    mask = np.array([[True, False, True], [False, True, False]])
    bias = ops.convert_to_numpy(masks.bias(mask, dtype)).astype("float64")
    assert (bias[mask] == 0).all()
    weights = np.exp(scores + bias - (scores + bias).max(-1, keepdims=True))
    assert (weights[~mask] == 0).all()
    assert np.isfinite(bias).all()


# Two orders of four tokens: 2, 0, 3, 1, and 3, 1, 0, 2; each sees those before it.
ORDERS = np.array(
    [
        [[0, 0, 1, 0], [1, 0, 1, 1], [0, 0, 0, 0], [1, 0, 1, 0]],
        [[0, 1, 0, 1], [0, 0, 0, 1], [1, 1, 0, 1], [0, 0, 0, 0]],
    ],
    bool,
)


def test_permutation_lets_the_content_see_itself_too():
    mask = np.asarray(masks.permutation(ORDERS))
    assert mask.shape == (2, 1, 4, 4)
    for b in range(2):
        for t in range(4):
            for s in range(4):
                assert mask[b, 0, t, s] == (ORDERS[b, t, s] or s == t)


def test_rows_of_a_mask():
    positions = np.array([[2, 0, 2], [3, 1, 0]], "int32")
    actual = np.asarray(masks.rows(ORDERS[:, None], positions))
    assert actual.shape == (2, 1, 3, 4)
    for b in range(2):
        for p in range(3):
            np.testing.assert_array_equal(actual[b, 0, p], ORDERS[b, positions[b, p]])
    # One mask for all examples, and one for all queries.
    causal = np.asarray(masks.rows(masks.causal(4, 6), positions))
    for b in range(2):
        for p in range(3):
            np.testing.assert_array_equal(causal[b, 0, p], np.arange(6) <= positions[b, p] + 2)
    padding = masks.padding(PADDING)
    np.testing.assert_array_equal(masks.rows(padding, positions), padding)
    assert masks.rows(None, positions) is None


def test_after_memory():
    slots = np.array([[0, 1], [1, 1]], bool)
    mask = np.asarray(masks.after_memory(masks.padding(PADDING), slots, 5))
    assert mask.shape == (2, 1, 1, 7)
    np.testing.assert_array_equal(mask[:, 0, 0], np.concatenate([slots, PADDING], axis=1))
    # A mask that is the same for all examples, and none.
    mask = np.asarray(masks.after_memory(masks.causal(5, 5), slots, 5))
    assert mask.shape == (2, 1, 5, 7)
    for b in range(2):
        for t in range(5):
            expected = [*slots[b], *(np.arange(5) <= t)]
            np.testing.assert_array_equal(mask[b, 0, t], expected)
    mask = np.asarray(masks.after_memory(None, slots, 5))
    np.testing.assert_array_equal(mask[:, 0, 0], [[0, 1, 1, 1, 1, 1, 1], [1] * 7])
