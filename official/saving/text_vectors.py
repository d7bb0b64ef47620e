"""How the states of an encoder become the vector of a text, and those of ELMo the vectors of words.

The vector of a text is pooled, and projected if its training has a projection, with the settings of
`embedding_settings`. The vector of a word is the layer mix of a head of ELMo, or the mean of its
layers.

Shapes: B texts, T tokens or words of the longest one, D hidden, P projection of ELMo.
"""

import tensorflow as tf

from official.config.parts import EncoderConfig
from official.modeling.layers import pooling
from official.modeling.model import Model
from official.modeling.objectives import heads, sentence_embedding
from official.modeling.objectives.base import Objective
from official.saving.embedding_settings import EmbeddingSettings
from official.tokenizers import Tokenizer
from official.utils.errors import UserError


def pooled(
    states: tf.Tensor,
    real: tf.Tensor,
    settings: EmbeddingSettings,
    counted: tf.Tensor | None = None,
    pooler: tf.Tensor | None = None,
    head: sentence_embedding.Objective | None = None,
) -> tf.Tensor:
    """Returns a vector for each row, as the settings have it.

    Args:
      states: [B, T, ..., D].
      real: bool [B, T], False for padding.
      settings: the settings.
      counted: bool [B, T], the tokens that are pooled; None = `real`.
      pooler: the output of the pooler, [B, D].
      head: the objective that has learned the vectors. Its projection belongs to its own pooling,
        and other vectors do not get it. None = there is none, or it reads other states.

    Returns:
      float32 [B, ..., size of a vector].
    """
    vectors = pooling.pooled(states, real, settings.pooling, counted, pooler)
    if head is not None and settings.pooling == head.config.poolings:
        vectors = head.served(vectors)
    vectors = vectors[..., : settings.size]
    vectors = pooling.normalized(vectors) if settings.normalize else vectors
    return tf.cast(vectors, tf.float32)


def skipped(
    prompt: str, settings: EmbeddingSettings, encoder: EncoderConfig, tokenizer: Tokenizer
) -> int:
    """Returns the number of tokens at the start of a row that are not pooled.

    Args:
      prompt: what stands before the text.
      settings: the settings.
      encoder: the encoder.
      tokenizer: the tokenizer.
    """
    if not prompt or settings.include_prompt:
        return 0
    (ids,) = tokenizer.encode([prompt])
    return (encoder.text_layout == "cls_first") + len(ids)


def counted(encoder: EncoderConfig, real: tf.Tensor, skipped: int) -> tf.Tensor:
    """Returns the tokens that are pooled: bool [B, T].

    Args:
      encoder: the encoder. The marks of a sentence are not words of an ELMo.
      real: bool [B, T], False for padding.
      skipped: see the function of this name.
    """
    return pooling.words(real) if encoder.mixes_layers else pooling.counted(real, skipped)


def size(encoder: EncoderConfig, settings: EmbeddingSettings, head: Objective | None) -> int:
    """Returns the size of the vectors of `pooled`.

    Raises:
      UserError: they have fewer dimensions than the settings keep.
    """
    whole = encoder.hidden_size * len(settings.pooling)
    if head is not None and settings.pooling == head.config.poolings:
        whole = head.config.served_size(encoder)
    if settings.size is not None and settings.size > whole:
        raise UserError(f"size: {settings.size}, and the vectors of this model have {whole}")
    return settings.size or whole


def head_of_texts(model: Model) -> sentence_embedding.Objective | None:
    """Returns the objective of a model that has learned the vectors of texts; None without one."""
    heads = (o for o in model.objectives if isinstance(o, sentence_embedding.Objective))
    return next(heads, None)


def has_mix(head: Objective | None) -> bool:
    """Whether a head reads a mix of layers."""
    return getattr(head, "mix", None) is not None


def head_of(model: Model) -> Objective | None:
    """Returns the only head of a model that reads a mix of layers; None without one."""
    mixing = [objective for objective in model.objectives if has_mix(objective)]
    return mixing[0] if len(mixing) == 1 else None


def mixed(encoded: dict[str, tf.Tensor], head: Objective | None) -> tf.Tensor:
    """Returns the vectors of words: float32 [B, T, 2 P].

    Args:
      encoded: what an encoder gives with `output_all`.
      head: the head whose mix is read; None or a head without one = the mean of all layers, the
        vector of characters among them.
    """
    if isinstance(head, heads.Reader) and head.mix is not None:
        return tf.cast(head.read_mix(encoded)["sequence_output"], tf.float32)
    states = [tf.cast(layer, tf.float32) for layer in encoded["hidden_states"]]
    return tf.add_n(states) / len(states)
