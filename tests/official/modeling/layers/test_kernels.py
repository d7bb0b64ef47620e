"""The kernels, and every gradient that is written by hand, against formulas and differences."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers import activation, embeddings, kernels, linear, norm
from official.modeling.layers.kernels import (
    cross_entropy,
    dropout,
    sum_rows,
    times_transposed,
    transposed_times,
    with_gradient,
)
from official.modeling.layers.random import Draws
from official.serving.generation import token_choice

RNG = np.random.default_rng(0)


def normal(*shape):
    return tf.constant(RNG.standard_normal(shape))


def check(function, reference, *args):
    """Value and gradients in float64 equal those that TensorFlow derives from `reference`."""
    upstream = tf.constant(RNG.standard_normal(reference(*args).shape))
    results = []
    for f in (function, reference):
        with tf.GradientTape() as tape:
            tape.watch(args)
            value = f(*args)
        gradients = tape.gradient(value, args, output_gradients=upstream)
        results.append((value, *[tf.convert_to_tensor(g) for g in gradients]))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_affine():
    check(
        linear.linear,
        lambda x, w, b: tf.einsum("abi,io->abo", x, w) + b,
        *(normal(2, 3, 5), normal(5, 7), normal(7)),
    )


def test_norm():
    def reference(x, scale, offset):
        mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
        return (x - mean) / tf.sqrt(variance + 1e-3) * scale + offset

    check(
        lambda *args: norm.normalize(*args, epsilon=1e-3),
        reference,
        *(normal(6, 5), normal(5), normal(5)),
    )


def test_gelu():
    x = tf.linspace(tf.constant(-6.0, tf.float64), 6.0, 101)
    check(activation.gelu, lambda x: x * 0.5 * (1 + tf.math.erf(x / math.sqrt(2))), x)


def test_gelu_tanh():
    x = tf.linspace(tf.constant(-6.0, tf.float64), 6.0, 101)
    check(
        activation.gelu_tanh,
        lambda x: 0.5 * x * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        x,
    )


@pytest.mark.parametrize("function", [activation.gelu, activation.gelu_tanh])
def test_gelu_in_bfloat16_is_as_good_as_its_number_type(function):
    x = tf.cast(tf.linspace(-6.0, 6.0, 1001), tf.bfloat16)
    exact = tf.cast(x, tf.float64)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, exact])
        values = function(x), function(exact)
    gradients = tape.gradient(values[0], x), tape.gradient(values[1], exact)
    for ours, wanted in (values, gradients):
        assert ours.dtype == tf.bfloat16
        np.testing.assert_allclose(tf.cast(ours, tf.float64), wanted, rtol=2**-8, atol=1e-5)


def test_rows_sums_the_gradients_of_repeated_ids_into_a_dense_one():
    ids = tf.constant([[4, 1, 4], [4, 0, 1]])
    check(lambda x: kernels.take_rows(x, ids), lambda x: tf.gather(x, ids), normal(6, 3))
    with tf.GradientTape() as tape:
        table = normal(6, 3)
        tape.watch(table)
        value = kernels.take_rows(table, ids)
    gradient = tape.gradient(value, table)
    assert isinstance(gradient, tf.Tensor)
    np.testing.assert_array_equal(gradient[:, 0], [1, 2, 0, 0, 3, 0])


def test_positions():
    positions = tf.constant([[3, 0, 3], [2, 2, 1]])
    check(
        lambda x: kernels.flat_positions(x, positions),
        lambda x: tf.reshape(tf.gather(x, positions, batch_dims=1), [6, 5]),
        normal(2, 4, 5),
    )


def test_products_with_a_table():
    check(
        embeddings.products,
        lambda x, table: tf.matmul(x, table, transpose_b=True),
        *(normal(3, 5), normal(7, 5)),
    )


def test_variables_may_be_given_as_they_are():
    variable = keras.Variable(np.ones((2, 3), "float32"))

    @with_gradient
    def double(x):
        return 2 * x, lambda upstream: 2 * upstream

    with tf.GradientTape() as tape:
        value = double(variable)
    np.testing.assert_array_equal(tape.gradient(value, variable.value), np.full((2, 3), 2))


def test_a_gradient_that_is_left_out_is_not_in_the_graph():
    x = normal(4, 5)
    args = normal(5, 3), normal(3)

    def types():
        graph = tf.function(linear.linear).get_concrete_function(x, *args).graph
        return {node.op for node in graph.as_graph_def().node}

    value = linear.linear(x, *args)
    assert "IdentityN" in types()
    with kernels.using(gradients=False):
        np.testing.assert_array_equal(linear.linear(x, *args), value)
        assert "IdentityN" not in types()
        # Variables may be given here, too.
        variable = keras.Variable(args[0], dtype="float64")
        np.testing.assert_array_equal(linear.affine(x, variable, args[1]), value)
    assert "IdentityN" in types()


def test_sum_rows_sums_bfloat16_in_float32():
    x = tf.cast(tf.ones([4000, 3]), tf.bfloat16)
    # Added up one after the other in bfloat16, ones stop counting at 256.
    np.testing.assert_allclose(tf.cast(sum_rows(x), tf.float32), [4000] * 3, rtol=2**-8)


PRODUCTS = {times_transposed: "...ri,...oi->...ro", transposed_times: "...ir,...io->...ro"}
SHAPES = {times_transposed: ((5, 3), (7, 3)), transposed_times: ((3, 5), (3, 7))}


@pytest.mark.parametrize("leading", [(), (2,), (2, 4)])
@pytest.mark.parametrize("product", PRODUCTS)
def test_products_and_gradients_are_those_of_numpy(product, leading):
    x, y = (RNG.normal(size=(*leading, *shape)) for shape in SHAPES[product])
    upstream = RNG.normal(size=(*leading, 5, 7))

    @tf.function(autograph=False)
    def run(x, y):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            result = product(x, y)
        return result, *tape.gradient(result, [x, y], upstream)

    result, of_x, of_y = run(tf.constant(x), tf.constant(y))
    np.testing.assert_allclose(result, np.einsum(PRODUCTS[product], x, y), rtol=1e-12)
    left, right = PRODUCTS[product].split("->")[0].split(",")
    wanted = np.einsum(f"...ro,{right}->{left}", upstream, y)
    np.testing.assert_allclose(of_x, wanted, rtol=1e-12)
    wanted = np.einsum(f"...ro,{left}->{right}", upstream, x)
    np.testing.assert_allclose(of_y, wanted, rtol=1e-12)
    with kernels.using(gradients=False):
        np.testing.assert_allclose(product(x, y), result, rtol=1e-12)


def test_no_operand_is_written_transposed():
    run = tf.function(lambda x, y: (times_transposed(x, y), transposed_times(x, y)))
    graph = run.get_concrete_function(tf.zeros((4, 4)), tf.zeros((4, 4))).graph
    assert not [op for op in graph.get_operations() if op.type == "Transpose"]


def test_without_draws_or_rate_nothing_happens():
    x = tf.ones([3])
    assert dropout(x, 0.5, None) is x
    assert dropout(x, 0.0, Draws((1, 2))) is x


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_what_is_kept_is_scaled(dtype):
    x = tf.cast(tf.random.stateless_normal([200, 501], [1, 2]), dtype)
    y = dropout(x, 0.25, Draws((3, 4)))
    assert y.dtype == x.dtype
    kept = np.array(Draws((3, 4)).keep((200, 501), 0.25))
    x, y = (tf.cast(value, tf.float64).numpy() for value in (x, y))
    assert (y[~kept] == 0).all()
    np.testing.assert_allclose(y[kept], x[kept] / 0.75, rtol=1e-2)


def test_the_gradient_passes_where_the_value_does():
    x = tf.ones([1000])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = dropout(x, 0.25, Draws((3, 4)))
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def test_a_shared_mask_zeroes_whole_columns():
    x = tf.constant(np.random.default_rng(0).normal(size=(40, 7, 50)), tf.float32)
    y = dropout(x, 0.3, Draws((1, 2)), shared_axis=1).numpy()
    kept = y != 0
    np.testing.assert_array_equal(kept, np.repeat(kept[:, :1], 7, axis=1))
    np.testing.assert_allclose(y[kept], x.numpy()[kept] / 0.7, rtol=1e-6)
    # 2,000 draws: the standard deviation of their mean is 0.01.
    assert abs(kept[:, 0].mean() - 0.7) < 0.05


SLOTS = np.arange(2 * 3 * 5 * 4, dtype=np.float32).reshape(2, 3, 5, 4)


@pytest.mark.parametrize("writer", [None, token_choice.write_slots], ids=["copied", "in place"])
@pytest.mark.parametrize(("length", "first"), [(1, 0), (1, 4), (3, 1), (5, 0)])
def test_new_rows_replace_the_slots_from_the_first_on(writer, length, first):
    new = -np.arange(2 * 3 * length * 4, dtype=np.float32).reshape(2, 3, length, 4)
    expected = SLOTS.copy()
    expected[:, :, first : first + length] = new
    with kernels.using(write_slots=writer):
        for slot in (first, tf.constant(first)):
            actual = kernels.write_slots(tf.constant(SLOTS), tf.constant(new), slot)
            np.testing.assert_array_equal(actual, expected)
            assert actual.shape == SLOTS.shape


def test_a_loop_of_a_graph_keeps_what_others_read():
    """The slots begin as one constant, and so share memory: each gets its own rows."""

    def loop(rows):
        empty = tf.zeros([2, 3, 5, 4])

        def step(i, a, b):
            row = rows + tf.cast(i, tf.float32)
            return i + 1, kernels.write_slots(a, row, i), kernels.write_slots(b, -row, i)

        _, a, b = tf.while_loop(lambda i, *_: i < 4, step, (tf.constant(1), empty, empty))
        return empty, a, b

    graph = token_choice.in_place_graph(loop)
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


def by_hand(logits, targets, of_loss, of_log_z):
    """Returns the losses, log Z and the gradient of the weighted sums, in float64."""
    logits = np.asarray(logits, np.float64)
    largest = logits.max(axis=1, keepdims=True)
    log_z = (largest + np.log(np.exp(logits - largest).sum(axis=1, keepdims=True)))[:, 0]
    rows = np.arange(len(targets))
    gradient = np.exp(logits - log_z[:, None]) * (of_loss + of_log_z)[:, None]
    gradient[rows, targets] -= of_loss
    return log_z - logits[rows, targets], log_z, gradient


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-6)])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_losses_and_gradients_are_those_of_the_definition(dtype, tolerance, compiled):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(7, 11)) * np.array([0, 1, 5, 30, 100, 1, 1])[:, None]
    logits[5] += 1e4  # Sums of exponentials overflow here.
    logits[6] -= 1e4
    logits = np.asarray(logits, dtype)
    targets = rng.integers(0, 11, 7)
    of_loss, of_log_z = rng.normal(size=7), rng.normal(size=7)

    @tf.function(jit_compile=compiled, autograph=False)
    def run(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            losses, log_z, hits = cross_entropy(logits, targets)
            total = tf.reduce_sum(losses * of_loss.astype(dtype) + log_z * of_log_z.astype(dtype))
        return losses, log_z, hits, tape.gradient(total, logits)

    losses, log_z, hits, gradient = run(tf.constant(logits))
    expected = by_hand(logits, targets, of_loss, of_log_z)
    scale = max(1.0, np.abs(logits).max())
    np.testing.assert_allclose(losses, expected[0], rtol=tolerance, atol=tolerance * scale)
    np.testing.assert_allclose(log_z, expected[1], rtol=tolerance, atol=tolerance)
    # Logits of 1e4 are multiples of 1e-3 in float32; their differences are exact.
    np.testing.assert_allclose(gradient, expected[2], rtol=0, atol=10 * tolerance)
    assert list(hits.numpy()) == list(targets == logits.argmax(axis=1))


def test_a_tie_is_a_hit_and_the_smallest_difference_is_none():
    below = np.nextafter(np.float32(3), np.float32(0))
    logits = np.array([[3, 3, 0], [below, 3, 0]], np.float32)
    _, _, hits = cross_entropy(keras.ops.convert_to_tensor(logits), np.array([0, 0]))
    assert list(hits.numpy()) == [True, False]


def test_a_probability_of_zero_has_a_finite_loss():
    logits = np.array([[-200.0, 200.0]], np.float32)  # exp(-400) is 0 in float32.
    losses, _, _ = cross_entropy(keras.ops.convert_to_tensor(logits), np.array([0]))
    assert losses.numpy()[0] == 400
