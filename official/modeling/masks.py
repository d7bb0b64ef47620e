"""Boolean attention masks: True = may attend, broadcastable to [B, N, T, S].

Masks stay boolean until `bias` converts them to numbers that are added to scores. New axes come
from `expand_dims`: LiteRT cannot slice with several new axes if sizes are unknown.

Shapes: B batch, N heads, T query length, S key length, M memory, P positions.
"""

import keras
from keras import ops

from official.modeling.types import DType, Size, Tensor
from official.utils import keras_private
from official.utils.errors import UserError


def checked(mask: Tensor | None, name: str) -> Tensor | None:
    """Checks a mask from the caller of an encoder; refuses additive masks.

    An additive mask, as in other libraries, is 0 for keys that may be attended to and very negative
    for others, the opposite of a boolean mask. Values can be checked only outside graphs.

    Args:
        mask: any shape, true (or not 0) for keys that may be attended to; None = there is no mask.
        name: the argument, for the message.

    Raises:
        UserError: the mask has numbers below 0.
    """
    if mask is None or "float" not in keras.backend.standardize_dtype(mask.dtype):
        return mask
    try:
        values = ops.convert_to_numpy(mask)
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return mask  # a symbolic tensor has no values
    if (values < 0).any():
        raise UserError(
            f"{name} has numbers below 0, like a mask that is added to scores. Here true (or 1) "
            f"means that a token may be attended to: give `{name} == 0` instead"
        )
    return mask


def padding(padding_mask: Tensor) -> Tensor:
    """Lets every query attend to the keys that are not padding.

    Args:
        padding_mask: [B, S], true (or not 0) for tokens.

    Returns:
        bool [B, 1, 1, S].
    """
    return ops.expand_dims(ops.cast(padding_mask, "bool"), (1, 2))


def implied(x: Tensor) -> Tensor | None:
    """Returns the padding mask that Keras keeps with a tensor, such as an output of `Embedding`.

    Args:
        x: [B, T, ...].

    Returns:
        bool [B, 1, 1, T], or None.
    """
    mask = keras_private.mask_of(x)
    return None if mask is None else padding(mask)


def parts(part_ids: Tensor) -> Tensor:
    """Lets every query attend to the keys of its own part, in rows that several sequences share.

    Args:
        part_ids: int [B, T], the index of each token's part.

    Returns:
        bool [B, 1, T, T].
    """
    return between_parts(part_ids, part_ids)


def between_parts(query_part_ids: Tensor, key_part_ids: Tensor) -> Tensor:
    """Lets every query of one sequence attend to the keys of its part of another sequence.

    Args:
        query_part_ids: int [B, T].
        key_part_ids: int [B, S].

    Returns:
        bool [B, 1, T, S].
    """
    queries, keys = ops.expand_dims(query_part_ids, (1, 3)), ops.expand_dims(key_part_ids, (1, 2))
    return ops.equal(queries, keys)


def blocks(block_ids: Tensor) -> Tensor:
    """Lets every query attend to the keys of its own block and of earlier blocks.

    Args:
        block_ids: int [B, T], the index of each token's block, in ascending order.

    Returns:
        bool [B, 1, T, T].
    """
    return ops.expand_dims(block_ids, (1, 3)) >= ops.expand_dims(block_ids, (1, 2))


def causal(
    query_length: Size, key_length: Size, first: Size | None = None, attention_window: int = 0
) -> Tensor:
    """Lets each query attend to itself and to earlier keys.

    Args:
        query_length: T.
        key_length: S.
        first: the key at the position of the first query, an integer or a scalar tensor. None = the
            queries are at the last keys, so that all keys of a memory before the sequence are
            visible. With a cache, `first` hides slots that are not filled yet.
        attention_window: maximum number of keys for a query, itself included; 0 = no limit.

    Returns:
        bool [1, 1, T, S].
    """
    first = key_length - query_length if first is None else first
    rows = ops.arange(query_length, dtype="int32")[:, None] + first
    keys = ops.arange(key_length, dtype="int32")[None, :]
    mask = keys <= rows
    if attention_window:
        mask = ops.logical_and(mask, keys > rows - attention_window)
    return ops.expand_dims(mask, (0, 1))


