"""Sets up TensorFlow in worker processes."""

import ctypes

import tensorflow as tf

# Parameters of glibc's `mallopt`.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_ARRAY_BYTES = 1 << 30  # more than any array of a batch


def set_up() -> None:
    """Starts TensorFlow with one thread and no accelerator, in a process that reuses memory."""
    _reuse_memory()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.set_visible_devices([], "GPU")
    tf.constant(0)  # The first operation of a process initializes TensorFlow's runtime.


def _reuse_memory() -> None:
    """Keeps the memory of arrays that are deleted, for the arrays of the next batch.

    By default glibc maps the memory of each large array and unmaps it afterwards, and the system
    clears every page of it again. Another C library may have no `mallopt`.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _ARRAY_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _ARRAY_BYTES)
