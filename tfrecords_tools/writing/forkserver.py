"""The first import of the process that workers are forked from; it silences TensorFlow."""

from official.utils import quiet_import

quiet_import.install()
