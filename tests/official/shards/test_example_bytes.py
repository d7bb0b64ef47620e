"""Tests of official.shards.example_bytes: protobuf's own writer is the reference."""

import numpy as np
import pytest
import tensorflow as tf

from official.shards import example_bytes, features

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


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_negative_numbers(dtype):
    lists = [[-1], [0, -(2**31), 127, 128, 5], [2**31 - 1, -128]]
    assert example_bytes.serialize({"x": _column(lists, dtype)}) == [
        _protobuf({"x": x}) for x in lists
    ]


def test_the_whole_range_of_int64():
    lists = [[2**56, 0, 1, 2**62], [2**63 - 1, -(2**63), 2**49 - 1, 2**49]]
    assert example_bytes.serialize({"x": _column(lists, np.int64)}) == [
        _protobuf({"x": x}) for x in lists
    ]


def test_examples_and_their_columns_give_the_same_bytes():
    token_ids = [[2, 1200, 30000, 3], [2, 7, 3, 9, 3]]
    segment_lengths = [[4, 0], [3, 2]]
    labels = [0, 1]
    columns = {
        "token_ids": _column(token_ids, np.int32),
        "segment_lengths": example_bytes.rows(np.array(segment_lengths)),
        "next_sentence_label": example_bytes.rows(np.array(labels)[:, None]),
    }
    examples = [
        {"token_ids": t, "segment_lengths": s, "next_sentence_label": n}
        for t, s, n in zip(token_ids, segment_lengths, labels, strict=True)
    ]
    expected = [
        _protobuf({**example, "next_sentence_label": [example["next_sentence_label"]]})
        for example in examples
    ]
    assert example_bytes.serialize(columns) == features.serialize(examples) == expected


def test_no_examples():
    assert example_bytes.serialize({"x": (np.zeros(0, np.int32), np.zeros(1, int))}) == []
