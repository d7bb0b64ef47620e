"""Computes the sparse vectors of texts, with a weight for each word, in a graph or eagerly.

The head is the objective `sparse_embedding`. A masked LM without it has its weights too: the
largest of log(1 + max(0, score)) of each word.

Shapes: B texts, T tokens of the longest one, V vocabulary, K words of the text with the most.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from official.data.fields import text_mask
from official.modeling.model import Model
from official.modeling.objectives import sparse_embedding
from official.saving.embedding_settings import PROMPTS, EmbeddingSettings
from official.saving.served_model import ServedModel
from official.tokenizers.pair_packing import num_specials
from official.utils.errors import UserError

QUERY = PROMPTS["query"][0]
_HEADS = (sparse_embedding.SparseEmbeddingConfig.type, "masked_lm")


def head_of(model: Model) -> Any:
    """Returns the head that gives the weights of words; None = the model has none."""
    head = model.objective(*_HEADS)
    return None if head is None or head.config.enhanced_mask_decoder else head


def is_sparse(model: Model) -> bool:
    """Whether a model has learned sparse vectors of texts."""
    return model.objective(_HEADS[0]) is not None


def prompt_of(name: str | None, settings: EmbeddingSettings) -> str:
    """Returns what stands before each text; `query` and `document` need no prompt of the folder.

    Raises:
      UserError: there is no prompt of this name.
    """
    if name in (*PROMPTS["query"], *PROMPTS["document"]) and name not in settings.prompts:
        return ""
    return settings.prompt(name)


class SparseReader:
    """Computes the sparse vectors of rows of tokens.

    Args:
      source: the model.
      prompt: the name of the prompt before the texts. With a table of queries, `query` takes the
        vectors from it.
      settings: has the prompts.

    Raises:
      UserError: the model has no masked LM.
    """

    def __init__(
        self,
        source: ServedModel,
        prompt: str | None = None,
        settings: EmbeddingSettings | None = None,
    ):
        self._model, self._tokenizer = source.model, source.tokenizer
        self._head = head_of(source.model)
        if self._head is None:
            kinds = ", ".join(o.config.type for o in source.model.objectives) or "none"
            raise UserError(
                "sparse: the weights of words are scores of a masked LM, and this model has none "
                f"(its objectives: {kinds}): train it with the objective sparse_embedding from a "
                "model with a masked LM (configs/finetune/sparse_embedding.yaml), or leave out "
                "sparse, for dense vectors"
            )
        self.before = prompt_of(prompt, settings or source.embedding)
        has_table = getattr(self._head.config, "has_table", False)
        self.by_table = has_table and prompt in PROMPTS["query"]
        # A row of special tokens and a prompt alone is an empty text.
        layout = source.config.encoder.text_layout
        self._least = num_specials(1, source.tokenizer, layout)
        if self.before:
            (ids,) = source.tokenizer.encode([self.before])
            self._least += len(ids)

    @property
    def size(self) -> int:
        """V."""
        return self._model.encoder.config.known_vocab_size

    def vectors(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns float32 [B, V], zeros for an empty text.

        Args:
          batch: token_ids, segment_ids and padding_mask, [B, T].
        """
        real = tf.cast(batch["padding_mask"], tf.bool)
        if self.by_table:
            words = text_mask(batch["token_ids"], real, self._tokenizer.special_ids)
            vectors = self._head.of_queries(batch["token_ids"], words)
        else:
            encoder = self._model.encoder
            states = self._model.encode(batch)["sequence_output"]
            vectors = sparse_embedding.vectors_of(self._head, encoder.token_table, states, real)
        count = tf.reduce_sum(tf.cast(real, tf.int32), axis=1, keepdims=True)
        return tf.where(count > self._least, tf.cast(vectors, tf.float32), 0.0)


def strongest(vectors: tf.Tensor, most: int | None) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the words of vectors and their weights: int32, float32 [B, K].

    Those of the largest sizes come first: a table of queries may have negative weights. Vectors
    with fewer words than others have weights of 0 at the end.

    Args:
      vectors: float32 [B, V].
      most: the most words of a vector; None = all.
    """
    active = tf.reduce_sum(tf.cast(vectors != 0, tf.int32), axis=1)
    count = tf.reduce_max(tf.concat([active, [1]], axis=0))
    count = count if most is None else tf.minimum(count, most)
    ids = tf.math.top_k(tf.abs(vectors), count).indices
    return ids, tf.gather(vectors, ids, batch_dims=1)
