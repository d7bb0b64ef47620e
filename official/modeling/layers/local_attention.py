"""Local attention in blocks: a query attends to nearby keys, in time linear in the length.

A row is cut into blocks of queries. The keys of a block are its own positions and R positions on
each side, which are also keys of other blocks. Scores are then an array [B, N, C, Q, K], and no
array has the size T * T. A short row is one block.

Shapes: B batch, N heads, T length, C blocks of a row, Q queries of a block, R keys on each side of
a block, K = Q + 2 R keys of a block, H head size. R is 0 if there is one block.
"""

from typing import Any, NamedTuple

from keras import ops

from official.modeling import masks
from official.modeling.types import Size, Tensor

_SMALLEST = 128  # queries of a block; smaller products are slower


class Blocks(NamedTuple):
    """The blocks of rows, and the keys that each query attends to.

    Attributes:
        mask: bool [B or 1, 1, C, Q, K], True = may attend.
    """

    mask: Any

    @classmethod
    def of(
        cls,
        length: Size,
        reach: int,
        attention_mask: Tensor | None = None,
        part_ids: Tensor | None = None,
    ) -> "Blocks":
        """Makes blocks in which each query attends to keys at a distance of at most `reach`.

        Args:
            length: T.
            reach: the largest distance, 1 or more.
            attention_mask: bool [B or 1, 1, 1, T], False for keys that no query attends to; None =
                all keys may be attended to.
            part_ids: int [B, T], see `masks.parts`; None = rows have one part.
        """
        size = max(reach, _SMALLEST)
        whole = length <= size + 2 * reach  # several blocks would have more scores than one block
        if isinstance(length, int):
            size, beside = (length, 0) if whole else (size, reach)
        else:
            size, beside = ops.where(whole, length, size), ops.where(whole, 0, reach)
        if attention_mask is None:
            attention_mask = ops.ones((1, 1, 1, length), "bool")

        def of_keys(x):  # [B or 1, 1, T, 1] to [B or 1, C, 1, K]
            return ops.transpose(_keys(x, size, beside)[:, 0], (0, 1, 3, 2))

        # Positions outside the row become False.
        real = of_keys(ops.transpose(attention_mask, (0, 1, 3, 2)))
        # Four axes, because LiteRT aborts when booleans of five axes are broadcast.
        mask = masks.combine(real, masks.window(size, size + 2 * beside, reach, beside))
        if part_ids is not None:
            parts = ops.expand_dims(part_ids, (1, 3))  # [B, 1, T, 1]
            same = ops.equal(_queries(parts, size)[:, 0], of_keys(parts))  # [B, C, Q, K]
            mask = masks.combine(mask, same)
        return cls(ops.expand_dims(mask, 1))

    def queries(self, x: Tensor) -> Tensor:
        """Cuts x [B, N, T, H] into blocks and pads the last block: [B, N, C, Q, H]."""
        return _queries(x, ops.shape(self.mask)[3])

    def keys(self, x: Tensor) -> Tensor:
        """Returns the keys or values of each block of x [B, N, T, H]: [B, N, C, K, H]."""
        _, _, _, size, keys = ops.shape(self.mask)
        return _keys(x, size, (keys - size) // 2)

    def rows(self, x: Tensor, length: Size) -> Tensor:
        """Returns the first T positions of all blocks x [B, C * Q, D]: [B, T, D]."""
        batch, filled, width = ops.shape(x)
        if isinstance(length, int) and filled == length:
            return x
        return ops.slice(x, (0, 0, 0), (batch, length, width))


def _queries(x: Tensor, size: Size) -> Tensor:
    """Cuts x [B, N, T, H] into blocks of Q positions: [B, N, C, Q, H]."""
    batch, heads, length, width = ops.shape(x)
    count = (length + size - 1) // size  # ONNX rounds a negative quotient to 0, not down
    missing = count * size - length
    if not isinstance(missing, int) or missing:
        x = ops.pad(x, [[0, 0], [0, 0], [0, missing], [0, 0]])
    return ops.reshape(x, (batch, heads, count, size, width))


def _keys(x: Tensor, size: Size, beside: Size) -> Tensor:
    """Extends each block of x [B, N, T, H] by the R positions before and after it."""
    own = _queries(x, size)
    if isinstance(beside, int) and not beside:
        return own
    batch, heads, count, _, width = ops.shape(own)
    none = ops.zeros((batch, heads, 1, beside, width), x.dtype)
    # The gradient of this slice is a pad, which is faster than the gradient of indexing.
    others = (batch, heads, count - 1, beside, width)
    before = ops.slice(own, (0, 0, 0, size - beside, 0), others)
    after = ops.slice(own, (0, 0, 1, 0, 0), others)
    before = ops.concatenate([none, before], axis=2)
    after = ops.concatenate([after, none], axis=2)
    return ops.concatenate([before, own, after], axis=3)
