"""The numerics of a run: its precision, its compiler, and sums that can be reproduced.

Products of bfloat16 are fast on TPUs, on GPUs of compute capability 8.0 (Ampere) or higher, and on
x86 CPUs with the instructions AVX512_BF16 or AMX.
"""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from official.config import Recipe
from official.distribution import strategies
from official.modeling.layers import kernels
from official.modeling.model import Model
from official.utils import keras_private

CPU_INFO = Path("/proc/cpuinfo")
_CPU_FLAGS = {"avx512_bf16", "amx_bf16"}
_CAPABILITY = (8, 0)


def suited(recipe: Recipe, strategy: tf.distribute.Strategy) -> Recipe:
    """Returns a recipe with the precision and the compiler that suit the devices of all workers.

    Every worker must call it.
    """
    device = device_type(strategy)
    suits = np.array([computes_bfloat16(device), device != "CPU"], np.int32)
    mixed, compiled = strategies.gather(strategy, suits).min(axis=0) > 0
    changes: dict[str, Any] = {}
    if recipe.precision == "auto":
        changes["precision"] = "mixed_bfloat16" if mixed else "float32"
    if recipe.jit_compile is None:
        changes["jit_compile"] = bool(compiled)
    return dataclasses.replace(recipe, **changes)


def computes_bfloat16(device: str) -> bool:
    """Returns whether the devices of a type (CPU, GPU, TPU) have fast products of bfloat16."""
    if device == "GPU":
        details = map(
            tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU")
        )
        return all(each.get("compute_capability", (0, 0)) >= _CAPABILITY for each in details)
    if device == "CPU":
        try:
            flags = re.search(r"^flags\s*:(.*)", CPU_INFO.read_text(), re.MULTILINE)
        except OSError:
            return False
        return flags is not None and not _CPU_FLAGS.isdisjoint(flags[1].split())
    return device == "TPU"


def device_type(strategy: tf.distribute.Strategy) -> str:
    """Returns the type of the devices of a strategy: CPU, GPU or TPU."""
    if strategies.is_tpu(strategy):
        return "TPU"
    try:
        device = strategy.extended.worker_devices[0]
    except RuntimeError:  # the default strategy, on the first device
        return "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return tf.DeviceSpec.from_string(device).device_type


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
    """Makes a model compute in the dtype of its weights in graphs that are traced inside the block.

    Mixed precision is for training. Evaluations during training have the metrics of the saved
    model.
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
