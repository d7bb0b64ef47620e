"""What the process that workers are forked from imports first: it keeps TensorFlow quiet."""

from official.utils import quiet_import

quiet_import.install()
