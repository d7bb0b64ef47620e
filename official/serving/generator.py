"""Generates text with a causal LM, one token at a time.

A model that reads from right to left generates the text before a prompt. Prompts are padded on the
left, so that all rows of a batch write to the same slot of the key-value cache. All shapes are
static, and the whole loop is one graph.

The cache holds the prompt and the new tokens. This is also true for Transformer-XL: generation uses
no memory of a fixed length, and a token attends to the whole row, even if `encoder.memory_length`
was shorter in training.

Shapes: B prompts, P length of the padded prompts, N maximum number of new tokens, K beams, V
vocabulary.
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.modeling import masks
from official.modeling.model import Model
from official.serving import beam_search, padding, requests, served_model, token_loop
from official.serving.generation_settings import Settings
from official.serving.token_loop import Processors
from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.progress import Progress, Report


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
        self._graph = token_loop.in_place_graph(self.write)
        self._beam_graph = token_loop.in_place_graph(self.search)

    def texts(
        self,
        prompts: Sequence[str],
        settings: Settings = Settings(),  # noqa: B008
        batch_size: int = 8,
        report: Report | None = None,
    ) -> list[str]:
        """Continues texts.

        Args:
          prompts: any number of texts. A text may be empty.
          settings: the settings of sampling. The default temperature is 1.
          batch_size: the number of texts in a batch.
          report: is called with lines of progress; None = there are none.

        Returns:
          Each prompt with its continuation, as the tokenizer decodes them together;
          `num_return_sequences` for each prompt, one after another.

        Raises:
          UserError: a single text is given instead of a list, the batch size is less than 1, or a
            prompt leaves no room for the new tokens.
        """
        served_model.check_texts(prompts, batch_size, "generate")
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
        progress = Progress(len(rows), report, unit="texts")
        batches = padding.batches(rows, batch_size, max_length, self.tokenizer.pad_id, side="left")
        for numbers, ids, mask in batches:
            found = self.ids(ids, mask, settings, numbers)
            numbers = np.repeat(numbers, settings.num_return_sequences)
            for row, new in zip(numbers, found.tolist(), strict=True):
                new = new[: [*new, self.end_id].index(self.end_id)]
                both = [*new[::-1], *encoded[row]] if self.backward else [*encoded[row], *new]
                texts.append(self.tokenizer.decode(both))
            progress(len(ids))
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
          int32 [B * num_return_sequences, N]. Padding follows `end_id`.
        """
        settings = settings.with_temperature(1.0)
        return requests.ids(
            self._graph,
            self._beam_graph,
            token_ids,
            padding_mask,
            settings,
            numbers,
            self.tokenizer.vocab_size,
        )

    def write(
        self,
        token_ids: tf.Tensor,
        padding_mask: tf.Tensor,
        max_new_tokens: int,
        rules: Mapping[str, Any] | None = None,
        **draws: tf.Tensor,
    ) -> tf.Tensor:
        """Computes `ids` in a graph, greedily or with the arguments of `token_loop.choice`.

        `rules` are arguments of `Processors`; None = no rules.
        """
        count, length = max_new_tokens, token_ids.shape[1]
        prompts = _Prompts.of(padding_mask, count)

        def read_one(token, i, cache):
            return self._read(token[:, None], prompts.next(i), prompts, cache, length + i)

        logits, cache = self._read(
            token_ids, prompts.positions, prompts, self._empty_cache(token_ids, count), 0
        )
        loop = token_loop.TokenLoop(
            count, self.end_id, self.tokenizer.pad_id, self._processors(token_ids, prompts, rules)
        )
        return loop.run(token_loop.choice(count, **draws), read_one, logits, cache)

    def search(
        self,
        token_ids: tf.Tensor,
        padding_mask: tf.Tensor,
        max_new_tokens: int,
        num_beams: int,
        length_rule: str,
        length_penalty: float | tf.Tensor,
        early_stopping: bool | str | None = None,
        rules: Mapping[str, Any] | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Searches with beams, in a graph: see `beam_search.search`; `rules` as in `write`.

        Returns:
          int32 [B, K, N], best first, and the scores float32 [B, K].
        """
        count, last = max_new_tokens, token_ids.shape[1] - 1
        prompts = _Prompts.of(padding_mask, count)
        cache = self._empty_cache(token_ids, count)
        if last:
            # The first step of the search reads the last token of the prompts.
            _, cache = self._read(token_ids[:, :-1], prompts.positions[:, :-1], prompts, cache, 0)
        # Parts of the cache that are the same for all rows have one row, whatever the batch is.
        shared = [x.shape[0] == 1 for x in tf.nest.flatten(self.model.encoder.empty_cache(2, 1))]
        parts = tf.nest.flatten(cache)
        own = [
            tf.repeat(x, num_beams, axis=0) for x, one in zip(parts, shared, strict=True) if not one
        ]
        repeated = prompts.repeated(num_beams)

        def step(tokens, i, own):
            given = iter(own)
            flat = [x if one else next(given) for x, one in zip(parts, shared, strict=True)]
            whole = tf.nest.pack_sequence_as(cache, flat)
            logits, whole = self._read(
                tokens[:, None], repeated.next(i - 1), repeated, whole, last + i
            )
            flat = zip(tf.nest.flatten(whole), shared, strict=True)
            return tf.nn.log_softmax(logits), [x for x, one in flat if not one]

        processors = self._processors(token_ids, prompts, rules)
        beams = beam_search.Beams(
            num_beams,
            count,
            token_ids[:, -1],
            self.end_id,
            self.tokenizer.pad_id,
            length_penalty,
            length_rule,
            early_stopping,
            processors and processors.repeated(num_beams),
        )
        return beam_search.search(step, own, tf.shape(token_ids)[0], beams)

    def _empty_cache(self, token_ids: tf.Tensor, count: int) -> Any:
        """Returns a cache with slots for prompts and new tokens; the last one is never an input."""
        batch, length = token_ids.shape
        batch = tf.shape(token_ids)[0] if batch is None else batch
        return self.model.encoder.empty_cache(batch, length + count - 1)

    def _read(self, tokens, positions, prompts, cache, slot) -> tuple[tf.Tensor, Any]:
        """Reads tokens [B, T] from a slot on; returns the logits of the next ones and the cache."""
        encoder = self.model.encoder
        encoded = encoder(
            tokens, None, prompts.attention_mask, positions=positions, cache=cache, slot=slot
        )
        logits = self._head.logits(encoded["sequence_output"][:, -1], encoder)
        # The table may have more rows than the vocabulary has entries.
        return logits[:, : self.tokenizer.vocab_size], encoded["cache"]

    def _processors(
        self, token_ids: tf.Tensor, prompts: "_Prompts", rules: Mapping[str, Any] | None
    ) -> Processors | None:
        if not rules:
            return None
        padding = token_ids.shape[1] - prompts.lengths
        return Processors(token_ids, padding, self.end_id, **rules)


@dataclasses.dataclass(frozen=True)
class _Prompts:
    """Prompts of different lengths, padded on the left.

    Attributes:
      attention_mask: bool [B, 1, 1, P + N - 1], False for padding.
      lengths: int32 [B].
      positions: of the tokens of the prompts, int32 [B, P].
    """

    attention_mask: tf.Tensor
    lengths: tf.Tensor
    positions: tf.Tensor

    @classmethod
    def of(cls, padding_mask: tf.Tensor, count: int) -> "_Prompts":
        """Returns the prompts with a padding mask [B, P] before `count` new tokens."""
        filled = tf.pad(padding_mask, [[0, 0], [0, count - 1]], constant_values=True)
        real = tf.cast(padding_mask, tf.int32)
        positions = tf.maximum(tf.cumsum(real, axis=1) - 1, 0)
        return cls(masks.padding(filled), tf.reduce_sum(real, axis=1), positions)

    def next(self, i: int | tf.Tensor) -> tf.Tensor:
        """Returns the positions of new token `i`, int32 [B, 1]."""
        return (self.lengths + i)[:, None]

    def repeated(self, count: int) -> "_Prompts":
        """Returns `count` rows in place of each."""
        fields = self.attention_mask, self.lengths, self.positions
        return _Prompts(*(tf.repeat(x, count, axis=0) for x in fields))


def save(output: str | os.PathLike, prompts: Sequence[str], texts: Sequence[str]) -> None:
    """Writes a `.jsonl` file with an object with `prompt` and `text` on each line.

    Args:
      output: the file.
      prompts: the prompts.
      texts: as many texts for each prompt, one after another.

    Raises:
      UserError: the file has another suffix.
    """
    check_output(output)
    with atomic.file(output) as stream:
        copies = len(texts) // max(len(prompts), 1)
        repeated = [prompt for prompt in prompts for _ in range(copies)]
        for prompt, text in zip(repeated, texts, strict=True):
            line = json.dumps({"prompt": prompt, "text": text}, ensure_ascii=False)
            stream.write(line + "\n")


def check_output(output: str | os.PathLike) -> None:
    """Refuses a file that is not `.jsonl`."""
    if paths.path(output).suffix != ".jsonl":
        raise UserError(f"{output}: texts are written as .jsonl: name such a file")
