"""Rows of a matrix by number, with a gradient that is dense and summed.

Shapes: R rows, D row size, B batch, T length, P positions.
"""

from keras import ops

from official.modeling.layers.gradient import with_gradient


@with_gradient
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
    num_rows, size = ops.shape(matrix)

    def backward(upstream):
        flat = ops.reshape(upstream, (-1, size))
        return ops.segment_sum(flat, ops.reshape(ids, (-1,)), num_segments=num_rows), None

    return ops.take(matrix, ids, axis=0), backward


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
    return rows(ops.reshape(sequence, (-1, size)), flat)


def each(sequence, ids):
    """The same as `positions`, with the sequences kept apart: [B, P, D]."""
    return ops.reshape(positions(sequence, ids), (*ops.shape(ids), ops.shape(sequence)[2]))


def place(values, ids, length):
    """Puts numbers at some positions of each sequence; where several meet they add up.

    Args:
        values: [B, P].
        ids: int [B, P].
        length: T.

    Returns:
        [B, T], 0 where nothing was put.
    """
    batch = ops.shape(values)[0]
    starts = ops.arange(batch, dtype="int32")[:, None] * length
    flat = ops.reshape(ops.cast(ids, "int32") + starts, (-1,))
    placed = ops.segment_sum(ops.reshape(values, (-1,)), flat, num_segments=batch * length)
    return ops.reshape(placed, (batch, length))
