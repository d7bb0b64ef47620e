"""`keras.ops.scan` over a number of positions that is unknown when the graph is made."""

from keras import ops


def scan(step, carry, inputs, reverse=False):
    """Calls `step` position by position; see `keras.ops.scan`.

    In Keras for TensorFlow, `ops.scan` refuses several inputs whose first axis has no static size.
    The positions of such inputs are scanned by their numbers.

    Args:
        step: a function of the carry and of a tuple of the inputs at a position.
        carry: the first carry.
        inputs: a tuple of tensors [T, ...].
        reverse: whether to begin at the last position.
    """
    if inputs[0].shape[0] is not None:
        return ops.scan(step, carry, inputs, reverse=reverse)
    numbers = ops.arange(ops.shape(inputs[0])[0], dtype="int32")

    def numbered(carry, number):
        return step(carry, tuple(ops.take(each, number, axis=0) for each in inputs))

    return ops.scan(numbered, carry, numbers, reverse=reverse)
