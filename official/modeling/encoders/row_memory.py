"""The memory that a row leaves for the row that continues it (Dai et al. 2019, section 3.2).

Shapes: B batch, T length, L layers, M memory, D hidden.
"""

from keras import ops

from official.utils.errors import UserError


def keep(row, old, size, reuse):
    """Returns the last M positions of the memory followed by the reused part of the row.

    Args:
        row: [B, T, ...], a value for each position.
        old: [B, M, ...], the same for the memory; None = zeros.
        size: M.
        reuse: how many of the first positions of the row are reused; 0 = all.

    Returns:
        [B, M, ...], without a gradient.
    """
    row = row[:, : reuse or None]
    if old is None:
        old = ops.zeros((ops.shape(row)[0], size, *row.shape[2:]), row.dtype)
    joined = ops.concatenate([ops.cast(old, row.dtype), row], axis=1)
    return ops.stop_gradient(joined[:, -size:])


def after(inputs, real, memory, memory_mask, *, size, reuse):
    """Returns the memory after a row.

    Args:
        inputs: the inputs of the layers, L tensors [B, T, D].
        real: bool [B, T], False for padding.
        memory: [B, L, M, D], the memory before the row, or None.
        memory_mask: bool [B, M], or None.
        size: M.
        reuse: as in `keep`.

    Returns:
        dict with `memory` [B, L, M, D] and `memory_mask` [B, M].
    """
    kept = [
        keep(row, None if memory is None else memory[:, i], size, reuse)
        for i, row in enumerate(inputs)
    ]
    return {
        "memory": ops.stack(kept, axis=1),
        "memory_mask": keep(real, memory_mask, size, reuse),
    }


def mask(memory, memory_mask):
    """Returns the mask of a memory, by default all true: bool [B, M], or None without a memory."""
    if memory is None:
        return None
    if memory_mask is None:
        batch, _, size, _ = ops.shape(memory)
        return ops.ones((batch, size), "bool")
    return memory_mask


def check(memory, config):
    """Raises UserError if a memory is not [B, L, M, D], or if the config has no memory."""
    if memory is None:
        return
    if not config.memory_length:
        raise UserError("memory: given, and encoder.memory_length is 0: set it")
    expected = (config.num_layers, config.memory_length, config.hidden_size)
    if tuple(memory.shape[1:]) != expected:
        raise UserError(
            f"memory: expected [B, {', '.join(map(str, expected))}], got shape "
            f"{tuple(memory.shape)}"
        )
