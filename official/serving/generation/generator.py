"""Generates texts with a model: greedily, by draws, or by beam search.

| objective | reader | its texts |
|---|---|---|
| causal_lm | `PromptReader` | each prompt with its continuation |
| seq2seq_lm | `InputReader` | the generated texts alone |

The whole search is one graph with a key-value cache of static shape. A reader says how texts become
rows and how the new tokens become texts, and it reads rows: `Prompts` or `Inputs` give the logits
of one token after another.

Shapes: B texts, P length of the padded rows, N maximum number of new tokens, K beams, V vocabulary.
"""

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from official.evaluation.generated_texts import decoded
from official.modeling import masks
from official.modeling.encoders.inputs import encode
from official.modeling.model import Model
from official.modeling.token_loop import TokenLoop
from official.saving.generation_settings import Settings, ends, new_tokens
from official.saving.served_model import ServedModel
from official.serving.generation import beam_search, token_choice
from official.serving.generation.token_choice import Processors, in_place_graph
from official.utils import atomic, given_texts, paths
from official.utils.errors import UserError
from official.utils.progress import Progress, Report

# Rows are padded to a multiple of this, so that a few graphs serve all.
_STEP = 16


def why_not(model: Model) -> str | None:
    """Returns the reason why a model cannot generate text, or None if it can."""
    if model.encoder.config.decoder_layers == 0:
        return "this model cannot generate text: it is an encoder without a decoder"
    if objective(model) is None:
        return "this model cannot generate text: it has no causal_lm or seq2seq_lm objective"
    return None


def objective(model: Model) -> str | None:
    """Returns the type of the objective that generates text; None = the model has none."""
    types = [objective.config.type for objective in model.objectives]
    return next((name for name in ("causal_lm", "seq2seq_lm") if name in types), None)


class Rows(Protocol):
    """Texts of a batch that a model reads, in a graph."""

    @property
    def start(self) -> tf.Tensor:
        """The token before the first new one, int32 [B]."""

    @property
    def prompt(self) -> tf.Tensor:
        """The tokens before the new ones that the rules of `Processors` know, int32 [B, P]."""

    @property
    def padding(self) -> tf.Tensor:
        """The number of places of padding on the left of `prompt`, int32 [B]."""

    def begin(self) -> dict[str, Any]:
        """Returns the `cache` and the `tokens` or `logits` that `TokenLoop.run` begins with."""

    def beams(self, count: int) -> tuple["Rows", Any]:
        """Returns `count` rows in place of each, and their cache before `start` is read."""

    def next(self, tokens: tf.Tensor, i: int | tf.Tensor, cache: Any) -> tuple[tf.Tensor, Any]:
        """Reads the tokens [B] before new token `i`; returns its logits and the cache."""


class Reader(Protocol):
    """How a model reads texts, and what becomes of the new tokens.

    Attributes:
      side: where rows are padded, "left" or "right".
      temperature: the temperature if the settings have none.
      new_tokens: the default of `max_new_tokens`.
      vocab_size: V, the number of tokens that can be drawn.
      start_id: the token that is read first.
      end_id: the last token of a text.
    """

    side: str
    temperature: float
    new_tokens: int
    vocab_size: int
    start_id: int
    end_id: int

    def max_length(self, count: int) -> int:
        """Returns the maximum length of a row before `count` new tokens."""

    def rows(self, encoded: Sequence[np.ndarray], count: int) -> list[list[int]]:
        """Returns the row of each text from its token ids.

        Raises:
          UserError: a text leaves no room for `count` new tokens.
        """

    def text(self, encoded: np.ndarray, new: np.ndarray) -> str:
        """Returns the text that is made of the ids of a text and the new ones [N]."""

    def read(self, token_ids: tf.Tensor, padding_mask: tf.Tensor, count: int) -> Rows:
        """Reads rows [B, P] before `count` new tokens, in a graph."""


