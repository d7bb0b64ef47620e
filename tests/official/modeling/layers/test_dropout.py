import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers.kernels import dropout
from official.modeling.layers.random import Draws


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
