"""Slots for what later positions attend to, filled a few at a time.

Shapes: B batch, N heads, T new positions, S slots, H head size.
"""

from keras import ops


def empty(batch, num_heads, slots, head_size, dtype):
    """Slots that hold nothing yet: [B, N, S, H]."""
    return ops.zeros((batch, num_heads, slots, head_size), dtype)


def write(slots, new, first):
    """Puts new [B, N, T, H] into slots [B, N, S, H] from number `first` on."""
    length = new.shape[2]
    places = ops.arange(slots.shape[2]) - first  # [S]: which of the new ones goes there
    spread = ops.take(new, ops.clip(places, 0, length - 1), axis=2)
    return ops.where(((places >= 0) & (places < length))[:, None], spread, slots)