class Generator:
    """Generates texts with a model.

    Args:
      source: the model and its tokenizer.

    Attributes:
      model: the model.
      tokenizer: the tokenizer of the model.
      reader: reads the texts.
      start_id: the token that the model reads first.
      end_id: the last token of a text.

    Raises:
      UserError: the model cannot generate text.
    """

    def __init__(self, source: ServedModel):
        if reason := why_not(source.model):
            raise UserError(reason)
        self.model, self.tokenizer = source.model, source.tokenizer
        self.reader: Reader = _READERS[objective(source.model)](source)
        self.start_id, self.end_id = self.reader.start_id, self.reader.end_id
        self._graph = in_place_graph(self.write)
        self._beam_graph = in_place_graph(self.search)

    def texts(
        self,
        texts: Sequence[str],
        settings: Settings = Settings(),  # noqa: B008
        batch_size: int = 8,
        report: Report | None = None,
    ) -> list[str]:
        """Continues texts, or generates texts from them.

        Args:
          texts: any number of texts. A text may be empty.
          settings: the settings of the search. The default temperature is that of the reader.
          batch_size: the number of texts in a batch.
          report: is called with lines of progress; None = there are none.

        Returns:
          The texts of the reader, `num_return_sequences` for each text, one after another.

        Raises:
          UserError: a single text is given instead of a list, the batch size is less than 1, or a
            prompt leaves no room for the new tokens.
        """
        given_texts.check_texts(texts, batch_size, "generate")
        encoded = self.tokenizer.encode(list(texts))
        count, reader = settings.max_new_tokens, self.reader
        rows = reader.rows(encoded, count)
        progress, written = Progress(len(rows), report, unit="texts"), []
        for numbers, ids, mask in batches(
            rows, batch_size, reader.max_length(count), self.tokenizer.pad_id, side=reader.side
        ):
            generated = self.ids(ids, mask, settings, numbers)
            numbers = np.repeat(numbers, settings.num_return_sequences)
            written += [
                reader.text(encoded[number], new)
                for number, new in zip(numbers, generated, strict=True)
            ]
            progress(len(ids))
        return written

    def ids(
        self,
        token_ids: np.ndarray,
        padding_mask: np.ndarray,
        settings: Settings = Settings(),  # noqa: B008
        numbers: np.ndarray | None = None,
    ) -> np.ndarray:
        """Generates token ids, in reading order.

        Args:
          token_ids: rows of the reader, int [B, P].
          padding_mask: bool [B, P].
          settings: the settings of the search.
          numbers: the numbers of the texts, int [B]; None = 0, 1, ... The draws for a text depend
            on its number.

        Returns:
          int32 [B * num_return_sequences, N]. Padding follows `end_id`.
        """
        settings = settings.with_temperature(self.reader.temperature)
        copies, count = settings.num_return_sequences, settings.max_new_tokens
        if settings.num_beams > 1:
            beams, _ = self.beams(token_ids, padding_mask, settings)
            return beams[:, :copies].reshape(-1, count)
        numbers = np.arange(len(token_ids)) if numbers is None else numbers
        draws = token_choice.draws(settings, numbers, self.reader.vocab_size)
        rows = np.repeat(token_ids, copies, axis=0), np.repeat(padding_mask, copies, axis=0)
        inputs = tf.constant(rows[0], tf.int32), tf.constant(rows[1], tf.bool)
        return self._graph(*inputs, count, token_choice.options(settings), **draws).numpy()

    def beams(
        self, token_ids: np.ndarray, padding_mask: np.ndarray, settings: Settings
    ) -> tuple[np.ndarray, np.ndarray]:
        """Searches with beams; arguments as in `ids`.

        Returns:
          The ids int32 [B, K, N], best first, and the scores float32 [B, K].
        """
        rows = tf.constant(token_ids, tf.int32), tf.constant(padding_mask, tf.bool)
        ids, scores = self._beam_graph(*rows, **beam_options(settings))
        return ids.numpy(), scores.numpy()

    def write(
        self,
        token_ids: tf.Tensor,
        padding_mask: tf.Tensor,
        max_new_tokens: int,
        rules: Mapping[str, Any] | None = None,
        **draws: tf.Tensor,
    ) -> tf.Tensor:
        """Computes `ids` in a graph, greedily or with the arguments of `token_choice.choice`.

        `rules` are arguments of `Processors`; None = no rules.
        """
        rows = self.reader.read(token_ids, padding_mask, max_new_tokens)
        loop = TokenLoop(
            max_new_tokens, self.end_id, self.tokenizer.pad_id, self._processors(rows, rules)
        )
        return loop.run(token_choice.choice(max_new_tokens, **draws), rows.next, **rows.begin())

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
        """Searches with beams, in a graph: see `beam_search.search`.

        All but the rows are `beam_options`.

        Returns:
          int32 [B, K, N], best first, and the scores float32 [B, K].
        """
        read = self.reader.read(token_ids, padding_mask, max_new_tokens)
        rows, cache = read.beams(num_beams)

        def step(tokens, i, cache):
            logits, cache = rows.next(tokens, i, cache)
            return tf.nn.log_softmax(logits), cache

        beams = beam_search.Beams(
            num_beams,
            max_new_tokens,
            read.start,
            self.end_id,
            self.tokenizer.pad_id,
            length_penalty,
            length_rule,
            early_stopping,
            self._processors(rows, rules),
        )
        return beam_search.search(step, cache, tf.shape(token_ids)[0], beams)

    def _processors(self, rows: Rows, rules: Mapping[str, Any] | None) -> Processors | None:
        """Returns the rules of a search; None = there are none."""
        return Processors(rows.prompt, rows.padding, self.end_id, **rules) if rules else None


