"""Serializes many `tf.train.Example`s at once, into the bytes that protobuf writes.

Building a protobuf message for each example takes longer than all other work on it. This module
encodes the values of a feature for all examples together. The field tags and lengths before the
values depend only on the number of bytes that follow, so they are cached.

  Example  = features(1): Features            Features = feature(1): map of name to Feature
  map item = key(1): name, value(2): Feature   Feature = bytes_list(1), float_list(2), int64_list(3)
  FloatList = value(1): packed float32         Int64List = value(1): packed varints
                                               BytesList = value(1): one string

Shapes: E examples, K values of a feature in all examples.
"""

import functools
import itertools
from collections.abc import Mapping

import numpy as np

# The values of all examples, concatenated [K], and the row splits of the examples [E + 1].
# The values are integers, float32, or single bytes (`S1`), which are one string for each example.
Column = tuple[np.ndarray, np.ndarray]


def serialize(columns: Mapping[str, Column]) -> list[bytes]:
    """Returns E serialized examples, with their features in alphabetical order."""
    items = (_items(name, *columns[name]) for name in sorted(columns))
    parts: list[list[bytes]] = []
    for _, group in itertools.groupby(items, lambda each: isinstance(each, np.ndarray)):
        neighbors = list(group)
        # Matrices that follow one another are cut together.
        matrices = [each for each in neighbors if isinstance(each, np.ndarray)]
        parts += [_rows_of(np.concatenate(matrices, axis=1))] if matrices else []
        parts += [each for each in neighbors if isinstance(each, list)]
    return [_head(len(example)) + example for example in map(b"".join, zip(*parts, strict=True))]


def rows(matrix: np.ndarray) -> Column:
    """Returns a matrix [E, n] as a column in which each example has n values."""
    return matrix.ravel(), np.arange(matrix.shape[0] + 1) * matrix.shape[1]


def _items(name: str, values: np.ndarray, row_splits: np.ndarray) -> list[bytes] | np.ndarray:
    """Returns the map item of a feature for each example: uint8 [E, n] if they have one size."""
    if values.dtype == np.float32:
        kind, data, splits = 2, values, row_splits * 4
    elif values.dtype.kind == "S":
        kind, data, splits = 1, values, row_splits
    else:
        kind, (data, splits) = 3, _varints(values, row_splits)
    sizes = np.diff(splits)
    if (sizes == sizes[:1]).all():
        size = int(sizes.max(initial=0))
        head = np.frombuffer(_item_head(name, kind, size), np.uint8)
        data = np.ascontiguousarray(data).view(np.uint8).reshape(len(sizes), size)
        return np.concatenate([np.tile(head, (len(sizes), 1)), data], axis=1)
    together = data.tobytes()
    ranges = itertools.pairwise(splits.tolist())
    return [_item_head(name, kind, stop - start) + together[start:stop] for start, stop in ranges]


def _rows_of(matrix: np.ndarray) -> list[bytes]:
    """Returns the bytes of each row of uint8 [E, n]."""
    data, size = matrix.tobytes(), matrix.shape[1]
    return [data[start : start + size] for start in range(0, len(data), size)]


def _varints(values: np.ndarray, row_splits: np.ndarray) -> Column:
    """Encodes integers as varints: 7 bits a byte, the lowest first.

    The top bit is set on all bytes but the last. The bytes of a number are computed in one word of
    4 or 8 bytes, and the unused bytes are removed at the end.
    """
    largest = int(values.max(initial=0))
    if values.min(initial=0) < 0 or largest >= 1 << 56:
        return _long_varints(values, row_splits)
    if largest < 128:
        return values.astype(np.uint8), row_splits
    values = values.astype("<u4" if largest < 1 << 28 else "<u8")
    words = values & 127
    used = np.ones_like(words)  # A byte of it is 1 where the same byte of `words` is used.
    sizes = np.ones(len(words), np.int64)
    for i in range(1, -(-largest.bit_length() // 7)):
        more = values >= 1 << 7 * i
        sizes += more
        bit = more.astype(words.dtype) << 8 * i
        used |= bit
        words |= bit >> 1 | (values >> 7 * i & 127) << 8 * i
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return np.compress(used.view(bool), words.view(np.uint8)), ends[row_splits]


def _long_varints(values: np.ndarray, row_splits: np.ndarray) -> Column:
    """Encodes any int64; a negative number is its two's complement, in 10 bytes."""
    unsigned = values.astype(np.int64).view(np.uint64)
    groups = unsigned[:, None] >> 7 * np.arange(10, dtype=np.uint64)  # [K, 10]
    used = groups > 0
    used[:, 0] = True
    data = (groups & np.uint64(127)).astype(np.uint8)
    data[:, :-1] |= used[:, 1:].astype(np.uint8) << 7
    ends = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
    return data[used], ends[row_splits]


@functools.cache
def _item_head(name: str, kind: int, size: int) -> bytes:
    """Returns the part of a map item before its `size` bytes of values."""
    head = _field(1, size) if size else b""
    head = _field(kind, size + len(head)) + head
    head = _field(1, len(name)) + name.encode() + _field(2, size + len(head)) + head
    return _field(1, size + len(head)) + head


@functools.cache
def _head(size: int) -> bytes:
    return _field(1, size)


def _field(number: int, size: int) -> bytes:
    """Returns the tag and the length of a field of `size` bytes."""
    head = [number << 3 | 2]
    while size >= 128:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes([*head, size])
