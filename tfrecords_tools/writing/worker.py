"""Sets up TensorFlow in worker processes."""

import tensorflow as tf


def set_up() -> None:
    """Starts TensorFlow with one thread and no accelerator."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.set_visible_devices([], "GPU")
    tf.constant(0)  # The first operation of a process initializes TensorFlow's runtime.
