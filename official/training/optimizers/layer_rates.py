"""Learning rates that decay from the head to the embeddings, for fine-tuning.

ELECTRA (Clark et al., 2020, appendix B) and XLNet (Yang et al., 2019, table 8) use them, because
lower layers are more general and should change less. The learning rate is scaled and not the
gradient, because Adam and LAMB divide gradients by their own size.

ELECTRA counts from the head, XLNet from the last layer.

L is the number of blocks that an encoder runs.
"""

from official.modeling.model import Model
from official.utils.errors import UserError


def factors(model: Model, decay: float, whole: str = "head") -> dict[str, float]:
    """Returns `decay^max(0, top - depth)` for each trainable variable by its path.

    The top is L + 2, the head, or L if `whole` is `last_layer`.

    The embeddings have depth 0, the i-th block (from 1) has depth i, and heads have depth L + 2, as
    in ELECTRA's `optimization.py`. The layers of an encoder above its last block (pooler, final
    norm) have depth L + 1. A block that runs several times (ALBERT) has the depth of its last run.

    Raises:
      UserError: the encoder has two stacks of blocks, which no single depth orders.
    """
    encoder = model.encoder
    if not hasattr(encoder, "depths"):
        raise UserError(
            f"recipe.optimizer.layer_decay: {decay}, and encoder.type: {encoder.config.type} has "
            "two stacks of layers: leave it out"
        )
    num_runs = len(encoder.depths)
    depths = {variable.path: num_runs + 2 for variable in model.trainable_variables}
    depths |= {variable.path: num_runs + 1 for variable in encoder.trainable_variables}
    depths |= {variable.path: 0 for variable in encoder.embeddings.trainable_variables}
    for run, block in enumerate(encoder.depths, start=1):
        depths |= {v.path: run for v in encoder.blocks[block].trainable_variables}
    top = num_runs + 2 if whole == "head" else num_runs
    return {path: decay ** max(0, top - depth) for path, depth in depths.items()}
