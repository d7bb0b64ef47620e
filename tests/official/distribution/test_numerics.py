"""The options of a run: TensorFlow's graph optimizer leaves results as they are."""

import numpy as np
import pytest
import tensorflow as tf

from official.distribution import numerics


def scores(x, mask):
    """The scaled products of an output of `unstack` with itself, and a mask."""
    value = tf.unstack(x)[1]
    return tf.matmul(value * 0.4, tf.transpose(value, (0, 1, 3, 2))) + mask


@pytest.fixture
def inputs():
    x = np.random.default_rng(0).normal(size=(3, 2, 4, 7, 6))
    return tf.constant(x, tf.float32), tf.zeros((2, 1, 7, 7))


def test_a_graph_of_a_run_reads_the_output_that_is_multiplied(inputs, default_optimizer):
    numerics.restrict_graph_optimizer()
    found = tf.function(scores)(*inputs)
    np.testing.assert_allclose(found, scores(*inputs), atol=1e-5)


def test_other_options_of_the_user_are_kept(default_optimizer):
    tf.config.optimizer.set_experimental_options({"debug_stripper": True})
    numerics.restrict_graph_optimizer()
    assert tf.config.optimizer.get_experimental_options()["debug_stripper"]
    tf.config.optimizer.set_experimental_options({"debug_stripper": False})
