"""Tests of transformer blocks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official.config.blocks import FeedForwardParts
from official.modeling.layers.activation import ACTIVATIONS, PLAIN
from official.modeling.layers.block import FeedForward
from official.modeling.layers.random import Draws, Initializers


def layer(activation, dtype="float32"):
    parts, weights = FeedForwardParts(10, activation), Initializers("glorot_normal")
    result = FeedForward(6, parts, weights, name="network", dtype=dtype)
    result.build()
    rng = np.random.default_rng(0)
    for variable in result.weights:
        variable.assign(rng.normal(size=variable.shape))
    return result


def test_plain_activations_have_the_same_names_and_values():
    assert set(PLAIN) == set(ACTIVATIONS)
    x = tf.linspace(tf.constant(-6.0, tf.float64), 6.0, 101)
    for name, function in ACTIVATIONS.items():
        np.testing.assert_allclose(PLAIN[name](x), function(x), rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5), ("mixed_bfloat16", 0.1)]
)
def test_without_draws_it_maps_as_in_training(activation, dtype, tolerance):
    built = layer(activation, dtype)
    x = np.random.default_rng(1).normal(size=(2, 3, 6))
    kernels = [np.asarray(variable, np.float64) for variable in built.weights]
    inner = ACTIVATIONS[activation](tf.constant(x @ kernels[0] + kernels[1])).numpy()
    wanted = inner @ kernels[2] + kernels[3]
    given = keras.ops.convert_to_tensor(x, built.compute_dtype)
    for rng in (None, Draws((1, 2))):
        actual = built(given, rng=rng)
        assert actual.dtype == built.compute_dtype and actual.shape == (2, 3, 6)
        # A number of 8 bits of mantissa is off by up to 1/512 of itself, more after two products.
        relative = tolerance / 10
        actual = tf.cast(actual, tf.float64)
        np.testing.assert_allclose(actual, wanted, rtol=relative, atol=tolerance)


def test_of_any_number_of_rows_in_a_graph():
    built = layer("gelu")
    graph = tf.function(built, input_signature=[tf.TensorSpec([None, None, 6])], autograph=False)
    x = tf.constant(np.random.default_rng(1).normal(size=(2, 3, 6)), tf.float32)
    np.testing.assert_allclose(graph(x), built(x), atol=1e-6)
    assert graph(x[:, :0]).shape == (2, 0, 6) and graph(x[:0]).shape == (0, 3, 6)
    # The sum that TensorFlow computes with its product.
    assert "BiasAdd" in str(graph.get_concrete_function().graph.as_graph_def())
