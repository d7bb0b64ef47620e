"""Which block runs at which depth, where depths may share parameters (ALBERT, section 3.1)."""


def block_names(num_layers, layer_groups=None, inner_layers=1):
    """Names the block of each depth; depths with the same name share one block.

    Without groups every depth has a block of its own. With groups, depth `i` belongs to group
    `i * layer_groups // num_layers` and runs the `inner_layers` blocks of its group one after
    the other.

    Returns:
        A tuple of names in the order of running: num_layers of them, or num_layers * inner_layers.
    """
    if layer_groups is None:
        return tuple(f"layer_{i}" for i in range(num_layers))
    return tuple(
        f"group_{i * layer_groups // num_layers}_layer_{j}"
        for i in range(num_layers)
        for j in range(inner_layers)
    )
