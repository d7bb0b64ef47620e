"""Every gradient that is written out by hand, against differences and automatic ones."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers import activation, embeddings, gather, linear, norm
from official.modeling.layers.kernels import left_out, sum_rows, with_gradient

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
    check(lambda x: gather.rows(x, ids), lambda x: tf.gather(x, ids), normal(6, 3))
    with tf.GradientTape() as tape:
        table = normal(6, 3)
        tape.watch(table)
        value = gather.rows(table, ids)
    gradient = tape.gradient(value, table)
    assert isinstance(gradient, tf.Tensor)
    np.testing.assert_array_equal(gradient[:, 0], [1, 2, 0, 0, 3, 0])


def test_positions():
    positions = tf.constant([[3, 0, 3], [2, 2, 1]])
    check(
        lambda x: gather.positions(x, positions),
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
    with left_out():
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
