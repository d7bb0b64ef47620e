import numpy as np
import tensorflow as tf

from official.data import example_order
from tests.small import numbered_shards as write


def arrays(rows):
    """All rows as one dict of arrays, after a look at each record."""
    batches = list(rows.as_numpy_iterator())
    result = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
    assert result["record"].astype(int).tolist() == result["index"].tolist()
    return result


def test_in_order(tmp_path):
    rows = arrays(example_order.in_order(write(tmp_path, [70, 1, 0, 5])))
    assert rows["index"].tolist() == list(range(76))
    assert not rows["epoch"].any()


def test_filled():
    rows = {"index": tf.constant([4, 5], tf.int64), "record": tf.constant(["4", "5"])}
    result = example_order.filled(rows, 4)
    assert result["index"].numpy().tolist() == [4, 5, -1, -1]
    assert result["record"].numpy().tolist() == [b"4", b"5", b"4", b"4"]
    assert example_order.filled(rows, 2)["index"].numpy().tolist() == [4, 5]


def test_bucketed(tmp_path):
    # The "length" of a record is its number modulo 10, plus 1.
    files = write(tmp_path, [53])
    length = lambda record: tf.strings.to_number(record, tf.int32) % 10 + 1  # noqa: E731
    batches = list(
        example_order.bucketed(
            example_order.in_order(files), length, [4, 7, 10], 5
        ).as_numpy_iterator()
    )
    for batch in batches:
        (places,) = set(batch["length"])
        shorter = {4: 0, 7: 4, 10: 7}[places]
        assert all(shorter < i % 10 + 1 <= places for i in batch["index"])
        assert batch["index"].tolist() == sorted(batch["index"])
    assert sorted(i for batch in batches for i in batch["index"]) == list(range(53))
    sizes = [len(batch["index"]) for batch in batches]
    assert sorted(sizes) == [3, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5]
