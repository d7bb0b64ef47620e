"""Tests of tfrecords_tools.writing.example_bytes."""

import numpy as np
import pytest
import tensorflow as tf

from official.shards import features
from tfrecords_tools.writing import example_bytes

EDGES = [0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21, 2**28, 2**31 - 1]


def _protobuf(example):
    message = tf.train.Example()
    for name, values in example.items():
        field = message.features.feature[name]
        if np.asarray(values).dtype == np.float32:
            field.float_list.value.extend(values)
        else:
            field.int64_list.value.extend(values)
    return message.SerializeToString(deterministic=True)


def _column(lists, dtype):
    values = np.concatenate([np.asarray(x, dtype) for x in lists])
    return values, np.concatenate([[0], np.cumsum([len(x) for x in lists])])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_bytes_of_protobuf(dtype):
    rng = np.random.default_rng(0)
    lists = [EDGES, [5], [2**31 - 1] * 40, *(rng.integers(0, 2**15, n) for n in (1, 60, 127, 500))]
    floats = [np.asarray(rng.normal(size=len(x) % 7 + 1), np.float32) for x in lists]
    one = [[i % 2] for i in range(len(lists))]
    got = example_bytes.serialize(
        {
            "z": _column(lists, dtype),
            "floats": _column(floats, np.float32),
            "a": _column(one, dtype),
        }
    )
    for x, f, o, serialized in zip(lists, floats, one, got, strict=True):
        assert serialized == _protobuf({"a": o, "floats": f, "z": np.asarray(x)})


def test_numbers_beyond_32_bits():
    lists = [[2**40, 3, 2**28, 2**35 - 1], [2**56 - 1]]
    assert example_bytes.serialize({"x": _column(lists, np.int64)}) == [
        _protobuf({"x": x}) for x in lists
    ]


def test_same_as_one_example_at_a_time():
    token_ids = [[2, 1200, 30000, 3], [2, 7, 3, 9, 3]]
    got = example_bytes.serialize(
        {
            "token_ids": _column(token_ids, np.int32),
            "segment_lengths": example_bytes.rows(np.array([[4, 0], [3, 2]])),
            "next_sentence_label": example_bytes.rows(np.array([[0], [1]])),
        }
    )
    assert got == [
        features.serialize({"token_ids": t, "segment_lengths": s, "next_sentence_label": n})
        for t, s, n in zip(token_ids, [[4, 0], [3, 2]], [0, 1], strict=True)
    ]


def test_no_examples():
    assert example_bytes.serialize({"x": (np.zeros(0, np.int32), np.zeros(1, int))}) == []


@pytest.mark.parametrize("number", [-1, 2**56])
def test_numbers_that_are_refused(number):
    with pytest.raises(ValueError, match=r"only numbers from 0 to 2\^56 - 1"):
        example_bytes.serialize({"x": example_bytes.rows(np.array([[1, number]]))})
