"""What suits the devices of a run: the precision, and whether its step is compiled.

Products of bfloat16 are fast on TPUs, on GPUs of compute capability 8.0 (Ampere) or higher, and on
x86 CPUs with the instructions AVX512_BF16 or AMX.
"""

import dataclasses
import re
from pathlib import Path

import numpy as np
import tensorflow as tf

from official.config import Recipe
from official.distribution import strategies, tpu

CPU_INFO = Path("/proc/cpuinfo")
_CPU_FLAGS = {"avx512_bf16", "amx_bf16"}
_CAPABILITY = (8, 0)


def suited(recipe: Recipe, strategy: tf.distribute.Strategy) -> Recipe:
    """Returns a recipe with the precision and the compiler that suit the devices of all workers.

    Every worker must call it.
    """
    device = _device_type(strategy)
    suits = np.array([computes_bfloat16(device), device != "CPU"], np.int32)
    mixed, compiled = strategies.gather(strategy, suits).min(axis=0) > 0
    changes = {}
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


def _device_type(strategy: tf.distribute.Strategy) -> str:
    """Returns the type of the devices of a strategy: CPU, GPU or TPU."""
    if tpu.is_tpu(strategy):
        return "TPU"
    try:
        device = strategy.extended.worker_devices[0]
    except RuntimeError:  # the default strategy, on the first device
        return "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return tf.DeviceSpec.from_string(device).device_type
