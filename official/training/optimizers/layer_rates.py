"""Learning rates that fall from the head down to the embeddings, for fine-tuning.

ELECTRA (Clark et al., 2020, appendix B) and XLNet (Yang et al., 2019, table 8) fine-tune with
them: what lies lower is more general and is to move less. It is the rate that is scaled here;
scaled gradients change nothing where an optimizer divides them by their own size.

ELECTRA counts from the head, XLNet from the last layer.

L counts the blocks that an encoder runs.
"""

from official.modeling.model import Model


def factors(model: Model, decay: float, whole: str = "head") -> dict[str, float]:
    """`decay^(top - depth)` for every trainable variable, by its path; 1 from the top on.

    The top is L + 2, the head, or L where `whole` is `last_layer`.

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
    top = num_runs + 2 if whole == "head" else num_runs
    return {path: decay ** max(0, top - depth) for path, depth in depths.items()}
