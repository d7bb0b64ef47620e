"""Slots for keys and values that later positions attend to.

Shapes: B batch, N heads, T new positions, S slots, H head size.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator

from keras import ops

_WRITER = contextvars.ContextVar("cache_writer", default=None)


def empty(batch, num_heads, slots, head_size, dtype):
    """Returns empty slots: [B, N, S, H]."""
    return ops.zeros((batch, num_heads, slots, head_size), dtype)


@contextlib.contextmanager
def written_by(writer: Callable) -> Iterator[None]:
    """Replaces `write` inside the block by a function with the same arguments and result.

    On TensorFlow, `write` copies all slots. `official.serving.token_loop` has a function that does
    not.
    """
    token = _WRITER.set(writer)
    try:
        yield
    finally:
        _WRITER.reset(token)


def write(slots, new, first):
    """Writes `new` [B, N, T, H] into slots [B, N, S, H], from slot `first` on."""
    if (writer := _WRITER.get()) is not None:
        return writer(slots, new, first)
    return ops.slice_update(slots, (0, 0, first, 0), new)
