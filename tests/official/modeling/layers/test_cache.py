import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers import kernels
from official.serving import token_loop

SLOTS = np.arange(2 * 3 * 5 * 4, dtype=np.float32).reshape(2, 3, 5, 4)


@pytest.mark.parametrize("writer", [None, token_loop.write_slots], ids=["copied", "in place"])
@pytest.mark.parametrize(("length", "first"), [(1, 0), (1, 4), (3, 1), (5, 0)])
def test_new_rows_replace_the_slots_from_the_first_on(writer, length, first):
    new = -np.arange(2 * 3 * length * 4, dtype=np.float32).reshape(2, 3, length, 4)
    expected = SLOTS.copy()
    expected[:, :, first : first + length] = new
    with kernels.slots_written_by(writer):
        for slot in (first, tf.constant(first)):
            actual = kernels.write_slots(tf.constant(SLOTS), tf.constant(new), slot)
            np.testing.assert_array_equal(actual, expected)
            assert actual.shape == SLOTS.shape


def test_a_loop_of_a_graph_keeps_what_others_read():
    """The slots begin as one constant, and so share memory: each gets its own rows."""

    def loop(rows):
        empty = kernels.empty_slots(2, 3, 5, 4, "float32")

        def step(i, a, b):
            row = rows + tf.cast(i, tf.float32)
            return i + 1, kernels.write_slots(a, row, i), kernels.write_slots(b, -row, i)

        _, a, b = tf.while_loop(lambda i, *_: i < 4, step, (tf.constant(1), empty, empty))
        return empty, a, b

    graph = token_loop.in_place_graph(loop)
    rows = tf.random.normal((2, 3, 1, 4), seed=1)
    for _ in range(2):
        empty, a, b = graph(rows)
        expected = np.zeros((2, 3, 5, 4), np.float32)
        for i in (1, 2, 3):
            expected[:, :, i] = rows[:, :, 0] + i
        np.testing.assert_array_equal(empty, 0 * expected)
        np.testing.assert_array_equal(a, expected)
        np.testing.assert_array_equal(b, -expected)
    body = graph.get_concrete_function(rows).graph.as_graph_def().library.function
    kinds = [node.op for function in body for node in function.node_def]
    assert kinds.count("TensorStridedSliceUpdate") == 2
    assert not {"SelectV2", "XlaDynamicUpdateSlice"} & set(kinds)
