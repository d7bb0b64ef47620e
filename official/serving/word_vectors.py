"""The vectors of words that ELMo gives: the layer mix of a head, or the mean of its layers.

Shapes: B texts, T words of a text with both marks, P projection.
"""

import tensorflow as tf

from official.modeling.model import Model
from official.modeling.objectives.base import Objective


def has_mix(head: Objective | None) -> bool:
    """Whether a head reads a mix of layers."""
    return getattr(head, "mix", None) is not None


def head_of(model: Model) -> Objective | None:
    """Returns the only head of a model that reads a mix of layers; None without one."""
    heads = [objective for objective in model.objectives if has_mix(objective)]
    return heads[0] if len(heads) == 1 else None


def mixed(encoded: dict[str, tf.Tensor], head: Objective | None) -> tf.Tensor:
    """Returns the vectors of words: float32 [B, T, 2 P].

    Args:
      encoded: what an encoder gives with `output_all`.
      head: the head whose mix is read; None or a head without one = the mean of all layers, the
        vector of characters among them.
    """
    if has_mix(head):
        return tf.cast(head.read(encoded)["sequence_output"], tf.float32)
    states = [tf.cast(layer, tf.float32) for layer in encoded["hidden_states"]]
    return tf.add_n(states) / len(states)
