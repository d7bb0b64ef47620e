"""The estimate of a step's memory, held to sums by hand. A row of 256 floats has 1,024 bytes."""

import keras
import pytest
import tensorflow as tf

from official.training import step_memory
from official.utils import process_memory

ROW = 1024


def graph(function, *shapes):
    specs = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    return tf.function(function, autograph=False).get_concrete_function(*specs).graph


def rows(function, *shapes, **options):
    """The peak in rows."""
    return step_memory.peak(graph(function, *shapes), **options) / ROW


def test_a_chain_that_writes_over_its_input_has_one_tensor():
    assert rows(lambda x: tf.exp(tf.tanh(tf.sqrt(x))), [256]) == 1


def test_a_tensor_that_is_read_later_stays():
    def function(x):
        first = tf.reverse(x, [0])  # read at the end
        second = tf.reverse(first, [0])
        third = tf.reverse(second, [0])
        return first + third

    # `second` and `third` are there together, with `first`.
    assert rows(function, [256]) == 3


def test_other_shapes_and_names_take_nothing():
    def function(x):
        return tf.reshape(tf.identity(tf.reverse(x, [0])), [2, 128])

    assert rows(function, [256]) == 1


def test_what_nobody_reads_is_not_computed():
    def function(x):
        tf.reverse(x, [0]) * 2.0  # noqa: B018
        return x

    assert rows(function, [256]) == 0


def test_gradients_keep_the_outputs_of_the_layers():
    """Of n tanh layers, n outputs stay for the gradient, and the gradient has one tensor."""

    def function(x):
        y = x
        for _ in range(5):
            y = tf.tanh(y)
        return tf.gradients(y, [x])[0]

    assert rows(function, [256]) == pytest.approx(6, abs=0.5)


def test_a_function_is_counted_while_it_runs():
    @tf.function(autograph=False)
    def inner(x):
        first = tf.reverse(x, [0])
        return tf.reverse(tf.concat([first, first], 0), [0])[:256]

    def function(x):
        with tf.control_dependencies([tf.reverse(x, [0])]):
            return inner(x)

    alone = rows(lambda x: inner.python_function(x), [256])
    assert alone == 4  # two twice as long
    assert rows(function, [256]) == alone


def test_a_loop_takes_what_one_turn_takes():
    def turn(i, x):
        return i + 1, tf.reverse(tf.reverse(x, [0]), [0])

    def function(x):
        return tf.while_loop(lambda i, _: i < 7, turn, (0, x))[1]

    assert rows(function, [256]) == pytest.approx(2, abs=0.5)  # and a counter


@pytest.mark.parametrize("turns", [4, 9])
def test_a_loop_that_fills_a_list_takes_a_row_for_each_turn(turns):
    def function(x):
        array = tf.TensorArray(tf.float32, turns, element_shape=[256])
        _, array = tf.while_loop(
            lambda i, _: i < turns,
            lambda i, array: (i + 1, array.write(i, tf.reverse(x, [0]))),
            (0, array),
        )
        return array.stack()

    # The list, and the same rows in one tensor.
    assert rows(function, [256]) == pytest.approx(2 * turns, abs=1)


@pytest.mark.parametrize("turns", [4, 9])
def test_the_gradient_of_a_scan_reads_a_list_of_its_states(turns):
    def function(x):
        def step(state, row):
            state = tf.tanh(state + row)
            return state, state

        _, states = keras.ops.scan(step, tf.zeros([256]), x)
        return tf.gradients(tf.reduce_sum(states), [x])[0]

    found = {n: rows(function, [n, 256]) for n in (turns, 2 * turns)}
    # Twice the turns take twice the memory, but for what a turn takes.
    assert found[2 * turns] == pytest.approx(2 * found[turns], rel=0.2)
    assert found[turns] >= 3 * turns  # x, states and their gradient


def test_a_dimension_that_is_not_known():
    assert rows(lambda x: tf.reverse(x, [0]), [None, 256], unknown=5) == 5


def test_bytes_are_those_of_the_type_and_aligned():
    half = graph(lambda x: tf.cast(x, tf.bfloat16)[::-1], [256])
    assert step_memory.peak(half) == ROW  # the cast and its reverse, two bytes a value
    assert step_memory.peak(graph(lambda x: tf.reverse(x, [0]), [3])) == 64


def test_sizes_of_weights_and_state():
    weights = [keras.Variable(tf.zeros([100, 3])), keras.Variable(tf.zeros([5]), dtype="bfloat16")]
    state = [keras.Variable(tf.zeros([7], tf.int64), dtype="int64")]
    found = step_memory.estimate(graph(tf.exp, [250_000]), 1, weights, state, devices=2)
    assert (found.weights, found.state) == (1200 + 10, 56)
    assert found.step == 550_000  # a tenth more than a megabyte, on two devices
    assert found.total == 550_000 + 1210 + 56
    assert found.lines() == [
        "memory: about 1 MB at the peak of a step (on each device, 1 MB of activations and "
        "gradients, 0 MB of weights and 0 MB of the optimizer)"
    ]


def test_a_run_that_does_not_fit_is_told_what_takes_less():
    estimate = step_memory.Estimate(
        10, 20, 5_000_000_000, program=1_000_000_000, left=5_999_000_000
    )
    line, warning = estimate.lines()
    assert line.startswith("memory: about 6.0 GB at the peak of a step (5.0 GB of activations")
    assert warning.startswith("warning: that is more than the 6.0 GB that there are: a smaller rec")


def test_the_memory_of_this_process(monkeypatch, tmp_path):
    before = process_memory.resident()
    block = bytearray(200_000_000)
    assert process_memory.resident() - before > 190_000_000 - 20_000_000
    del block
    monkeypatch.setattr(process_memory, "_MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(process_memory, "_LIMIT", tmp_path / "max")
    monkeypatch.setattr(process_memory, "_USED", tmp_path / "current")
    assert process_memory.available() is None
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   3000 kB\n")
    assert process_memory.available() == 3_072_000
    (tmp_path / "max").write_text("max\n")
    (tmp_path / "current").write_text("1000000\n")
    assert process_memory.available() == 3_072_000
    (tmp_path / "max").write_text("1500000\n")
    assert process_memory.available() == 500_000
