"""Sets up TensorFlow in worker processes."""

import tensorflow as tf


def set_up() -> None:
    """Starts TensorFlow with one thread and no accelerator."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.set_visible_devices([], "GPU")
    tf.constant(0)  # starts TensorFlow's runtime, which a process does once
