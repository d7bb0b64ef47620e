"""Reproducible sums, the dtypes of layers, and the compiler of elementwise operations."""

import functools

import keras
import tensorflow as tf

from official.modeling.layers import one_pass

if keras.backend.backend() == "tensorflow":
    # In evaluation as in training, so that metrics do not depend on what a process did before.
    one_pass.compile_with(functools.partial(tf.function, jit_compile=True, autograph=False))


def keep_order_of_sums():
    """Makes sums of three or more tensors bit-identical in every run.

    TensorFlow's `AddN` begins with an input whose buffer is free at that moment. The graph
    optimizer replaces trees of additions by `AddN`, in ways that differ between traces. This
    function turns that off, so that gradients of a tensor with several uses are added in pairs.
    Other arithmetic rewrites change last bits as well. They are off in evaluation too, so that the
    metrics of a checkpoint do not depend on whether the same process has trained.
    """
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})


def set_precision(precision: str) -> None:
    """Sets Keras' dtypes for all layers that are made afterwards."""
    keras.config.set_floatx("float64" if precision == "float64" else "float32")
    keras.config.set_dtype_policy(precision)
