"""Attention weights of a model as heat maps.

Shapes: T tokens, N heads.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from official.modeling.model import Model
from official.plots import heat_maps
from official.tokenizers import Tokenizer
from official.tokenizers.packing import pack
from official.utils.errors import UserError


def weights(
    text: str, tokenizer: Tokenizer, model: Model, max_length: int | None = None
) -> tuple[list[str], list[np.ndarray]]:
    """Computes the attention weights of a model on a text.

    Args:
      text: a text with at least one token. It is cut to `max_length` tokens.
      tokenizer: the tokenizer of the model.
      model: the model.
      max_length: includes the special tokens; None = no limit.

    Returns:
      The tokens, and for each layer the attention weights [N, T, T].

    Raises:
      UserError: the text has no token.
    """
    ids = tokenizer.encode([text])[0]
    if not len(ids):
        raise UserError(f"--text: {text!r} has no token: give a text of a few words")
    rows = tf.RaggedTensor.from_row_lengths(ids, [len(ids)])
    batch = pack([rows], tokenizer, max_length or len(ids) + 2, model.encoder.config.layout)
    encoded = model.encode(batch, output_all=True)
    layers = [np.asarray(layer[0], np.float32) for layer in encoded["attentions"]]
    return [tokenizer.pieces[i] for i in batch["token_ids"][0].numpy()], layers


def draw(tokens: Sequence[str], layers: Sequence[np.ndarray]) -> Figure:
    """Draws the result of `weights`: a row of panels for each layer, a column for each head."""
    grid = [
        [
            heat_maps.HeatMap(f"layer {i} head {j}", head, tokens, tokens)
            for j, head in enumerate(layer)
        ]
        for i, layer in enumerate(layers)
    ]
    return heat_maps.draw(grid, "attention weight")
