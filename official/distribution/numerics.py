"""Reproducible sums, the dtypes of layers, and the compiler of elementwise operations."""

import contextlib
import functools
from collections.abc import Iterator

import keras
import tensorflow as tf

from official.modeling.layers import kernels
from official.modeling.model import Model
from official.utils import keras_private

if keras.backend.backend() == "tensorflow":
    # In evaluation as in training, so that metrics do not depend on what a process did before.
    kernels.configure(compiler=functools.partial(tf.function, jit_compile=True, autograph=False))


def restrict_graph_optimizer():
    """Turns off the rewrites of TensorFlow's graph optimizer that change results.

    Arithmetic: `AddN` begins with an input whose buffer is free at that moment. The optimizer
    replaces trees of additions by `AddN`, in ways that differ between traces. Without this rewrite,
    gradients of a tensor with several uses are added in pairs, and sums of three or more tensors
    are bit-identical in every run. Other arithmetic rewrites change last bits as well.

    Remapping: on CPUs with oneDNN the optimizer fuses the float32 product of a scaled tensor with
    the sum after it. It forgets which output of `unstack` or `split` the tensor is, and reads the
    first one (TensorFlow 2.21). Its other fusions do not make training and evaluation faster: they
    only add a bias within its product, as gradients stand between that and what follows.

    Both are off in evaluation too, so that the metrics of a checkpoint do not depend on whether the
    same process has trained. An exported graph runs with the options of its server, so no layer may
    have such a product (`official.modeling.layers.kernels`).
    """
    tf.config.optimizer.set_experimental_options(
        {"arithmetic_optimization": False, "remapping": False}
    )


def set_precision(precision: str) -> None:
    """Sets Keras' dtypes for all layers that are made afterwards."""
    keras.config.set_floatx("float64" if precision == "float64" else "float32")
    keras.config.set_dtype_policy(precision)


@contextlib.contextmanager
def without_mixed_precision(model: Model) -> Iterator[None]:
    """Lets a model compute in the dtype of its weights, in what is traced inside the block.

    Mixed precision is for training. Its evaluations have the figures of the model that is saved.
    """
    layers = [
        layer
        for network in model.networks()
        for layer in keras_private.sublayers(network)
        if layer.compute_dtype != layer.variable_dtype
    ]
    policies = [layer.dtype_policy for layer in layers]
    try:
        for layer in layers:
            layer.dtype_policy = layer.variable_dtype
        yield
    finally:
        for layer, policy in zip(layers, policies, strict=True):
            layer.dtype_policy = policy
