"""Serialized `tf.train.Example`s, many at once: the bytes that protobuf's own writer makes.

Building a message object for each example would take longer than all else that is done to it.
Here the numbers of a feature are turned to bytes for all examples in one go, and what stands before
them (field tags and lengths, which are the same for all lists of as many bytes) is looked up.

  Example  = features(1): Features            Features = feature(1): map of name to Feature
  map item = key(1): name, value(2): Feature   Feature = float_list(2) or int64_list(3)
  FloatList = value(1): packed float32         Int64List = value(1): packed varints

Shapes: E examples, K values of a feature in all of them.
"""

import functools
import itertools
from collections.abc import Mapping

import numpy as np

# The values of all examples one after the other [K], and where each example's begin, and the end
# [E + 1]. Integers or float32.
Column = tuple[np.ndarray, np.ndarray]


def serialize(columns: Mapping[str, Column]) -> list[bytes]:
    """Returns E serialized examples, their features in order of their names.

    Raises:
      ValueError: numbers that are negative or too large, which are not needed here.
    """
    items = [_items(name, *columns[name]) for name in sorted(columns)]
    return [_head(len(example)) + example for example in map(b"".join, zip(*items, strict=True))]


def rows(matrix: np.ndarray) -> Column:
    """Returns a matrix [E, n] as a column of lists of n."""
    return matrix.ravel(), np.arange(matrix.shape[0] + 1) * matrix.shape[1]


def _items(name: str, values: np.ndarray, row_splits: np.ndarray) -> list[bytes]:
    """Returns the feature's item of the map for each example."""
    if values.dtype == np.float32:
        kind, data, splits = 2, values, row_splits * 4
    else:
        kind, (data, splits) = 3, _varints(values, row_splits)
    data = data.tobytes()
    places = itertools.pairwise(splits.tolist())
    return [_item_head(name, kind, stop - start) + data[start:stop] for start, stop in places]


def _varints(values: np.ndarray, row_splits: np.ndarray) -> Column:
    """Returns varints: 7 bits a byte, the lowest first, the top bit set on all but the last.

    The bytes of a number are made side by side in a word of 4 or 8, and those not used are then
    left out.
    """
    top = int(values.max(initial=0))
    if values.min(initial=0) < 0 or top >= 1 << 56:
        raise ValueError("only numbers from 0 to 2^56 - 1 are written")
    if top < 128:
        return values.astype(np.uint8), row_splits
    values = values.astype("<u4" if top < 1 << 28 else "<u8")
    words = values & 127
    used = np.ones_like(words)  # a byte that is 1 for each byte to keep
    sizes = np.ones(len(words), np.int64)
    for i in range(1, -(-top.bit_length() // 7)):
        more = values >= 1 << 7 * i
        sizes += more
        more = more.astype(words.dtype) << 8 * i
        used |= more
        words |= more >> 1 | (values >> 7 * i & 127) << 8 * i
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return np.compress(used.view(bool), words.view(np.uint8)), ends[row_splits]


@functools.cache
def _item_head(name: str, kind: int, size: int) -> bytes:
    """Returns all of a map item before its `size` bytes of values."""
    head = _field(1, size) if size else b""
    head = _field(kind, size + len(head)) + head
    head = _field(1, len(name)) + name.encode() + _field(2, size + len(head)) + head
    return _field(1, size + len(head)) + head


@functools.cache
def _head(size: int) -> bytes:
    return _field(1, size)


def _field(number: int, size: int) -> bytes:
    """Returns the tag of a field of `size` bytes, and its length."""
    head = [number << 3 | 2]
    while size >= 128:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes([*head, size])
