"""How the states of an encoder become the vector of a text, and those of ELMo the vectors of words.

The vector of a text is pooled. The defaults of a model folder are in its `embedding.json`, which
`official.convert` writes from a folder of sentence-transformers. The vector of a word is the layer
mix of a head of ELMo, or the mean of its layers.

Shapes: B texts, T tokens or words of the longest one, D hidden, P projection of ELMo.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from official.modeling.model import Model
from official.modeling.objectives.base import Objective
from official.saving import model_folder
from official.utils import strict
from official.utils.errors import UserError
from official.utils.strict import nearest

# `mean` and `max` over the tokens; the sum divided by the root of their number; the mean with the
# weights 1, 2, ...; the first and the last token; the output of the pooler.
POOLINGS = ("mean", "first", "last", "max", "mean_sqrt_len", "weighted_mean", "pooled")
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


@dataclasses.dataclass(frozen=True)
class EmbeddingSettings:
    """How a model makes the vectors of texts.

    Attributes:
      pooling: names of `POOLINGS`; the vectors of several are joined.
      normalize: whether a vector is divided by its length.
      max_length: longer texts are cut to this number of tokens, special tokens included; None =
        the length of the model.
      prompts: texts that may stand before each text, by name.
      default_prompt: the name of the prompt that is taken if none is named; None = none is.
      include_prompt: whether the tokens of a prompt are among those that are pooled.
      similarity: how two vectors are compared.
    """

    pooling: tuple[str, ...] = ("mean",)
    normalize: bool = False
    max_length: int | None = None
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_prompt: str | None = None
    include_prompt: bool = True
    similarity: str = "cosine"

    def __post_init__(self):
        if not self.pooling:
            raise ValueError(f"pooling: is empty: take {POOLINGS[0]}")
        for name in self.pooling:
            if name not in POOLINGS:
                raise ValueError(
                    f"pooling: {name!r} is not one of {', '.join(POOLINGS)}"
                    f"{nearest(name, POOLINGS)}"
                )
        if self.similarity not in SIMILARITIES:
            raise ValueError(
                f"similarity: {self.similarity!r} is not one of {', '.join(SIMILARITIES)}"
            )
        self.prompt(None)

    def with_values(
        self,
        pooling: str | Sequence[str] | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
    ) -> "EmbeddingSettings":
        """Returns the settings with those in the place of the others that are not None.

        Args:
          pooling: a name, several names joined by commas, or a sequence of names.
          normalize: see the class.
          max_length: see the class.

        Raises:
          UserError: a name is not known.
        """
        if isinstance(pooling, str):
            pooling = pooling.split(",")
        given: dict[str, Any] = {
            "pooling": None if pooling is None else tuple(pooling),
            "normalize": normalize,
            "max_length": max_length,
        }
        try:
            return dataclasses.replace(self, **{k: v for k, v in given.items() if v is not None})
        except ValueError as error:
            raise UserError(str(error)) from None

    def prompt(self, name: str | None) -> str:
        """Returns what stands before each text; None = the default.

        Raises:
          UserError: there is no prompt of this name.
        """
        name = self.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise UserError(
                f"prompt: {name!r} is not a prompt of this model{nearest(name, self.prompts)} "
                f"(known: {known})"
            )
        return self.prompts[name]

    def described(self) -> str:
        """Returns the settings in words, for a line."""
        parts = [f"{' and '.join(self.pooling)} pooling"]
        parts += ["normalized"] * self.normalize
        if self.max_length is not None:
            parts.append(f"at most {self.max_length} tokens")
        if self.prompts:
            parts.append(f"prompts {', '.join(self.prompts)}")
        if self.default_prompt is not None:
            parts.append(f"{self.default_prompt} if none is named")
        if not self.include_prompt:
            parts.append("prompts are not pooled")
        return ", ".join(parts)


def read(model_dir: str | os.PathLike) -> EmbeddingSettings:
    """Reads the settings of a model folder; without the file they are the defaults of the class.

    Raises:
      UserError: the file is damaged, or has a setting that is not known.
    """
    source = str(model_folder.embedding_file(model_dir))
    return strict.build(EmbeddingSettings, model_folder.embedding(model_dir), source)


def pooled(
    states: tf.Tensor,
    real: tf.Tensor,
    poolings: Sequence[str],
    counted: tf.Tensor | None = None,
    pooler: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns a vector for each row.

    Args:
      states: [B, T, ..., D].
      real: bool [B, T], False for padding.
      poolings: names of `POOLINGS`.
      counted: bool [B, T], the tokens that are pooled; None = `real`. A row without such tokens has
        the mean 0. `first` is the first real token.
      pooler: the output of the pooler, [B, D].

    Returns:
      float32 [B, ..., D * number of poolings].
    """
    states = tf.cast(states, tf.float32)
    counted = real if counted is None else counted
    weights = tf.cast(counted, tf.float32)
    number = tf.reduce_sum(weights, axis=1, keepdims=True)  # [B, 1]

    def total(weights: tf.Tensor) -> tf.Tensor:
        sizes = states.shape[2:]
        flat = states if len(sizes) == 1 else tf.reshape(states, [*tf.shape(states)[:2], -1])
        return tf.reshape(tf.matmul(tf.expand_dims(weights, 1), flat), [-1, *sizes])

    def at(columns: tf.Tensor) -> tf.Tensor:
        return tf.gather(states, columns, batch_dims=1)

    def one(name: str) -> tf.Tensor:
        if name == "mean":
            return total(weights / tf.maximum(number, 1e-9))
        if name == "mean_sqrt_len":
            return total(weights / tf.sqrt(tf.maximum(number, 1e-9)))
        if name == "weighted_mean":
            places = tf.cumsum(tf.cast(real, tf.float32), axis=1) * weights
            return total(places / tf.maximum(tf.reduce_sum(places, axis=1, keepdims=True), 1e-9))
        if name == "max":
            shape = tf.concat([tf.shape(counted), tf.ones(len(states.shape) - 2, tf.int32)], axis=0)
            return tf.reduce_max(tf.where(tf.reshape(counted, shape), states, -1e9), axis=1)
        if name == "first":
            return at(tf.argmax(real, axis=1))
        if name == "last":
            length = tf.shape(real, tf.int64)[1]
            return at(length - 1 - tf.argmax(tf.reverse(real, axis=[1]), axis=1))
        return tf.cast(pooler, tf.float32)

    return tf.concat([one(name) for name in poolings], axis=-1)


def counted(real: tf.Tensor, skipped: int) -> tf.Tensor:
    """Returns which tokens are pooled if the first `skipped` of each row are not: bool [B, T]."""
    if not skipped:
        return real
    return real & (tf.cumsum(tf.cast(real, tf.int32), axis=1) > skipped)


def normalized(vectors: tf.Tensor) -> tf.Tensor:
    """Returns vectors [..., D] divided by their lengths; a vector of 0 remains."""
    return vectors / tf.maximum(tf.norm(vectors, axis=-1, keepdims=True), 1e-12)


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
    if head is not None and has_mix(head):
        return tf.cast(head.read_mix(encoded)["sequence_output"], tf.float32)
    states = [tf.cast(layer, tf.float32) for layer in encoded["hidden_states"]]
    return tf.add_n(states) / len(states)
