"""Scores the rows of a batch in groups of similar length, so that little padding is computed.

Rows are sorted by length, the longest first, and cut into groups. The columns that are padding in
all rows of a group are removed before the group is scored. A group ends when more padding would
cost more time than another group, or when it would have more than `POSITIONS` positions. So the
memory does not depend on the size of the batch. The outputs are in the order of the batch. All of
this is inside the graph.

Shapes: B rows, T tokens of the longest row, C characters of a word.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

import tensorflow as tf

from official.config.parts import EncoderConfig
from official.tokenizers import word_characters

POSITIONS = 1024
# The cost of a group in positions: the weights are read once more, and operations are started. The
# smaller the model, the larger the share of the latter.
READING, STARTING = 32, 2048**2
FIELDS = {"token_ids": tf.int32, "segment_ids": tf.int32, "padding_mask": tf.bool}
CHARACTERS = "character_ids"  # int32 [B, T, C], of encoders that read them

Tensors = dict[str, tf.Tensor]


def scorer(
    score: Callable[[Tensors], Tensors],
    encoder: EncoderConfig,
    row_fields: tuple[str, ...] = (),
    token_fields: tuple[str, ...] = (),
) -> Callable[[Mapping[str, tf.Tensor]], Tensors]:
    """Returns a function that scores a batch group by group.

    Args:
      score: a function from a batch with `FIELDS` [B, T], and `CHARACTERS` if the encoder reads
        them, to outputs [B, ...] or [B, T, ...]. The outputs of a row must not depend on other rows
        or on padding.
      encoder: the config of the encoder. Its `layout` says on which side padding is.
      row_fields: names of further fields of the batch, int32 [B]. Of these, `context_start` is the
        number of a column.
      token_fields: names of further fields of the batch, int32 [B, T].

    Returns:
      A function with the same result as `score`. It also accepts a batch without rows. Outputs
      [B, T, ...] are 0 in the columns that were removed.
    """
    fields = {name: tf.TensorSpec([None, None], dtype) for name, dtype in FIELDS.items()}
    if encoder.reads_characters:
        fields[CHARACTERS] = tf.TensorSpec([None, None, word_characters.WIDTH], tf.int32)
    fields |= {name: tf.TensorSpec([None, None], tf.int32) for name in token_fields}
    of_tokens = tuple(fields)
    fields |= {name: tf.TensorSpec([None], tf.int32) for name in row_fields}
    graph = tf.function(score, input_signature=[fields], autograph=False)
    padding_side: Literal["left", "right"] = "left" if encoder.layout == "cls_last" else "right"
    groups = _Scorer(graph, of_tokens, padding_side, max_padding(encoder.hidden_size))
    # One function, however many signatures score batches: each copy takes memory.
    scored = tf.function(groups.__call__, input_signature=[fields], autograph=False)
    return lambda batch: scored({name: batch[name] for name in fields})


def max_padding(hidden_size: int) -> int:
    """Returns the most positions of padding of a group: more cost more than another group."""
    return READING + STARTING // hidden_size**2


@dataclasses.dataclass(frozen=True)
class _Scorer:
    """See `scorer`.

    Attributes:
      graph: scores a group.
      of_tokens: the names of the fields with an axis of tokens.
      padding_side: the side of the rows on which padding is.
      max_padding: how many positions of padding a group may have.
    """

    graph: tf.types.experimental.PolymorphicFunction
    of_tokens: tuple[str, ...]
    padding_side: Literal["left", "right"]
    max_padding: int

    def __call__(self, batch: Mapping[str, tf.Tensor]) -> Tensors:
        """Scores a batch."""
        batch = dict(batch)
        # Rows without tokens get one position, because a pooler reads it.
        empty = tf.cast(tf.equal(tf.shape(batch["token_ids"])[1], 0), tf.int32)
        for name in self.of_tokens:
            padding = [[0, 0], [0, empty], *[[0, 0]] * (len(batch[name].shape) - 2)]
            batch[name] = tf.pad(batch[name], padding)
        lengths = self._lengths(batch["padding_mask"])
        order = tf.argsort(lengths, direction="DESCENDING", stable=True)  # [B]
        lengths = tf.gather(lengths, order)
        batch = {name: tf.gather(value, order) for name, value in batch.items()}
        outputs = self._score_groups(batch, lengths)
        original = tf.math.invert_permutation(order)
        return {name: tf.gather(value, original) for name, value in outputs.items()}

    def _lengths(self, padding_mask: tf.Tensor) -> tf.Tensor:
        """Returns the length of each row without its padding, at least 1: int32 [B]."""
        length = tf.shape(padding_mask)[1]
        columns = tf.range(length)
        columns = length - columns if self.padding_side == "left" else columns + 1
        return tf.reduce_max(tf.where(padding_mask, columns[None, :], 1), axis=1)

    def _score_groups(self, batch: Tensors, lengths: tf.Tensor) -> Tensors:
        """Scores a batch whose rows are sorted by `lengths`, the longest first."""
        count, length = tf.unstack(tf.shape(batch["token_ids"]))
        specs = self.graph.get_concrete_function().structured_outputs

        def score_group(group: tf.Tensor, start: tf.Tensor, *arrays: tf.TensorArray) -> tuple:
            width = tf.reduce_max(tf.concat([lengths[start : start + 1], [1]], axis=0))
            candidates = lengths[start : start + tf.maximum(POSITIONS // width, 1)]
            fits = tf.cumsum(width - candidates) <= self.max_padding
            end = start + tf.reduce_sum(tf.cast(fits, tf.int32))
            removed = length - width
            outputs = self.graph(self._cut(batch, slice(start, end), width, removed))
            padding = [removed, 0] if self.padding_side == "left" else [0, removed]
            written = (
                array.write(group, _padded(outputs[name], specs[name].shape, padding))
                for name, array in zip(specs, arrays, strict=True)
            )
            return group + 1, end, *written

        arrays = [
            tf.TensorArray(
                spec.dtype, 0, dynamic_size=True, infer_shape=False, element_shape=spec.shape
            )
            for spec in specs.values()
        ]
        _, _, *arrays = tf.while_loop(
            lambda group, start, *_: (start < count) | (group < 1),
            score_group,
            (0, 0, *arrays),
            parallel_iterations=1,
        )
        return {name: array.concat() for name, array in zip(specs, arrays, strict=True)}

    def _cut(self, batch: Tensors, rows: slice, width: tf.Tensor, removed: tf.Tensor) -> Tensors:
        """Returns some rows without the columns that are padding in all of them."""
        left = self.padding_side == "left"
        columns = slice(removed, None) if left else slice(width)
        part = {
            name: value[rows, columns] if name in self.of_tokens else value[rows]
            for name, value in batch.items()
        }
        if left and "context_start" in part:
            part["context_start"] -= removed
        return part


def _padded(output: tf.Tensor, shape: tf.TensorShape, padding: list) -> tf.Tensor:
    """Pads an output to the length of the batch if its `shape` has an axis of tokens."""
    if shape.rank < 2 or shape[1] is not None:
        return output
    return tf.pad(output, [[0, 0], padding, *[[0, 0]] * (shape.rank - 2)])
