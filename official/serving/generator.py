"""Text generation: a causal LM goes on with what it has read, a token at a time.

A model that reads from right to left writes what stands before a text. Prompts are padded on the
left, so that all rows of a batch write into the same slot of the key-value cache; all shapes are
known when the graph is made, and the whole loop is one graph.

The cache holds the prompt and all that is written to it. That is so for a Transformer-XL too: it
needs no memory of a fixed length here, and what a token sees is what it would see in one long row,
however short `encoder.memory_length` was in training.

Shapes: B prompts, P slots for them, N new tokens at most, V vocabulary.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.modeling import masks
from official.modeling.model import Model
from official.serving.sampling import Settings, drawn, likeliest
from official.utils import atomic, seeding
from official.utils.errors import UserError

# Prompts are padded to a multiple of this, so that a few graphs do for all lengths.
_STEP = 16


def why_not(model: Model) -> str | None:
    """Why a model cannot write; None = it can."""
    if not any(objective.name == "causal_lm" for objective in model.objectives):
        return "this model cannot write: it has no causal_lm objective"
    return None


def ends(config: configs.Config, tokenizer: tokenizers.Tokenizer) -> tuple[int, int]:
    """The tokens that a text begins and ends with, in the order of reading.

    They are [CLS] and [SEP]. Blocks and streams have no [CLS] before a text: there documents follow
    one another with a [SEP] between them, which so both opens and ends one.
    """
    if config.segments is not None and config.segments.format in ("blocks", "stream"):
        return tokenizer.sep_id, tokenizer.sep_id
    objective = next(o for o in config.objectives if o.type == "causal_lm")
    both = tokenizer.cls_id, tokenizer.sep_id
    return both[::-1] if objective.direction == "backward" else both


class Generator:
    """Writes with one model.

    Attributes:
      backward: whether the model reads from right to left.
      start_id: what a sequence begins with, in the order of reading.
      end_id: what it ends with.
    """

    def __init__(self, config: configs.Config, tokenizer: tokenizers.Tokenizer, model: Model):
        """Takes a model as it is, with the config of the run that made it.

        Raises:
          UserError: it is no causal LM.
        """
        if reason := why_not(model):
            raise UserError(reason)
        self._model = model
        self._head = next(o for o in model.objectives if o.name == "causal_lm")
        self.tokenizer = tokenizer
        self.backward = self._head.config.direction == "backward"
        self.start_id, self.end_id = ends(config, tokenizer)
        self._graph = tf.function(self.write, autograph=False)

    def texts(
        self,
        prompts: Sequence[str],
        settings: Settings = Settings(),  # noqa: B008
        batch_size: int = 8,
    ) -> list[str]:
        """Goes on with texts, which may be empty.

        Args:
          prompts: any number of texts.
          settings: how.
          batch_size: how many are computed at a time.

        Returns:
          Each prompt with what was written to it, as the tokenizer spells the two.

        Raises:
          UserError: a single text, a batch size that cannot be, or a prompt without room for so
            many tokens after it.
        """
        if isinstance(prompts, str | bytes):
            raise UserError("generate: give a list of texts, such as [text]")
        if batch_size < 1:
            raise UserError(f"generate: batch_size: {batch_size} is less than 1")
        read = self.tokenizer.encode(list(prompts))
        rows = [[self.start_id, *(ids[::-1] if self.backward else ids)] for ids in read]
        positions = self._model.encoder.config.max_positions
        most = positions - settings.max_new_tokens
        for number, row in enumerate(rows, 1):
            if len(row) > most:
                raise UserError(
                    f"prompt {number} has {len(row)} tokens with the one that opens a sequence, "
                    f"and with {settings.max_new_tokens} new ones at most {max(most, 0)} fit the "
                    f"{positions} positions of this encoder: shorten it, or take a smaller "
                    "max_new_tokens"
                )
        texts = []
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            length = min(most, -(-max(map(len, batch)) // _STEP) * _STEP)
            ids, mask = left_padded(batch, length, self.tokenizer.pad_id)
            numbers = np.arange(start, start + len(batch))
            for row, new in enumerate(self.ids(ids, mask, settings, numbers), start):
                new = new[: [*new, self.end_id].index(self.end_id)]
                both = [*new[::-1], *read[row]] if self.backward else [*read[row], *new]
                texts.append(self.tokenizer.decode(both))
        return texts

    def ids(
        self,
        token_ids: np.ndarray,
        padding_mask: np.ndarray,
        settings: Settings = Settings(),  # noqa: B008
        numbers: np.ndarray | None = None,
    ) -> np.ndarray:
        """Goes on with ids, in the order of reading.

        Args:
          token_ids: int [B, P], padded on the left.
          padding_mask: bool [B, P].
          settings: how.
          numbers: of the prompts, int [B]; None = 0, 1, 2, ...

        Returns:
          int32 [B, N]; after `end_id` there is padding.
        """
        numbers = np.arange(len(token_ids)) if numbers is None else numbers
        seeds = seeding.row_seeds(settings.seed, 0, tf.constant(numbers, tf.int64))
        sampling = settings.temperature > 0
        how = {
            "seeds": seeds,
            "temperature": tf.constant(settings.temperature, tf.float32),
            "top_k": tf.constant(min(settings.top_k, self.tokenizer.vocab_size), tf.int32),
            "top_p": tf.constant(settings.top_p, tf.float32),
        }
        return self._graph(
            tf.constant(token_ids, tf.int32),
            tf.constant(padding_mask, tf.bool),
            settings.max_new_tokens,
            **how if sampling else {},
        ).numpy()

    def write(
        self,
        token_ids: tf.Tensor,
        padding_mask: tf.Tensor,
        max_new_tokens: int,
        seeds: tf.Tensor | None = None,
        temperature: tf.Tensor | None = None,
        top_k: tf.Tensor | None = None,
        top_p: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """The graph of `ids`; without `seeds`, uint64 [B], the likeliest tokens are taken."""
        if seeds is None:
            return self._loop(
                token_ids, padding_mask, max_new_tokens, lambda logits, _: likeliest(logits)
            )
        uniforms = seeding.uniforms(seeds, seeding.Stream.GENERATION, max_new_tokens)  # [B, N]

        def choose(logits, i):
            return drawn(logits, tf.gather(uniforms, i, axis=1), temperature, top_k, top_p)

        return self._loop(token_ids, padding_mask, max_new_tokens, choose)

    def _loop(
        self,
        token_ids: tf.Tensor,
        padding_mask: tf.Tensor,
        count: int,
        choose: Callable[[tf.Tensor, Any], tf.Tensor],
    ) -> tf.Tensor:
        encoder, pad = self._model.encoder, self.tokenizer.pad_id
        batch, length = tf.shape(token_ids)[0], token_ids.shape[1]
        if token_ids.shape[0] is not None:
            batch = token_ids.shape[0]
        slots = length + count - 1  # the last token is written and not read
        real = tf.pad(padding_mask, [[0, 0], [0, count - 1]], constant_values=True)
        seen = masks.padding(real)
        lengths = tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1)  # [B]
        columns = tf.range(count)

        def read(tokens, positions, cache, slot):
            encoded = encoder(tokens, None, seen, positions=positions, cache=cache, slot=slot)
            logits = self._head.logits(encoded["sequence_output"][:, -1], encoder)
            # The table may have rows to spare.
            return logits[:, : self.tokenizer.vocab_size], encoded["cache"]

        positions = tf.maximum(tf.cumsum(tf.cast(padding_mask, tf.int32), axis=1) - 1, 0)
        logits, cache = read(token_ids, positions, encoder.empty_cache(batch, slots), 0)
        token = choose(logits, 0)
        written = tf.where(columns == 0, token[:, None], pad)  # [B, N]

        def step(i, token, ended, written, cache):
            logits, cache = read(token[:, None], (lengths + i - 1)[:, None], cache, length + i - 1)
            token = tf.where(ended, pad, choose(logits, i))
            written = tf.where(columns == i, token[:, None], written)
            return i + 1, token, ended | (token == self.end_id), written, cache

        def goes_on(i, token, ended, written, cache):
            del token, written, cache
            return (i < count) & ~tf.reduce_all(ended)

        state = tf.constant(1), token, token == self.end_id, written, cache
        return tf.while_loop(goes_on, step, state)[3]


def left_padded(
    rows: Sequence[Sequence[int]], length: int, pad_id: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ids int32 [B, length] and their padding mask."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(length) >= length - lengths[:, None]
    ids = np.full(mask.shape, pad_id, np.int32)
    ids[mask] = np.concatenate(rows)
    return ids, mask


def save(output: str | os.PathLike, prompts: Sequence[str], texts: Sequence[str]) -> None:
    """Writes a `.jsonl` of objects with `prompt` and `text`.

    Raises:
      UserError: another file ending.
    """
    check_output(output)
    with atomic.file(output) as stream:
        for prompt, text in zip(prompts, texts, strict=True):
            line = json.dumps({"prompt": prompt, "text": text}, ensure_ascii=False)
            stream.write(line + "\n")


def check_output(output: str | os.PathLike) -> None:
    """Refuses a file that is no `.jsonl`."""
    if Path(output).suffix != ".jsonl":
        raise UserError(f"{output}: texts are written as .jsonl: name such a file")
