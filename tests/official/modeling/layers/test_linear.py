import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers import kernels
from official.modeling.layers.linear import Linear, linear
from official.modeling.layers.random import Draws, RandomWeights


@pytest.mark.parametrize("use_bias", [True, False])
def test_columns_of_several_inputs_are_those_of_the_whole_output(use_bias):
    layer = Linear(
        5,
        9,
        initializer=RandomWeights("normal", 1.0, Draws((1, 2))),
        name="map",
        use_bias=use_bias,
        dtype="float64",
    )
    layer.build()
    if use_bias:
        layer.bias.assign(np.arange(9.0))
    rng = np.random.default_rng(0)
    inputs = [tf.constant(rng.normal(size=shape)) for shape in ((2, 3, 5), (4, 5), (1, 5))]
    sizes = [2, 4, 3]
    upstream = [rng.normal(size=(*x.shape[:-1], n)) for x, n in zip(inputs, sizes, strict=True)]

    def gradients(outputs, tape):
        return tape.gradient(outputs, [*inputs, *layer.trainable_variables], upstream)

    results = []
    for by_columns in (True, False):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            if by_columns:
                outputs = layer.by_columns(inputs, sizes)
            else:
                outputs = [
                    layer(x)[..., end - n : end]
                    for x, n, end in zip(inputs, sizes, np.cumsum(sizes), strict=True)
                ]
        results.append([*outputs, *gradients(outputs, tape)])
    for ours, expected in zip(*results, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_a_context_replaces_the_missing_bias_and_no_other():
    asked = []

    def missing_bias(size, dtype):
        asked.append((size, dtype))
        return tf.fill([size], tf.constant(2, dtype))

    x = tf.constant([[1.0, 3.0]])
    kernel = tf.constant([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]])
    with kernels.using(gradients=False, missing_bias=missing_bias):
        np.testing.assert_array_equal(linear(x, kernel), [[3, 5, 7]])
        np.testing.assert_array_equal(linear(x, kernel, tf.ones(3)), [[2, 4, 6]])
    np.testing.assert_array_equal(linear(x, kernel), [[1, 3, 5]])
    assert [(size, tf.as_dtype(dtype)) for size, dtype in asked] == [(3, tf.float32)]
