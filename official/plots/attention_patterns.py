"""What the heads of an encoder attend to, in numbers (Yang et al. 2019, appendix A.6).

A head that attends to near tokens has a large share `near`. One that excludes a token from its own
context has a share `itself` below that of equal attention, and one that is masked on one side has
no share `earlier` or no share `later`.

Shapes: B texts of a batch, T tokens, L layers, N heads, K patterns.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from official.modeling.model import Model
from official.plots import figures, text_means
from official.tokenizers import Tokenizer
from official.utils.errors import UserError

# Shares of the attention of a token, and the entropy of its weights in nats.
SHARES = ("itself", "previous", "next", "near", "earlier", "later", "first", "special")
PATTERNS = (*SHARES, "entropy")


def measure(
    texts: Sequence[str], tokenizer: Tokenizer, model: Model, window: int = 2, **options: Any
) -> list[dict[str, Any]]:
    """Measures each head on the tokens of texts.

    The values are means over the tokens that attend. The shares are of the token itself, the one
    before it and the one after it (0 where there is none); of the tokens at most `window` from it,
    itself included; of all earlier and all later tokens; of the first token of the row; and of
    the special tokens around the text. XLNet reads without a memory and an order of prediction, so
    that every token attends to all tokens.

    Args:
      texts: as for `text_means.means`.
      tokenizer: the tokenizer of the model.
      model: the model.
      window: see above.
      **options: further arguments of `text_means.means`.

    Returns:
      `layer` and `head`, from 0 on, and the values of each head. The first row, with the layer
      `all` and the head `equal`, has the values of uniform attention to all tokens.

    Raises:
      UserError: the encoder has no attention, or there is no text.
    """
    special_ids = tf.constant([tokenizer.cls_id, tokenizer.sep_id], tf.int32)

    def sums(batch, encoded):
        layers = text_means.attentions(encoded, model)
        real = batch["padding_mask"]  # [B, T]
        special = tf.reduce_any(batch["token_ids"][..., None] == special_ids, axis=-1)
        equal = tf.cast(real, layers[0].dtype)
        equal /= tf.reduce_sum(equal, axis=1, keepdims=True)
        equal = tf.broadcast_to(equal[:, None, None], tf.shape(layers[0][:, :1]))
        each = [pattern_sums(weights, real, special, window) for weights in (equal, *layers)]
        return tf.concat(each, axis=0)  # [1 + L N, K]

    values = text_means.means(texts, tokenizer, model, sums, **options).tolist()
    heads = model.encoder.config.num_heads
    names = [("all", "equal"), *(divmod(i, heads) for i in range(len(values) - 1))]
    return [
        {"layer": layer, "head": head, **dict(zip(PATTERNS, row, strict=True))}
        for (layer, head), row in zip(names, values, strict=True)
    ]


def pattern_sums(weights: tf.Tensor, real: tf.Tensor, special: tf.Tensor, window: int) -> tf.Tensor:
    """Returns the sums over the tokens of a batch of the values of each head.

    Args:
      weights: [B, N, T, T], 0 for padding.
      real: bool [B, T], False for padding.
      special: bool [B, T], True for special tokens.
      window: see `measure`.

    Returns:
      float64 [N, K] in the order of `PATTERNS`.
    """
    dtype = weights.dtype
    weights = tf.where(real[:, None, :, None], weights, 0)
    columns = tf.range(tf.shape(weights)[-1])
    offsets = columns[None] - columns[:, None]  # [T, T], of the key from the query
    by_offset = [offsets == 0, offsets == -1, offsets == 1, tf.abs(offsets) <= window]
    by_offset += [offsets < 0, offsets > 0]
    first = columns[None] == tf.argmax(real, axis=1, output_type=tf.int32)[:, None]  # [B, T]
    shares = [
        tf.einsum("bnts,kts->nk", weights, tf.cast(tf.stack(by_offset), dtype)),
        tf.einsum("bnts,bks->nk", weights, tf.cast(tf.stack([first, special], axis=1), dtype)),
        -tf.reduce_sum(tf.math.xlogy(weights, weights), axis=[0, 2, 3])[:, None],
    ]
    return tf.cast(tf.concat(shares, axis=1), tf.float64)


def draw(models: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Draws the shares of all heads: a row of panels for each model, a column for each share.

    Args:
      models: the name of each model, and the result of `measure`.

    Raises:
      UserError: the models have different numbers of layers or heads.
    """
    last = {name: (rows[-1]["layer"], rows[-1]["head"]) for name, rows in models.items()}
    if len(set(last.values())) > 1:
        found = ", ".join(
            f"{name} has {layer + 1} × {head + 1}" for name, (layer, head) in last.items()
        )
        raise UserError(
            "--output: models with different numbers of layers × heads are not drawn together "
            f"({found}): name a .tsv or .jsonl file"
        )
    layers, heads = (number + 1 for number in next(iter(last.values())))
    names = [f"layer {i}" for i in range(layers)], [f"head {j}" for j in range(heads)]
    grid = [
        [
            figures.HeatMap(
                share, np.reshape([row[share] for row in rows[1:]], (layers, heads)), *names
            )
            for share in SHARES
        ]
        for rows in models.values()
    ]
    return figures.draw_heat_maps(
        grid, "share of attention", "from top to bottom:\n" + "\n".join(models)
    )
