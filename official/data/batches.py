"""Turns the records of a batch into its tensors: parses, pads, lays out and corrupts them.

Shapes: B examples of a replica's batch, C sequences of an example, T tokens with padding,
S segments, P predictions, U targets with padding.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.config.distillation import TEACHER_LOGITS
from official.config.segments import PART_FIELDS, SENTENCE_FEATURES, SENTENCE_FIELDS
from official.corruption import units
from official.corruption.vocabulary import Vocabulary
from official.data import sequences, tagged, words
from official.data import shared_rows as packed
from official.shards import features, layer_states, parsing
from official.tokenizers import pair_packing, windows
from official.utils import seeding

# Features that become other batch fields; all others are batch fields as they are. The features of
# lexicons list positions, and become a flag for each token if the corruption reads them.
LISTS = (
    frozenset(features.LEXICONS)
    | SENTENCE_FEATURES
    | {
        "token_ids",
        "segment_lengths",
        "part_lengths",
        "sequence_lengths",
        "masked_positions",
        "masked_ids",
        "target_ids",
        "label_flags",
    }
    | set(tagged.FEATURES)
)
STATIC_MASKS = frozenset({"masked_positions", "masked_ids"})


@dataclasses.dataclass(frozen=True)
class BatchBuilder:
    """A function from the records of a batch to its tensors.

    Attributes:
      tokenizer: the tokenizer that the examples were made with.
      vocabulary: the tokens that the corruption draws from.
      corruption: the corruption of the config; None = none.
      seed: the seed of the run.
      features: the features of an example.
      limits: what the numbers of examples are limited to.
      max_length: T, unless the records have a length of their own.
      layout: the layout of a task's texts; see `official.tokenizers.pair_packing`.
      parts: the largest number of parts of a row; 1 = rows are not shared.
      sequences: C; None = an example is one sequence.
      predictions: P if the masks of a row are listed: static masks, and masks of parts.
      draws: whether an objective draws at random, from `row_seeds`.
      heads: of a model of several tasks, the batch fields that each task's head reads.
      task: the task of the examples.
      taught: the cached outputs of teachers for all examples, [examples, teachers, outputs]; None =
        there are none.
      max_target_length: U of a task of text to text; 0 = the examples have no targets.
      states: the states of all layers of an encoder for all examples; None = there are none.
      numbered: whether a batch has the numbers of its examples, `example_number` [B].
    """

    tokenizer: tokenizers.Tokenizer
    vocabulary: Vocabulary
    corruption: Any
    seed: int
    features: frozenset[str]
    limits: parsing.Limits
    max_length: int
    layout: str
    parts: int
    sequences: int | None
    predictions: int | None
    draws: bool
    heads: Mapping[str, Collection[str]]
    task: str | None
    taught: tf.Tensor | None = None
    max_target_length: int = 0
    states: layer_states.States | None = None
    numbered: bool = False

    @property
    def static_masks(self) -> bool:
        """Whether the examples have static masks."""
        return STATIC_MASKS <= self.features

    @property
    def fields(self) -> frozenset[str]:
        """The names of the fields of a batch."""
        fields = {"token_ids", "segment_ids", "padding_mask", "example_weights"}
        fields |= self.features - LISTS
        if "part_lengths" in self.features:
            fields |= PART_FIELDS
        if self.sequences:
            fields.add("text_mask")
        if self.static_masks:
            fields |= STATIC_MASKS | {"masked_weights"}
        if (corruption := self.corruption) is not None:
            fields |= corruption.gives()
        if self.draws:
            fields.add("row_seeds")
        if self.taught is not None:
            fields.add(TEACHER_LOGITS)
        if self.states is not None:
            fields.add(layer_states.FIELD)
        if "target_ids" in self.features:
            fields |= {"target_ids", "target_mask"}
        fields |= self.features & {*tagged.FEATURES, "label_flags"}
        if "backward_word_bytes" in self.features:
            fields |= SENTENCE_FIELDS
        elif "word_bytes" in self.features:
            fields.add("character_ids")
        for task, names in self.heads.items():
            mine = task == self.task
            fields |= {n for n in names if not mine or n.removeprefix(f"{task}/") in fields}
        return frozenset(fields)

    def __call__(self, rows: Mapping[str, tf.Tensor], size: int) -> dict[str, tf.Tensor]:
        """Builds the batch of one replica: parses its records, pads and corrupts them.

        Args:
          rows: `record`, `index` and `epoch` [B], `length` if rows have a length of their own, and
            `first` of a stream; see `official.data.example_order` and `official.data.row_groups`.
          size: B.
        """
        index = tf.ensure_shape(rows["index"], [size])
        weights = tf.cast(index >= 0, tf.float32)  # [B]
        seeds = seeding.row_seeds(self.seed, rows["epoch"], rows["index"])
        length = rows["length"][0] if "length" in rows else self.max_length  # T
        parsed = self._parsed(rows["record"], size, seeds)
        batch, segment_ids = self._padded(parsed, size, length)
        batch["example_weights"] = weights
        batch |= {name: value for name, value in parsed.items() if name not in LISTS}
        if "continues" in batch and "first" in rows:
            goes_on = ~tf.ensure_shape(rows["first"], [size])
            batch["continues"] *= tf.cast(goes_on, batch["continues"].dtype)
        if "backward" in batch:
            batch["backward"] = batch["backward"] > 0
        if "part_lengths" in parsed:
            batch |= packed.fields(parsed, segment_ids, weights, self.parts)
        if self.max_target_length:
            batch |= self._targets(parsed, size)
        if "label_flags" in parsed:
            shape = [size, self.limits.labels or None]
            batch["label_flags"] = parsed["label_flags"].to_tensor(shape=shape)
        if "word_ids" in parsed:
            batch |= tagged.fields(parsed, batch["padding_mask"], self.layout)
        if "backward_word_bytes" in parsed:
            batch |= words.fields(self.tokenizer, parsed, size, self.max_length)
        elif "word_bytes" in parsed:
            batch["character_ids"] = words.characters(self.tokenizer, parsed, size, length)
        batch |= self._fields_of_heads(batch)
        if self.draws:
            batch["row_seeds"] = seeding.network_seeds(seeds)
        if self.taught is not None:
            batch[TEACHER_LOGITS] = tf.gather(self.taught, tf.maximum(index, 0))
        if self.numbered:
            batch["example_number"] = index
        if self.states is not None:
            batch[layer_states.FIELD] = self._layer_states(index, batch["padding_mask"])
        batch = self._corrupted(batch, parsed, seeds)
        if "masked_weights" in batch:
            batch["masked_weights"] *= weights[:, None]
        return batch

    def _parsed(self, records: tf.Tensor, size: int, seeds: tf.Tensor) -> dict[str, Any]:
        """Parses records, and corrupts the parts of rows that several sequences share."""
        parsed = parsing.parse(tf.ensure_shape(records, [size]), self.features, self.limits)
        if self.corruption is not None and self.parts > 1 and not self.static_masks:
            flags = {
                name: _flags(parsed[name], parsed["token_ids"]) for name in self.corruption.needs()
            }
            parsed |= packed.corrupted(
                self.corruption, self.vocabulary, parsed, flags, seeds, self.parts
            )
        if self.sequences:
            parsed |= sequences.split_sequences(parsed, size * self.sequences)
        return parsed

    def _padded(
        self, parsed: dict[str, Any], size: int, length: int | tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Pads rows to a length, and applies the encoder's layout.

        Args:
          parsed: the result of `_parsed`. The layout may move the context of a window; its
            `context_start` is updated.
          size: B of the batch; in the shapes below B is the number of its rows of tokens.
          length: T.

        Returns:
          The fields of the tokens, and the number of segments that end before each position [B, T].
        """
        count = size * (self.sequences or 1)
        lengths = tf.cast(parsed["token_ids"].row_lengths(), tf.int32)  # [B]
        columns = tf.range(length)
        padding_mask = columns < lengths[:, None]  # [B, T]
        ends = tf.cumsum(parsed["segment_lengths"].to_tensor(), axis=1)  # [B, S]
        segment_ids = tf.reduce_sum(tf.cast(columns >= ends[:, :, None], tf.int32), axis=1)
        token_ids = parsed["token_ids"].to_tensor(
            self.tokenizer.pad_id, shape=tf.stack([count, length])
        )
        batch = {
            "token_ids": token_ids,
            "segment_ids": tf.where(padding_mask, segment_ids, 0),
            "padding_mask": padding_mask,
        }
        if "context_start" in parsed:
            whole = {**batch, **{name: parsed[name] for name in windows.POSITIONS}}
            batch = windows.arrange_windows(whole, self.tokenizer, self.layout)
            parsed["context_start"] = batch.pop("context_start")
        else:
            batch = pair_packing.arrange(batch, self.tokenizer, self.layout)
        if self.sequences:
            batch["text_mask"] = sequences.text_mask(
                batch["token_ids"], batch["padding_mask"], self.tokenizer.special_ids
            )
            batch = sequences.add_sequence_axis(batch, size, self.sequences)
        return batch, segment_ids

    def _layer_states(self, index: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
        """Returns the states of the tokens of examples, 0 at padding: float32 [B, T, K, D]."""
        numbers = tf.boolean_mask(index, index >= 0)
        rows = tf.numpy_function(self.states.rows, [numbers], tf.float32)
        cells = tf.where(padding_mask & (index >= 0)[:, None])
        shape = tf.concat([tf.shape(padding_mask, tf.int64), self.states.shape], axis=0)
        rows = tf.ensure_shape(rows, [None, *self.states.shape])
        states = tf.scatter_nd(cells, rows, shape)
        return tf.ensure_shape(states, [*padding_mask.shape, *self.states.shape])

    def _targets(self, parsed: Mapping[str, Any], size: int) -> dict[str, tf.Tensor]:
        """Pads targets with 0: int32 and bool [B, U]. Splits without any have padding alone."""
        shape = [size, self.max_target_length]
        if "target_ids" not in parsed:
            return {"target_ids": tf.zeros(shape, tf.int32), "target_mask": tf.zeros(shape, bool)}
        lengths = tf.cast(parsed["target_ids"].row_lengths(), tf.int32)
        ids = parsed["target_ids"].to_tensor(shape=shape)
        return {"target_ids": ids, "target_mask": tf.range(shape[1]) < lengths[:, None]}

    def _corrupted(
        self, batch: dict[str, tf.Tensor], parsed: Mapping[str, Any], seeds: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Adds the masks that the records list, or draws masks."""
        corruption = self.corruption
        if self.predictions:
            batch |= _listed_masks(parsed, batch["token_ids"], self.predictions)
            if corruption is not None:
                batch |= configs.module_of(corruption).follows(corruption, self.vocabulary, batch)
        elif corruption is not None:
            shape = batch["token_ids"].shape
            shape = shape if shape.is_fully_defined() else tf.shape(batch["token_ids"])
            needed = {
                name: _flags(parsed[name], parsed["token_ids"]).to_tensor(shape=shape)
                for name in corruption.needs()
            }
            corrupt = configs.module_of(corruption).corrupt
            batch = corrupt(corruption, self.vocabulary, {**batch, **needed}, seeds)
            batch = {name: value for name, value in batch.items() if name not in needed}
        return batch

    def _fields_of_heads(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the fields that the heads of several tasks read, zeros for other tasks."""
        fields = {}
        for task, names in self.heads.items():
            for name in names:
                field = name.removeprefix(f"{task}/")
                if task != self.task:
                    kind = tf.int32 if field == "label" else tf.float32
                    fields[name] = tf.zeros_like(batch["example_weights"], kind)
                elif field in batch:
                    fields[name] = batch[field]
        return fields


def _flags(positions: tf.RaggedTensor, token_ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns a flag for each token, bool [B, None]: True at the positions of its row."""
    starts = tf.gather(token_ids.row_starts(), positions.value_rowids())
    indices = tf.cast(starts, tf.int32) + positions.flat_values
    flags = tf.scatter_nd(indices[:, None], tf.ones_like(indices), tf.shape(token_ids.flat_values))
    return token_ids.with_flat_values(flags > 0)


def _listed_masks(
    parsed: Mapping[str, tf.RaggedTensor], token_ids: tf.Tensor, max_predictions: int
) -> dict[str, tf.Tensor]:
    """Pads the masks of each row of [B, T]; a position may be listed several times."""
    positions = parsed["masked_positions"]
    rows = tf.cast(positions.value_rowids(), tf.int32)
    cells = tf.stack([rows, positions.flat_values], axis=1)
    times = tf.scatter_nd(cells, tf.ones_like(rows), tf.shape(token_ids))
    times = tf.ensure_shape(times, token_ids.shape)
    originals = tf.tensor_scatter_nd_update(token_ids, cells, parsed["masked_ids"].flat_values)
    return units.list_targets(times, originals, max_predictions)
