"""Where a request enters a SavedModel: raw texts by one door, token ids by another.

Shapes: B batch, T tokens of the longest row.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.modeling.model import Model
from official.modeling.objectives.base import Objective
from official.serving.precision import Weights

Signature = tf.types.experimental.PolymorphicFunction

# The ecosystem's names at the serving door, and ours.
TOKENS = {
    "input_word_ids": "token_ids",
    "input_mask": "padding_mask",
    "input_type_ids": "segment_ids",
}


@dataclasses.dataclass(frozen=True)
class ServingContext:
    """What signatures are made of.

    Attributes:
      config: of the model.
      tokenizer: of the model.
      model: with its weights.
      weights: those of the encoder and the head, as they are stored.
      max_length: the most tokens of a row.
      task: what training noted of the task (`official.saving.model_folder.task`).
      head: the objective that is served; None where it is the encoder alone.
    """

    config: configs.Config
    tokenizer: tokenizers.Tokenizer
    model: Model
    weights: Weights
    max_length: int
    task: Mapping[str, Any]
    head: Objective | None

    def encode(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Runs the encoder with the weights that are stored, as far as the head reads it."""
        first_only = self.head is not None and self.head.uses_first_position_only
        with self.weights.read():
            return self.model.encode(batch, first_only=first_only)


def signature(function: Callable[..., dict], *inputs: tf.TensorSpec) -> Signature:
    """A signature of a SavedModel: its inputs are called as their specs are.

    All strings are made UTF-8: bytes that are not become U+FFFD, as with
    `bytes.decode(errors="replace")`.
    """

    def entered(*given: tf.Tensor) -> dict[str, tf.Tensor]:
        return function(*(text(t) if t.dtype == tf.string else t for t in given))

    return tf.function(entered, input_signature=inputs, autograph=False)


def records(function: Callable[[tf.Tensor], dict]) -> Signature:
    """A signature that takes `examples` string [B], which are no texts but may hold some."""
    spec = tf.TensorSpec([None], tf.string, "examples")
    return tf.function(function, input_signature=[spec], autograph=False)


def text(raw: tf.Tensor) -> tf.Tensor:
    """Strings as UTF-8."""
    return tf.strings.unicode_transcode(raw, "UTF-8", "UTF-8")


def texts(*names: str) -> list[tf.TensorSpec]:
    """Specs of inputs that are string [B]."""
    return [tf.TensorSpec([None], tf.string, name) for name in names]


def same_number(**given: tf.Tensor) -> list[tf.Tensor]:
    """The texts given, once they are known to be as many of each name."""
    first, *others = given.values()
    message = f"{' and '.join(given)} have different numbers of texts"
    checks = [tf.debugging.assert_equal(tf.size(first), tf.size(o), message) for o in others]
    with tf.control_dependencies(checks):
        return [tf.identity(value) for value in given.values()]


def ids(rank: int = 2) -> list[tf.TensorSpec]:
    """Specs of the inputs of `batch_of_ids`, [B, T] or with more axes."""
    return [tf.TensorSpec([None] * rank, tf.int32, name) for name in TOKENS]


def batch_of_ids(
    parts: ServingContext,
    input_word_ids: tf.Tensor,
    input_mask: tf.Tensor,
    input_type_ids: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Rows that are laid out as the encoder reads them, by the names of a batch.

    Args:
      parts: the encoder's, which has so many positions and no more.
      input_word_ids: int32 [..., T].
      input_mask: int32 [..., T], 0 for padding.
      input_type_ids: int32 [..., T].
    """
    most = parts.config.encoder.max_positions
    length = tf.shape(input_word_ids)[-1]
    message = f"this encoder takes at most {most} tokens"
    with tf.control_dependencies([tf.debugging.assert_less_equal(length, most, message)]):
        given = tf.identity(input_word_ids), tf.cast(input_mask, tf.bool), input_type_ids
    return dict(zip(TOKENS.values(), given, strict=True))