def window(query_length: Size, key_length: Size, reach: int, first: Size = 0) -> Tensor:
    """Lets each query attend to the keys at a distance of at most `reach`, on both sides.

    Args:
        query_length: T.
        key_length: S.
        reach: the largest distance. A query attends to 2 `reach` + 1 keys, itself included.
        first: the key at the position of the first query.

    Returns:
        bool [1, 1, T, S].
    """
    rows = ops.arange(query_length, dtype="int32")[:, None] + first
    keys = ops.arange(key_length, dtype="int32")[None, :]
    return ops.expand_dims(ops.abs(rows - keys) <= reach, (0, 1))


def permutation(permutation_mask: Tensor) -> Tensor:
    """Lets each query attend to the keys that the order of prediction allows, and to itself.

    This is the mask of the content stream. The query stream uses `permutation_mask` unchanged.

    Args:
        permutation_mask: bool [B, T, T], True where the row may attend to the column.

    Returns:
        bool [B, 1, T, T].
    """
    positions = ops.arange(ops.shape(permutation_mask)[1], dtype="int32")
    itself = ops.equal(positions[:, None], positions[None, :])
    return ops.logical_or(ops.cast(permutation_mask, "bool"), itself)[:, None]


def rows(mask: Tensor, positions: Tensor) -> Tensor | None:
    """Returns the rows of a mask, or of a bias of scores, for some positions.

    Args:
        mask: [B or 1, N or 1, T or 1, S]; None stays None.
        positions: int [B, P].

    Returns:
        The mask or bias of these positions: [B or 1, N or 1, P or 1, S].
    """
    if mask is None or mask.shape[2] == 1:
        return mask
    return ops.take_along_axis(mask, positions[:, None, :, None], axis=2)


def after_memory(mask: Tensor, memory_mask: Tensor, length: Size) -> Tensor:
    """Puts the keys of a memory before the keys of a sequence.

    Args:
        mask: bool [B or 1, N or 1, T or 1, S]; None = all keys of the sequence are visible.
        memory_mask: bool [B, M], False for empty slots.
        length: S.

    Returns:
        bool [B, N or 1, T or 1, M + S].
    """
    batch, size = ops.shape(memory_mask)
    if mask is None:
        mask = ops.ones((batch, 1, 1, length), "bool")
    _, heads, queries, _ = ops.shape(mask)
    memory = padding(memory_mask)
    return ops.concatenate(
        [
            ops.broadcast_to(memory, (batch, heads, queries, size)),
            ops.broadcast_to(mask, (batch, heads, queries, length)),
        ],
        axis=-1,
    )


def attended(mask: Tensor, batch: Size, length: Size) -> Tensor:
    """Returns the positions that any query may attend to: the positions without padding.

    Args:
        mask: bool, broadcastable to [B, N, T, S]; None stays None.
        batch: B.
        length: S.

    Returns:
        bool [B, S].
    """
    if mask is None:
        return None
    return ops.broadcast_to(ops.any(mask, axis=(1, 2)), (batch, length))


def combine(*masks):
    """Combines masks with a logical and; a mask that is None allows everything.

    Returns:
        bool, of the broadcast shape of the masks; None if all are None.
    """
    combined = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def bias(mask: Tensor, dtype: DType) -> Tensor:
    """Converts a mask to numbers to add to attention scores.

    The number is 0 for True and a large negative number for False. It is finite, so that the
    weights of a row without any key are equal and not NaN, and large enough that the weights of
    masked keys are exactly 0 in all other rows.
    """
    forbidden = -3e4 if keras.backend.standardize_dtype(dtype) == "float16" else -1e30
    return ops.where(mask, *[ops.convert_to_tensor(x, dtype) for x in (0.0, forbidden)])
