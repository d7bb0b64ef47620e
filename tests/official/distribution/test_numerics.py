"""What the recipe leaves to the devices.

The options of a run: TensorFlow's graph optimizer leaves results as they are.
"""

import numpy as np
import pytest
import tensorflow as tf

from official.config import Recipe
from official.distribution import numerics

ONE = tf.distribute.get_strategy()


@pytest.mark.parametrize(
    "info, fast",
    [
        ("model name\t: A\nflags\t\t: fpu avx512f avx512_bf16 sse\n", True),
        ("flags\t\t: fpu amx_bf16\n", True),
        ("flags\t\t: fpu avx512f avx512_vnni\nbugs\t: avx512_bf16\n", False),
        ("Features\t: fp asimd bf16\n", False),
        (None, False),
    ],
)
def test_precision_of_a_cpu(monkeypatch, tmp_path, info, fast):
    path = tmp_path / "cpuinfo"
    if info is not None:
        path.write_text(info)
    monkeypatch.setattr(numerics, "CPU_INFO", path)
    recipe = numerics.suited(Recipe(steps=1), ONE)
    assert recipe.precision == ("mixed_bfloat16" if fast else "float32")
    assert recipe.jit_compile is False


@pytest.mark.parametrize("capability, fast", [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_precision_of_a_gpu(monkeypatch, capability, fast):
    """Of two GPUs, the older one decides. (No GPU was at hand: its answers are made up.)"""
    details = {"a": {"compute_capability": (9, 0)}, "b": {"compute_capability": capability}}
    for name in ("list_physical_devices", "list_logical_devices"):
        monkeypatch.setattr(tf.config, name, lambda kind: list("ab") if kind == "GPU" else [])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", details.__getitem__)
    recipe = numerics.suited(Recipe(steps=1), ONE)
    assert recipe.precision == ("mixed_bfloat16" if fast else "float32")
    assert recipe.jit_compile is True


def test_what_the_recipe_says_stays(monkeypatch, tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("flags : avx512_bf16")
    monkeypatch.setattr(numerics, "CPU_INFO", path)
    for recipe in (
        Recipe(steps=1, precision="float32", jit_compile=True),
        Recipe(steps=1, precision="float64", jit_compile=False),
    ):
        assert numerics.suited(recipe, ONE) == recipe


def test_mirrored_devices(mirrored, monkeypatch, tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("flags : avx512_bf16")
    monkeypatch.setattr(numerics, "CPU_INFO", path)
    recipe = numerics.suited(Recipe(steps=1), mirrored(2))
    assert (recipe.precision, recipe.jit_compile) == ("mixed_bfloat16", False)


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
