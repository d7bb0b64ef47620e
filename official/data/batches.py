"""From the records of a batch to its tensors: parse, pad, lay out, corrupt.

Shapes: B examples of a replica's batch, C sequences of an example, T tokens with padding,
S segments, P predictions.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.config.sections import PART_FIELDS
from official.corruption import targets
from official.corruption.vocabulary import Vocabulary
from official.data import packing as packed
from official.data import sequences
from official.shards import features
from official.tokenizers import packing, windows
from official.utils import seeding

# Features that become other fields of a batch; all the others are fields as they are. The lexicons'
# list positions, and become a flag for each token where the corruption needs it.
LISTS = frozenset(features.LEXICONS) | {
    "token_ids",
    "segment_lengths",
    "part_lengths",
    "sequence_lengths",
    "masked_positions",
    "masked_ids",
}
STATIC_MASKS = frozenset({"masked_positions", "masked_ids"})


@dataclasses.dataclass(frozen=True)
class BatchBuilder:
    """What a batch is made with; called with records, it makes one.

    Attributes:
      tokenizer: that the examples were made with.
      vocabulary: what the corruption draws from.
      corruption: as configured; None = there is none.
      seed: of the run.
      features: what an example has.
      max_length: T where the records do not say another.
      layout: how the encoder wants the texts of a task; see `official.tokenizers.packing`.
      parts: the most parts of a row; 1 = rows are not shared.
      sequences: C; None = an example is one sequence.
      predictions: P where masks are listed for rows, as in shards: static ones, and those of parts.
      draws: whether an objective draws at random, from `row_seeds`.
      heads: of a model of several tasks, the fields that the head of each reads.
      task: which task the examples are of.
    """

    tokenizer: tokenizers.Tokenizer
    vocabulary: Vocabulary
    corruption: Any
    seed: int
    features: frozenset[str]
    max_length: int
    layout: str
    parts: int
    sequences: int | None
    predictions: int | None
    draws: bool
    heads: Mapping[str, Collection[str]]
    task: str | None

    @property
    def static_masks(self) -> bool:
        """Whether the examples have their masks already."""
        return STATIC_MASKS <= self.features

    @property
    def fields(self) -> frozenset[str]:
        """The names of a batch's fields."""
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
        for task, names in self.heads.items():
            mine = task == self.task
            fields |= {n for n in names if not mine or n.removeprefix(f"{task}/") in fields}
        return frozenset(fields)

    def __call__(self, rows: Mapping[str, tf.Tensor], size: int) -> dict[str, tf.Tensor]:
        """Builds the batch of one replica: parses its records, pads them, and corrupts.

        Args:
          rows: `record`, `index` and `epoch` [B], and `places` where rows have a length of their
            own; see `official.data.example_order`.
          size: B.
        """
        index = tf.ensure_shape(rows["index"], [size])
        weights = tf.cast(index >= 0, tf.float32)  # [B]
        seeds = seeding.row_seeds(self.seed, rows["epoch"], rows["index"])
        length = rows["places"][0] if "places" in rows else self.max_length  # T
        parsed = self._parsed(rows["record"], size, seeds)
        batch, segment_ids = self._padded(parsed, size, length)
        batch["example_weights"] = weights
        batch |= {name: value for name, value in parsed.items() if name not in LISTS}
        if "backward" in batch:
            batch["backward"] = batch["backward"] > 0
        if "part_lengths" in parsed:
            batch |= packed.fields(parsed, segment_ids, weights, self.parts)
        batch |= self._asked(batch)
        if self.draws:
            batch["row_seeds"] = seeding.network_seeds(seeds)
        batch = self._corrupted(batch, parsed, seeds)
        if "masked_weights" in batch:
            batch["masked_weights"] *= weights[:, None]
        return batch

    def _parsed(self, records: tf.Tensor, size: int, seeds: tf.Tensor) -> dict[str, Any]:
        """Parses records; corrupts the parts of rows that several sequences share."""
        parsed = features.parse(tf.ensure_shape(records, [size]), sorted(self.features))
        if self.corruption is not None and self.parts > 1 and not self.static_masks:
            flags = {
                name: _flags(parsed[name], parsed["token_ids"]) for name in self.corruption.needs()
            }
            parsed |= packed.corrupted(
                self.corruption, self.vocabulary, parsed, flags, seeds, self.parts
            )
        if self.sequences:
            parsed |= sequences.apart(parsed, size * self.sequences)
        return parsed

    def _padded(
        self, parsed: dict[str, Any], size: int, length: int | tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Pads rows to a length, and lays them out as the encoder wants them.

        Args:
          parsed: from `_parsed`; where a window begins in its context is brought up to date.
          size: B of the batch; the shapes below say B for its rows of tokens.
          length: T.

        Returns:
          The fields of the tokens, and how many segments have ended before each place [B, T].
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
            batch = packing.arrange(batch, self.tokenizer, self.layout)
        if self.sequences:
            batch["text_mask"] = sequences.text_mask(
                batch["token_ids"], batch["padding_mask"], self.tokenizer.special_ids
            )
            batch = sequences.stacked(batch, size, self.sequences)
        return batch, segment_ids

    def _corrupted(
        self, batch: dict[str, tf.Tensor], parsed: Mapping[str, Any], seeds: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Adds the masks that records list, or draws what the corruption gives."""
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

    def _asked(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """What the heads of several tasks read: the examples are of one task, zeros for others."""
        asked = {}
        for task, names in self.heads.items():
            for name in names:
                field = name.removeprefix(f"{task}/")
                if task != self.task:
                    kind = tf.int32 if field == "label" else tf.float32
                    asked[name] = tf.zeros_like(batch["example_weights"], kind)
                elif field in batch:
                    asked[name] = batch[field]
        return asked


def _flags(positions: tf.RaggedTensor, token_ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """Flags for each token, bool [B, None], that are true at the positions listed for its row."""
    starts = tf.gather(token_ids.row_starts(), positions.value_rowids())
    places = tf.cast(starts, tf.int32) + positions.flat_values
    flags = tf.scatter_nd(places[:, None], tf.ones_like(places), tf.shape(token_ids.flat_values))
    return token_ids.with_flat_values(flags > 0)


def _listed_masks(
    parsed: Mapping[str, tf.RaggedTensor], token_ids: tf.Tensor, max_predictions: int
) -> dict[str, tf.Tensor]:
    """Pads the masks listed for each row of [B, T]; a position may be listed several times."""
    positions = parsed["masked_positions"]
    rows = tf.cast(positions.value_rowids(), tf.int32)
    cells = tf.stack([rows, positions.flat_values], axis=1)
    times = tf.scatter_nd(cells, tf.ones_like(rows), tf.shape(token_ids))
    times = tf.ensure_shape(times, token_ids.shape)
    originals = tf.tensor_scatter_nd_update(token_ids, cells, parsed["masked_ids"].flat_values)
    return targets.listed(times, originals, max_predictions)
