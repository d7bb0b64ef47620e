"""What keeps a computation the same to the bit, and the types of layers."""

import keras
import tensorflow as tf


def keep_order_of_sums():
    """Makes a sum of three and more tensors the same to the bit in every run.

    TensorFlow's `AddN` begins with whichever input's buffer is free at that moment. The graph
    optimizer makes `AddN` of any tree of additions, differently from one trace to the next, so it
    is told not to, and gradients of a tensor with several uses are added two by two. Its other
    rewrites of arithmetic change last bits too, so evaluation is spared them as training is:
    metrics of a checkpoint are the same whether the process that evaluates it has trained or not.
    """
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})


def set_precision(precision: str) -> None:
    """Sets Keras' types for every layer made from here on."""
    keras.config.set_floatx("float64" if precision == "float64" else "float32")
    keras.config.set_dtype_policy(precision)
