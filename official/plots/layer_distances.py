"""How far each layer of an encoder moves the states of tokens (Lan et al. 2020, figure 1).

Shapes: B texts of a batch, T tokens, L layers, D hidden.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from official.modeling.model import Model
from official.plots import figures, text_means
from official.tokenizers import Tokenizer

VALUES = ("l2", "cosine", "degrees")
_SIZE = 5.0, 3.4  # inches of a panel


def measure(
    texts: Sequence[str], tokenizer: Tokenizer, model: Model, **options: Any
) -> list[dict[str, Any]]:
    """Measures each layer on the tokens of texts; the arguments are those of `text_means.means`.

    Values are means over tokens: the Euclidean distance `l2`, the `cosine` similarity, and the
    angle in `degrees` between the input and the output of a layer. The input of the first layer is
    the embeddings. The norm that ends an encoder with `norm: pre` belongs to its last layer.

    Returns:
      `layer`, from 0 on, and the values of each layer.
    """
    values = text_means.means(texts, tokenizer, model, sums, **options).tolist()
    return [{"layer": i, **dict(zip(VALUES, row, strict=True))} for i, row in enumerate(values)]


def sums(batch, encoded) -> tf.Tensor:
    """Returns the sums over the tokens of a batch of the `VALUES`.

    Args:
      batch: has `padding_mask` [B, T].
      encoded: has `hidden_states`, L + 1 tensors [B, T, D].

    Returns:
      float64 [L, 3].
    """
    states = [tf.boolean_mask(x, batch["padding_mask"]) for x in encoded["hidden_states"]]
    return tf.stack([_between(before, after) for before, after in itertools.pairwise(states)])


def _between(before: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
    """Returns the sums of the `VALUES` over vectors [tokens, D]: float64 [3]."""
    one, two = (
        tf.math.divide_no_nan(x, tf.norm(x, axis=-1, keepdims=True)) for x in (before, after)
    )
    # For a small angle, the arc cosine would lose half of the digits.
    angles = 2 * tf.atan2(tf.norm(one - two, axis=-1), tf.norm(one + two, axis=-1))
    values = [tf.norm(after - before, axis=-1), tf.cos(angles), angles * (180 / math.pi)]
    return tf.reduce_sum(tf.cast(tf.stack(values), tf.float64), axis=1)


def draw(models: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Draws the L2 distance and the angle by the number of the layer, with a line for each model.

    Args:
      models: the name of each model, and the result of `measure`.
    """
    titles = {"l2": "L2 distance", "degrees": "angle in degrees"}
    with figures.style():
        figure = figures.new(_SIZE[0] * len(titles), _SIZE[1], layout="constrained")
        panels = figure.subplots(1, len(titles))
        for axes, (value, title) in zip(panels, titles.items(), strict=True):
            axes.set_title(title)
            axes.set_xlabel("layer")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(alpha=0.3)
            for name, rows in models.items():
                points = [row["layer"] for row in rows], [row[value] for row in rows]
                axes.plot(*points, marker="o", markersize=4, label=name)
        lines = panels[0].get_legend_handles_labels()
        figure.legend(*lines, loc="outside lower left", ncols=1)
    return figure
