"""Shared by all tests: four logical CPU devices, so that strategies with replicas can run."""

import functools

import pytest

from official import errors  # noqa: F401  sets TensorFlow's log level before its import

import tensorflow as tf  # isort: skip

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)

@functools.cache
def _mirrored(replicas: int) -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


@pytest.fixture
def mirrored():
    """Gives the MirroredStrategy of so many CPUs: TensorFlow bears but one of each a process."""
    return _mirrored
