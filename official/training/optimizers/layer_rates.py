"""Learning rates that fall from the head down to the embeddings, for fine-tuning.

ELECTRA (Clark et al., 2020, appendix B) and XLNet (Yang et al., 2019, table 8) fine-tune with
them: what lies lower is more general and is to move less. It is the rate that is scaled here;
scaled gradients change nothing where an optimizer divides them by their own size.

Depths are counted as by ELECTRA, from the head. XLNet counts from its last layer, which has the
whole rate l, the one below l·decay, and so on: a `learning_rate` of l / decay² gives layers these.

L counts the blocks that an encoder runs.
"""

from official.model import Model


def factors(model: Model, decay: float) -> dict[str, float]:
    """`decay^(L + 2 - depth)` for every trainable variable, by its path.

    The depth of the embeddings is 0, that of the block that runs as number i (from 1) is i, and
    that of every head L + 2: ELECTRA's `optimization.py`. What an encoder has above its last block
    (pooler, final norm) stands between, at L + 1. A block that runs several times (ALBERT) has the
    depth of its last run, the nearest to the head.
    """
    encoder = model.encoder
    num_runs = len(encoder.depths)
    depths = {variable.path: num_runs + 2 for variable in model.trainable_variables}
    depths |= {variable.path: num_runs + 1 for variable in encoder.trainable_variables}
    depths |= {variable.path: 0 for variable in encoder.embeddings.trainable_variables}
    for run, block in enumerate(encoder.depths, start=1):
        depths |= {v.path: run for v in encoder.blocks[block].trainable_variables}
    return {path: decay ** (num_runs + 2 - depth) for path, depth in depths.items()}
