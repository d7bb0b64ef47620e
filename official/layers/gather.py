"""Rows of a matrix by number, with a gradient that is dense and summed.

Shapes: R rows, D row size.
"""

from keras import ops


def rows(matrix, ids):
    """Takes the rows `ids` of `matrix`.

    The gradient sums the contributions to each row into one dense matrix. (TensorFlow's own is a
    list of slices with repeated ids, which optimizers and clipping read wrongly, and which costs
    more than it saves where the same matrix has a dense gradient too, as a tied table has.)

    Args:
        matrix: [R, D].
        ids: integers of any shape.

    Returns:
        [*ids.shape, D].
    """
    num_rows, size = matrix.shape[0], matrix.shape[-1]

    @ops.custom_gradient
    def take(matrix):
        def grad(*args, upstream=None):
            upstream = args[-1] if upstream is None else upstream
            flat = ops.reshape(upstream, (-1, size))
            return ops.segment_sum(flat, ops.reshape(ids, (-1,)), num_segments=num_rows)

        return ops.take(matrix, ids, axis=0), grad

    # The reshape costs nothing and makes a tensor of a variable, which `take` must not capture.
    return take(ops.reshape(matrix, (num_rows, size)))


def positions(sequence, ids):
    """Takes some positions of each sequence.

    Args:
        sequence: [B, T, D].
        ids: int [B, P].

    Returns:
        [B * P, D], sequence by sequence.
    """
    batch, length, size = ops.shape(sequence)
    starts = ops.arange(batch, dtype="int32")[:, None] * length
    flat = ops.reshape(ops.cast(ids, "int32") + starts, (-1,))
    return ops.take(ops.reshape(sequence, (-1, size)), flat, axis=0)