def beam_options(settings: Settings) -> dict[str, Any]:
    """Returns the arguments of `Generator.search` for a request.

    Numbers that graphs need not be made anew for are tensors.
    """
    return {
        "max_new_tokens": settings.max_new_tokens,
        "num_beams": settings.num_beams,
        "length_rule": settings.length_rule,
        "length_penalty": tf.constant(settings.length_penalty, tf.float32),
        "early_stopping": settings.early_stopping,
        "rules": token_choice.options(settings),
    }


class PromptReader:
    """Reads prompts with a causal LM, which continues them.

    A model that reads from right to left generates the text before a prompt. Prompts are padded on
    the left, so that all rows of a batch write to the same slot of the key-value cache. The cache
    holds the prompt and the new tokens. This is also true for Transformer-XL: generation uses no
    memory of a fixed length, and a token attends to the whole row, even if `encoder.memory_length`
    was shorter in training.

    Attributes:
      backward: whether the model reads from right to left.
    """

    side = "left"
    temperature = 1.0

    def __init__(self, source: ServedModel):
        self._tokenizer, self._encoder = source.tokenizer, source.model.encoder
        self._head = source.model.objective("causal_lm")
        self.backward = self._head.config.direction == "backward"
        self.new_tokens = new_tokens(self._encoder.config.max_positions)
        # The table may have more rows than the vocabulary has entries.
        self.vocab_size = source.tokenizer.vocab_size
        self.start_id, self.end_id = ends(source.config, source.tokenizer)

    def max_length(self, count: int) -> int:
        """See `Reader`."""
        return self._encoder.config.max_positions - count

    def rows(self, encoded: Sequence[np.ndarray], count: int) -> list[list[int]]:
        """See `Reader`."""
        rows = [[self.start_id, *(ids[::-1] if self.backward else ids)] for ids in encoded]
        max_length = self.max_length(count)
        for number, row in enumerate(rows, 1):
            if len(row) > max_length:
                raise UserError(
                    f"prompt {number} has {len(row)} tokens with the one that opens a sequence, "
                    f"and with {count} new ones at most {max(max_length, 0)} fit the "
                    f"{self._encoder.config.max_positions} positions of this encoder: shorten it, "
                    "or take a smaller max_new_tokens"
                )
        return rows

    def text(self, encoded: np.ndarray, new: np.ndarray) -> str:
        """Returns a prompt with its continuation, as the tokenizer decodes them together."""
        new = new.tolist()
        new = new[: [*new, self.end_id].index(self.end_id)]
        return self._tokenizer.decode([*new[::-1], *encoded] if self.backward else [*encoded, *new])

    def read(self, token_ids: tf.Tensor, padding_mask: tf.Tensor, count: int) -> "Prompts":
        """See `Reader`."""
        filled = tf.pad(padding_mask, [[0, 0], [0, count - 1]], constant_values=True)
        real = tf.cast(padding_mask, tf.int32)
        positions = tf.maximum(tf.cumsum(real, axis=1) - 1, 0)
        lengths = tf.reduce_sum(real, axis=1)
        slots = token_ids.shape[1] + count - 1  # the last new token is not read
        return Prompts(self, token_ids, masks.padding(filled), lengths, positions, slots)

    def empty_cache(self, token_ids: tf.Tensor, slots: int) -> Any:
        """Returns a cache with slots for prompts and new tokens."""
        batch = token_ids.shape[0]
        return self._encoder.empty_cache(tf.shape(token_ids)[0] if batch is None else batch, slots)

    def logits(
        self, tokens: tf.Tensor, positions: tf.Tensor, mask: tf.Tensor, cache: Any, slot: Any
    ) -> tuple[tf.Tensor, Any]:
        """Reads tokens [B, T] from a slot on; returns the logits of the next ones and the cache."""
        encoded = self._encoder(tokens, None, mask, positions=positions, cache=cache, slot=slot)
        logits = self._head.logits(encoded["sequence_output"][:, -1], self._encoder)
        return logits[:, : self.vocab_size], encoded["cache"]


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Prompts of different lengths, padded on the left; see `Rows`.

    Attributes:
      reader: reads tokens.
      prompt: the tokens, int32 [B, P].
      attention_mask: bool [B, 1, 1, P + N - 1], False for padding.
      lengths: int32 [B].
      positions: int32 [B, P].
      slots: P + N - 1, the slots of the cache.
      shared: of beams, the parts of the cache that are the same for all rows and have one row,
        whatever the batch is; None in the place of the others, which the search carries.
      whole: of beams, a cache with the structure of all parts.
    """

    reader: PromptReader
    prompt: tf.Tensor
    attention_mask: tf.Tensor
    lengths: tf.Tensor
    positions: tf.Tensor
    slots: int
    shared: Sequence[tf.Tensor | None] | None = None
    whole: Any = None

    @property
    def start(self) -> tf.Tensor:
        """The last token of each prompt: the first step of a beam search reads it."""
        return self.prompt[:, -1]

    @property
    def padding(self) -> tf.Tensor:
        """See `Rows`."""
        return self.prompt.shape[1] - self.lengths

    def begin(self) -> dict[str, Any]:
        """Reads the prompts at once; see `Rows`."""
        logits, cache = self._read(self.prompt, self.positions, self._empty_cache(), 0)
        return {"logits": logits, "cache": cache}

    def beams(self, count: int) -> tuple["Prompts", Any]:
        """See `Rows`."""
        cache = self._empty_cache()
        if self.prompt.shape[1] > 1:
            _, cache = self._read(self.prompt[:, :-1], self.positions[:, :-1], cache, 0)
        of_two = self.reader.empty_cache(tf.zeros([2, 1]), 1)
        parts = zip(tf.nest.flatten(cache), tf.nest.flatten(of_two), strict=True)
        shared = [part if two.shape[0] == 1 else None for part, two in parts]
        names = ("prompt", "attention_mask", "lengths", "positions")
        repeated = {name: tf.repeat(getattr(self, name), count, axis=0) for name in names}
        rows = dataclasses.replace(self, **repeated, shared=shared, whole=cache)
        return rows, [tf.repeat(part, count, axis=0) for part in _carried(cache, shared)]

    def next(self, tokens: tf.Tensor, i: int | tf.Tensor, cache: Any) -> tuple[tf.Tensor, Any]:
        """See `Rows`."""
        if self.shared is not None:
            carried = iter(cache)
            parts = [next(carried) if part is None else part for part in self.shared]
            cache = tf.nest.pack_sequence_as(self.whole, parts)
        positions = (self.lengths + (i - 1))[:, None]
        slot = self.prompt.shape[1] - 1 + i
        logits, cache = self._read(tokens[:, None], positions, cache, slot)
        return logits, cache if self.shared is None else _carried(cache, self.shared)

    def _empty_cache(self) -> Any:
        return self.reader.empty_cache(self.prompt, self.slots)

    def _read(self, tokens, positions, cache, slot) -> tuple[tf.Tensor, Any]:
        return self.reader.logits(tokens, positions, self.attention_mask, cache, slot)


def _carried(cache: Any, shared: Sequence[tf.Tensor | None]) -> list[tf.Tensor]:
    """Returns the parts of a cache that are not `shared`."""
    parts = zip(tf.nest.flatten(cache), shared, strict=True)
    return [part for part, same in parts if same is None]


class InputReader:
    """Reads texts with an encoder-decoder, which generates a target for each.

    The encoder reads a batch once, and its keys and values for the decoder are computed once. The
    row of a text is its tokens and the end token, as in T5 (Raffel et al. 2020, section 3.1);
    longer texts are cut, and the end token stays. The token table may have more rows than the
    vocabulary has entries: such a row is decoded as an unknown token, as in T5.
    """

    side = "right"
    temperature = 0.0
    new_tokens = Settings.max_new_tokens

    def __init__(self, source: ServedModel):
        self._tokenizer, self._encoder = source.tokenizer, source.model.encoder
        self._head = source.model.objective("seq2seq_lm")
        self._max_length = source.max_length
        self.vocab_size = source.model.encoder.config.vocab_size
        self.start_id, self.end_id = self._head.config.start_id, source.tokenizer.sep_id

    def max_length(self, count: int) -> int:
        """Returns the maximum length of a row; new tokens have places of their own."""
        del count
        return self._max_length

    def rows(self, encoded: Sequence[np.ndarray], count: int) -> list[list[int]]:
        """See `Reader`."""
        del count
        pairs, room = self._tokenizer.pairs, self._max_length - 1
        return [[*ids[pairs.kept(len(ids), room)], self.end_id] for ids in encoded]

    def text(self, encoded: np.ndarray, new: np.ndarray) -> str:
        """Returns the generated text."""
        del encoded
        return decoded(new, self._tokenizer)

    def read(self, token_ids: tf.Tensor, padding_mask: tf.Tensor, count: int) -> "Inputs":
        """See `Reader`."""
        batch = {"token_ids": token_ids, "padding_mask": padding_mask}
        encoded = encode(self._encoder, batch)["sequence_output"]
        self_cache, cross_cache = self._encoder.empty_cache(encoded, count)
        start = tf.fill(tf.shape(token_ids)[:1], self.start_id)
        return Inputs(self, start, self_cache, cross_cache, masks.padding(padding_mask))

    def logits(
        self, tokens: tf.Tensor, self_cache: Any, cross_cache: Any, mask: tf.Tensor, slot: Any
    ) -> tuple[tf.Tensor, Any]:
        """Reads tokens [B] at a slot; returns the next logits and the self-attention cache."""
        caches = self_cache, cross_cache
        hidden, (self_cache, _) = self._encoder.decode(tokens[:, None], caches, slot, mask)
        return self._head.logits(hidden[:, 0], self._encoder), self_cache


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Texts that an encoder has read for its decoder; see `Rows`.

    Attributes:
      reader: reads tokens.
      start: the first token of the decoder, int32 [B].
      self_cache: the keys and values of the decoder's tokens, before the first one.
      cross_cache: the keys and values of the encoder's states.
      mask: hides the padding of the texts from the decoder.
    """

    reader: InputReader
    start: tf.Tensor
    self_cache: Any
    cross_cache: Any
    mask: tf.Tensor

    @property
    def prompt(self) -> tf.Tensor:
        """The start token alone, [B, 1]."""
        return self.start[:, None]

    @property
    def padding(self) -> tf.Tensor:
        """None: [B] zeros."""
        return tf.zeros_like(self.start)

    def begin(self) -> dict[str, Any]:
        """See `Rows`."""
        return {"tokens": self.start, "cache": self.self_cache}

    def beams(self, count: int) -> tuple["Inputs", Any]:
        """See `Rows`."""
        fields = self.start, self.self_cache, self.cross_cache, self.mask
        repeated = tf.nest.map_structure(lambda x: tf.repeat(x, count, axis=0), fields)
        rows = Inputs(self.reader, *repeated)
        return rows, rows.self_cache

    def next(self, tokens: tf.Tensor, i: int | tf.Tensor, cache: Any) -> tuple[tf.Tensor, Any]:
        """See `Rows`."""
        return self.reader.logits(tokens, cache, self.cross_cache, self.mask, i)


_READERS: dict[str | None, type[PromptReader | InputReader]] = {
    "causal_lm": PromptReader,
    "seq2seq_lm": InputReader,
}


def batches(
    rows: Sequence[Sequence[int]], batch_size: int, max_length: int, pad_id: int, *, side: str
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields the numbers of the rows of a batch int [B], and its `padded` ids and mask."""
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        length = min(max_length, -(-max(map(len, batch)) // _STEP) * _STEP)
        yield np.arange(start, start + len(batch)), *padded(batch, length, pad_id, side=side)


def padded(
    rows: Sequence[Sequence[int]], length: int, pad_id: int, *, side: str
) -> tuple[np.ndarray, np.ndarray]:
    """Pads rows on the side "left" or "right"; returns ids int32 [B, P] and the mask of tokens."""
    lengths = np.array([len(row) for row in rows])[:, None]
    places = np.arange(length)
    mask = places < lengths if side == "right" else places >= length - lengths
    ids = np.full(mask.shape, pad_id, np.int32)
    ids[mask] = np.concatenate(rows)
    return ids, mask


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
    paths.check_suffix(output, "texts", (".jsonl",))
