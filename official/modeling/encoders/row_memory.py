"""What a row leaves for the row that goes on from it (Dai et al. 2019, section 3.2).

Shapes: B batch, T length, L layers, M memory, D hidden.
"""

from keras import ops

from official.utils.errors import UserError


def keep(row, old, size, reuse):
    """The last M positions of what was remembered and of the row's part that is reused.

    Args:
        row: [B, T, ...], something for each position.
        old: [B, M, ...], the same of the memory; None = zeros.
        size: M.
        reuse: how many positions of the row count, the first ones; 0 = all.

    Returns:
        [B, M, ...], through which no gradient goes.
    """
    row = row[:, : reuse or None]
    if old is None:
        old = ops.zeros((ops.shape(row)[0], size, *row.shape[2:]), row.dtype)
    joined = ops.concatenate([ops.cast(old, row.dtype), row], axis=1)
    return ops.stop_gradient(joined[:, -size:])


def after(inputs, real, memory, memory_mask, *, size, reuse):
    """The memory after a row.

    Args:
        inputs: what each layer read, L tensors [B, T, D].
        real: bool [B, T], False for padding.
        memory: [B, L, M, D], what there was before; None = nothing.
        memory_mask: bool [B, M].
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


def check(memory, config):
    """Raises UserError where a memory is not [B, L, M, D], or where there cannot be one."""
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
