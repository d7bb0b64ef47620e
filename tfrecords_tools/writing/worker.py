"""Sets up TensorFlow in worker processes."""

import tensorflow as tf


def set_up() -> None:
    """Gives TensorFlow one thread and no accelerator."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.set_visible_devices([], "GPU")
