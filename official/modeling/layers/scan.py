"""A loop over the positions of several sequences."""

from keras import ops


def scan(step, state, sequences, reverse=False):
    """Runs `keras.ops.scan` over sequences whose length may be known only when the graph runs.

    (In TensorFlow, Keras fails for two or more sequences of unknown length. The loop then runs over
    the numbers of the positions.)

    Args:
        step: a function from the state and the values of a position to the next state and a result
            of the same structure.
        state: a tensor or a tuple of tensors.
        sequences: a tuple of tensors [T, ...].
        reverse: whether the loop begins at the last position.

    Returns:
        The last state, and the results of all positions [T, ...].
    """
    if sequences[0].shape[0] is not None:
        return ops.scan(step, state, sequences, reverse=reverse)

    def at(state, number):
        return step(state, tuple(ops.take(x, number, axis=0) for x in sequences))

    numbers = ops.arange(ops.shape(sequences[0])[0], dtype="int32")
    return ops.scan(at, state, numbers, reverse=reverse)
