"""Attention masks: boolean, True = may attend, broadcastable to [B, N, T, S].

Masks stay boolean until `bias`, the only place where one becomes a number.

Shapes: B batch, N heads, T query length, S key length, M memory, P positions.
"""

import keras
from keras import ops


def padding(padding_mask):
    """Lets every query attend to the real keys.

    Args:
        padding_mask: [B, S], true (or not 0) where there is a token.

    Returns:
        bool [B, 1, 1, S].
    """
    return ops.cast(padding_mask, "bool")[:, None, None, :]


def parts(part_ids):
    """Lets every query attend to the keys of its own part of a row that several sequences share.

    Args:
        part_ids: int [B, T], the number of each token's part.

    Returns:
        bool [B, 1, T, T].
    """
    return ops.equal(part_ids[:, None, :, None], part_ids[:, None, None, :])


def blocks(block_ids):
    """Lets every query attend to the keys of its own block of a row and of those before it.

    Args:
        block_ids: int [B, T], the number of each token's block, rising.

    Returns:
        bool [B, 1, T, T].
    """
    return block_ids[:, None, :, None] >= block_ids[:, None, None, :]


def causal(query_length, key_length, first=None, attention_window=0):
    """Lets each query attend to itself and to what stands before it.

    Queries are the last `query_length` of the keys, so with a memory in front of the sequence
    all of the memory is visible; or those from key number `first` on (an integer or a scalar
    tensor), so what a cache has room for and does not hold yet is not. With an `attention_window`,
    a query attends to so many keys at most, itself counted.

    Returns:
        bool [1, 1, T, S].
    """
    first = key_length - query_length if first is None else first
    rows = ops.arange(query_length)[:, None] + first
    keys = ops.arange(key_length)[None, :]
    seen = keys <= rows
    if attention_window:
        seen = ops.logical_and(seen, keys > rows - attention_window)
    return seen[None, None, :, :]


def permutation(permutation_mask):
    """Lets each query attend to what its order of prediction allows, and to itself.

    That is the content stream's mask; the query stream has `permutation_mask` as it is.

    Args:
        permutation_mask: bool [B, T, T], True where the row's token may see the column's.

    Returns:
        bool [B, 1, T, T].
    """
    places = ops.arange(ops.shape(permutation_mask)[1])
    itself = ops.equal(places[:, None], places[None, :])
    return ops.logical_or(ops.cast(permutation_mask, "bool"), itself)[:, None]


def rows(mask, positions):
    """The rows of a mask that belong to some positions.

    Args:
        mask: bool [B or 1, N or 1, T or 1, S]; None stays None.
        positions: int [B, P].

    Returns:
        bool [B or 1, N or 1, P or 1, S].
    """
    if mask is None or mask.shape[2] == 1:
        return mask
    return ops.take_along_axis(mask, positions[:, None, :, None], axis=2)


def after_memory(mask, memory_mask, length):
    """Puts the keys of a memory before those of a sequence.

    Args:
        mask: bool [B or 1, N or 1, T or 1, S]; None = every key of the sequence may be seen.
        memory_mask: bool [B, M], False for slots that hold nothing.
        length: S.

    Returns:
        bool [B, N or 1, T or 1, M + S].
    """
    batch, size = ops.shape(memory_mask)
    if mask is None:
        mask = ops.ones((batch, 1, 1, length), "bool")
    _, heads, queries, _ = ops.shape(mask)
    memory = ops.cast(memory_mask, "bool")[:, None, None, :]
    return ops.concatenate(
        [
            ops.broadcast_to(memory, (batch, heads, queries, size)),
            ops.broadcast_to(mask, (batch, heads, queries, length)),
        ],
        axis=-1,
    )


def attended(mask, batch, length):
    """The positions that some query may attend to, and so are no padding.

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
    """Attention allowed by all of `masks`; those that are None allow everything.

    Returns:
        bool, the broadcast shape of the masks, or None where all are None.
    """
    combined = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def bias(mask, dtype):
    """What to add to attention scores: 0 where allowed, a very large negative number elsewhere.

    The number is finite, so that a row that may attend to nothing gets equal weights and not NaN;
    it is large enough to swallow any score, so that forbidden weights are exactly 0 in all others.
    """
    forbidden = -3e4 if keras.backend.standardize_dtype(dtype) == "float16" else -1e30
    return ops.where(mask, *[ops.convert_to_tensor(x, dtype) for x in (0.0, forbidden)])
