"""Gathers rows of matrices and positions of sequences, with dense gradients.

Shapes: R rows, D row size, B batch, T length, P positions.
"""

from keras import ops

from official.modeling.layers.kernels import with_gradient
from official.modeling.types import Size, Tensor


@with_gradient
def rows(matrix: Tensor, ids: Tensor) -> Tensor:
    """Takes the rows `ids` of `matrix`.

    The gradient is one dense matrix with the sum of the contributions to each row. (TensorFlow's
    own gradient is a list of slices with repeated ids. Optimizers and clipping misread it, and it
    is slower if the matrix has a dense gradient as well, as a tied table has.)

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


def positions(sequence: Tensor, ids: Tensor) -> Tensor:
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


def each(sequence: Tensor, ids: Tensor) -> Tensor:
    """Takes some positions of each sequence, as `positions`: [B, P, D]."""
    return ops.reshape(positions(sequence, ids), (*ops.shape(ids), ops.shape(sequence)[2]))


def place(values: Tensor, ids: Tensor, length: Size) -> Tensor:
    """Puts numbers at some positions of each sequence; numbers at the same position are added.

    Args:
        values: [B, P].
        ids: int [B, P].
        length: T.

    Returns:
        [B, T], 0 at all other positions.
    """
    batch = ops.shape(values)[0]
    starts = ops.arange(batch, dtype="int32")[:, None] * length
    flat = ops.reshape(ops.cast(ids, "int32") + starts, (-1,))
    placed = ops.segment_sum(ops.reshape(values, (-1,)), flat, num_segments=batch * length)
    return ops.reshape(placed, (batch, length))
