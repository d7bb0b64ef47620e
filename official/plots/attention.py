"""Attention weights of a model as heat maps.

Shapes: T tokens, N heads, U tokens of a target.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from official.modeling.model import Model
from official.plots import figures, text_means
from official.tokenizers import Tokenizer
from official.utils.errors import UserError


def weights(
    text: str, tokenizer: Tokenizer, model: Model, max_length: int | None = None
) -> tuple[list[str], list[np.ndarray]]:
    """Computes the attention weights of a model on a text.

    Args:
      text: a text with at least one token. It is cut to `max_length` tokens. A model with a decoder
        reads it with its end token alone.
      tokenizer: the tokenizer of the model.
      model: the model.
      max_length: includes the special tokens; None = the positions of the encoder.

    Returns:
      The tokens, and for each layer the attention weights [N, T, T].

    Raises:
      UserError: the text has no token, or the encoder has no attention.
    """
    if not len(tokenizer.encode([text])[0]):
        raise UserError(f"the text {text!r} has no token: give one of a few words")
    batch = text_means.packed([text], tokenizer, model, max_length)
    encoded = model.encode(batch, output_all=True)
    layers = [np.asarray(layer[0], np.float32) for layer in text_means.attentions(encoded, model)]
    return [tokenizer.pieces[i] for i in batch["token_ids"][0].numpy()], layers


def cross_weights(
    text: str, target: str, tokenizer: Tokenizer, model: Model, max_length: int | None = None
) -> tuple[list[str], list[str], list[np.ndarray]]:
    """Computes the attention of a decoder to its encoder.

    Args:
      text: the input, with at least one token. It is cut to `max_length` tokens with its end token.
      target: the text that the decoder is given.
      tokenizer: the tokenizer of the model.
      model: a model with a decoder.
      max_length: of each of the two; None = no limit.

    Returns:
      The tokens of the input; those that the decoder predicts at each of its positions; and for
      each layer the attention weights [N, U, T].

    Raises:
      UserError: the model has no decoder, or the text has no token.
    """
    objective = model.objective("seq2seq_lm")
    if objective is None:
        raise UserError(
            "--what=cross_attention: the model has no decoder: take an encoder_decoder with "
            "seq2seq_lm, or --what=attention"
        )
    inputs, targets = (
        _with_end(ids, tokenizer, max_length) for ids in tokenizer.encode([text, target])
    )
    if len(inputs) == 1:
        raise UserError(f"the text {text!r} has no token: give one of a few words")
    batch = objective.prepare(
        {
            "token_ids": tf.constant([inputs], tf.int32),
            "target_ids": tf.constant([targets], tf.int32),
        }
    )
    encoded = model.encode(batch, output_all=True)
    layers = [np.asarray(layer[0], np.float32) for layer in encoded["cross_attentions"]]
    read, written = ([tokenizer.pieces[i] for i in ids] for ids in (inputs, targets))
    return read, written, layers


def _with_end(ids: np.ndarray, tokenizer: Tokenizer, max_length: int | None) -> list[int]:
    """Returns the ids of a text, cut to `max_length` tokens with the end token."""
    room = len(ids) if max_length is None else max_length - 1
    return [*ids[tokenizer.pairs.kept(len(ids), room)], tokenizer.sep_id]


def draw_cross(
    inputs: Sequence[str], targets: Sequence[str], layers: Sequence[np.ndarray]
) -> Figure:
    """Draws the result of `cross_weights` as `draw` does: a line for each token of the target."""
    grid = [
        [
            figures.HeatMap(f"layer {i} head {j}", head, targets, inputs)
            for j, head in enumerate(layer)
        ]
        for i, layer in enumerate(layers)
    ]
    return figures.draw_heat_maps(grid, "attention weight")


def draw(tokens: Sequence[str], layers: Sequence[np.ndarray]) -> Figure:
    """Draws the result of `weights`: a row of panels for each layer, a column for each head."""
    return draw_cross(tokens, tokens, layers)
