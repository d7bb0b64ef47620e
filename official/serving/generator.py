"""Generates text with a causal LM, one token at a time.

A model that reads from right to left generates the text before a prompt. Prompts are padded on the
left, so that all rows of a batch write to the same slot of the key-value cache. All shapes are
static, and the whole loop is one graph.

The cache holds the prompt and the new tokens. This is also true for Transformer-XL: generation uses
no memory of a fixed length, and a token attends to the whole row, even if `encoder.memory_length`
was shorter in training.

Shapes: B prompts, P length of the padded prompts, N maximum number of new tokens, V vocabulary.
"""

import json
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.modeling import masks
from official.modeling.model import Model
from official.serving import in_place, padding, text_lists, token_loop
from official.serving.sampling import Settings
from official.utils import atomic, paths
from official.utils.errors import UserError


def ends(config: configs.Config, tokenizer: tokenizers.Tokenizer) -> tuple[int, int]:
    """Returns the first and the last token of a text, in reading order.

    These are [CLS] and [SEP]. Blocks and streams have no [CLS]: their documents are separated by
    [SEP], which is both the first and the last token of a text.
    """
    if config.segments is not None and config.segments.format in ("blocks", "stream"):
        return tokenizer.sep_id, tokenizer.sep_id
    objective = next(o for o in config.objectives if o.type == "causal_lm")
    both = tokenizer.cls_id, tokenizer.sep_id
    return both[::-1] if objective.direction == "backward" else both


class Generator:
    """Generates text with a model.

    Attributes:
      model: the model.
      backward: whether the model reads from right to left.
      start_id: the first token of a sequence, in reading order.
      end_id: the last token of a sequence.
    """

    def __init__(self, config: configs.Config, tokenizer: tokenizers.Tokenizer, model: Model):
        """Initializes a generator.

        Args:
          config: the config of the run that made the model.
          tokenizer: the tokenizer of the model.
          model: the model with its weights.

        Raises:
          UserError: the model is not a causal LM.
        """
        heads = [objective for objective in model.objectives if objective.name == "causal_lm"]
        if not heads:
            raise UserError("this model cannot write: it has no causal_lm objective")
        self.model = model
        self._head = heads[0]
        self.tokenizer = tokenizer
        self.backward = self._head.config.direction == "backward"
        self.start_id, self.end_id = ends(config, tokenizer)
        self._graph = in_place.graph(self.write)

    def texts(
        self,
        prompts: Sequence[str],
        settings: Settings = Settings(),  # noqa: B008
        batch_size: int = 8,
    ) -> list[str]:
        """Continues texts.

        Args:
          prompts: any number of texts. A text may be empty.
          settings: the settings of sampling. The default temperature is 1.
          batch_size: the number of texts in a batch.

        Returns:
          Each prompt with its continuation, as the tokenizer decodes them together.

        Raises:
          UserError: a single text is given instead of a list, the batch size is less than 1, or a
            prompt leaves no room for the new tokens.
        """
        text_lists.check_texts(prompts, batch_size, "generate")
        encoded = self.tokenizer.encode(list(prompts))
        rows = [[self.start_id, *(ids[::-1] if self.backward else ids)] for ids in encoded]
        positions = self.model.encoder.config.max_positions
        max_length = positions - settings.max_new_tokens
        for number, row in enumerate(rows, 1):
            if len(row) > max_length:
                raise UserError(
                    f"prompt {number} has {len(row)} tokens with the one that opens a sequence, "
                    f"and with {settings.max_new_tokens} new ones at most {max(max_length, 0)} "
                    f"fit the {positions} positions of this encoder: shorten it, or take a "
                    "smaller max_new_tokens"
                )
        texts = []
        batches = padding.batches(rows, batch_size, max_length, self.tokenizer.pad_id, side="left")
        for numbers, ids, mask in batches:
            for row, new in zip(numbers, self.ids(ids, mask, settings, numbers), strict=True):
                new = new[: [*new, self.end_id].index(self.end_id)]
                both = [*new[::-1], *encoded[row]] if self.backward else [*encoded[row], *new]
                texts.append(self.tokenizer.decode(both))
        return texts

    def ids(
        self,
        token_ids: np.ndarray,
        padding_mask: np.ndarray,
        settings: Settings = Settings(),  # noqa: B008
        numbers: np.ndarray | None = None,
    ) -> np.ndarray:
        """Continues token ids, in reading order.

        Args:
          token_ids: int [B, P], padded on the left.
          padding_mask: bool [B, P].
          settings: the settings of sampling.
          numbers: the numbers of the prompts, int [B]; None = 0, 1, ... The draws for a prompt
            depend on its number.

        Returns:
          int32 [B, N]. Padding follows `end_id`.
        """
        settings = settings.with_temperature(1.0)
        if settings.num_beams > 1:
            raise UserError(
                f"num_beams: {settings.num_beams}: a causal LM has no beam search: leave it out"
            )
        numbers = np.arange(len(token_ids)) if numbers is None else numbers
        return self._graph(
            tf.constant(token_ids, tf.int32),
            tf.constant(padding_mask, tf.bool),
            settings.max_new_tokens,
            **token_loop.draws(settings, numbers, self.tokenizer.vocab_size),
        ).numpy()

    def write(
        self,
        token_ids: tf.Tensor,
        padding_mask: tf.Tensor,
        max_new_tokens: int,
        **draws: tf.Tensor,
    ) -> tf.Tensor:
        """Computes `ids` in a graph, greedily or with the arguments of `token_loop.choice`."""
        encoder, count = self.model.encoder, max_new_tokens
        batch, length = tf.shape(token_ids)[0], token_ids.shape[1]
        if token_ids.shape[0] is not None:
            batch = token_ids.shape[0]
        slots = length + count - 1  # the last new token is never an input
        filled = tf.pad(padding_mask, [[0, 0], [0, count - 1]], constant_values=True)
        attention_mask = masks.padding(filled)
        lengths = tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1)  # [B]

        def read(tokens, positions, cache, slot):
            encoded = encoder(
                tokens, None, attention_mask, positions=positions, cache=cache, slot=slot
            )
            logits = self._head.logits(encoded["sequence_output"][:, -1], encoder)
            # The table may have more rows than the vocabulary has entries.
            return logits[:, : self.tokenizer.vocab_size], encoded["cache"]

        def read_one(token, i, cache):
            return read(token[:, None], (lengths + i)[:, None], cache, length + i)

        positions = tf.maximum(tf.cumsum(tf.cast(padding_mask, tf.int32), axis=1) - 1, 0)
        logits, cache = read(token_ids, positions, encoder.empty_cache(batch, slots), 0)
        loop = token_loop.TokenLoop(count, self.end_id, self.tokenizer.pad_id)
        return loop.run(token_loop.choice(count, **draws), read_one, logits, cache)


def save(output: str | os.PathLike, prompts: Sequence[str], texts: Sequence[str]) -> None:
    """Writes a `.jsonl` file with an object with `prompt` and `text` on each line.

    Raises:
      UserError: the file has another suffix.
    """
    check_output(output)
    with atomic.file(output) as stream:
        for prompt, text in zip(prompts, texts, strict=True):
            line = json.dumps({"prompt": prompt, "text": text}, ensure_ascii=False)
            stream.write(line + "\n")


def check_output(output: str | os.PathLike) -> None:
    """Refuses a file that is not `.jsonl`."""
    if paths.path(output).suffix != ".jsonl":
        raise UserError(f"{output}: texts are written as .jsonl: name such a file")
