"""Shared by all tests: four logical CPU devices, so that strategies with replicas can run."""

import functools
import gc
import os
import re
import signal
import sys
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Compiling costs more than running what is compiled: LLVM's passes are left out. XLA's own remain.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
)

import tensorflow as tf  # isort: skip

from tensorflow.python.distribute import distribute_lib, tpu_strategy  # isort: skip

from official.distribution import numerics, strategies
from official.utils import paths
from tests import commands

# A shell ignores SIGINT for what it starts in the background, and some tests interrupt a build.
signal.signal(signal.SIGINT, signal.default_int_handler)
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)


def _run(strategy, fn, *args, run=distribute_lib.StrategyBase.run, **options):
    """Runs a function on all replicas. What `official` runs has to pass the check of a TPU."""
    if sys._getframe(1).f_globals["__name__"].split(".")[0] == "official":
        tpu_strategy.validate_run_function(fn)
    return run(strategy, fn, *args, **options)


distribute_lib.StrategyBase.run = _run

# `precision: auto` is the same on every machine: float32. (Fixtures of modules come before those of
# functions, so no fixture does this.)
numerics.CPU_INFO = Path("missing")


def pytest_configure(config):
    """Starts the server of the commands, but not where xdist deals out the tests: it runs none."""
    if "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses", None):
        commands.start_server()


@pytest.fixture(scope="module", autouse=True)
def clean():
    """Frees the graphs of earlier modules, which are in reference cycles; restores float32.

    What is left is in use, and later collections need not walk through it: in a process that has
    run 100 modules they take seconds.
    """
    gc.collect()
    gc.freeze()
    yield
    numerics.set_precision("float32")


@functools.cache
def _mirrored(replicas: int) -> tf.distribute.Strategy:
    return strategies.mirrored([f"CPU:{i}" for i in range(replicas)])


@pytest.fixture
def mirrored():
    """Gives the strategy of so many logical CPUs."""
    return _mirrored


@pytest.fixture
def ram(request):
    """A folder of its own in TensorFlow's file system in memory."""
    folder = paths.path(f"ram://{re.sub('[^a-z_]', '_', request.node.name)}")
    folder.mkdir()
    yield folder
    paths.remove_tree(folder)


@pytest.fixture
def default_optimizer():
    """Optimizes graphs as TensorFlow does by default, and not as the runs of this process do."""
    before = tf.config.optimizer.get_experimental_options()
    options = ("arithmetic_optimization", "remapping")
    tf.config.optimizer.set_experimental_options(dict.fromkeys(options, True))
    yield
    tf.config.optimizer.set_experimental_options(
        {option: before.get(option, True) for option in options}
    )
