"""Slots for keys and values that later positions attend to.

Shapes: B batch, N heads, T new positions, S slots, H head size.
"""

from keras import ops


def empty(batch, num_heads, slots, head_size, dtype):
    """Returns empty slots: [B, N, S, H]."""
    return ops.zeros((batch, num_heads, slots, head_size), dtype)


def write(slots, new, first):
    """Writes `new` [B, N, T, H] into slots [B, N, S, H], from slot `first` on."""
    length = new.shape[2]
    indices = ops.arange(slots.shape[2]) - first  # [S]: the new position that a slot gets
    if length == 1:
        return ops.where((indices == 0)[:, None], new, slots)
    spread = ops.take(new, ops.clip(indices, 0, length - 1), axis=2)
    return ops.where(((indices >= 0) & (indices < length))[:, None], spread, slots)
