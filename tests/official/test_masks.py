import numpy as np
import pytest
from keras import ops

from official import masks

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
