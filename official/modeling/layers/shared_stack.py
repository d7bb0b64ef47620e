"""Assigns blocks to depths, which may share parameters (ALBERT, section 3.1)."""


def block_names(num_layers, layer_groups=None, inner_layers=1):
    """Returns the name of the block at each depth; depths with the same name share a block.

    Without groups, each depth has its own block. With groups, depth `i` belongs to group
    `i * layer_groups // num_layers` and runs the `inner_layers` blocks of its group one after
    the other.

    Returns:
        A tuple of num_layers names, or num_layers * inner_layers names with groups.
    """
    if layer_groups is None:
        return tuple(f"layer_{i}" for i in range(num_layers))
    return tuple(
        f"group_{i * layer_groups // num_layers}_layer_{j}"
        for i in range(num_layers)
        for j in range(inner_layers)
    )
