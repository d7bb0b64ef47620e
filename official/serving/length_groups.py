"""Rows of different lengths, those of like length together: a batch does not pay for its longest.

Rows are sorted by length, the longest first, and cut into groups, each of which is read without the
columns that are padding in all of its rows. A group ends where it would have more places of padding
than one group more costs, or more than `PLACES` places in all, so that a book takes no more room
than that. What is found is given back in the order of the batch. All of it is in the graph.

Shapes: B rows, T tokens of the longest one.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

PLACES = 1024
# What a group costs, in places: the weights are read once more, and operations are started, which
# weighs more the smaller the model.
READING, STARTING = 32, 2048**2
FIELDS = {"token_ids": tf.int32, "segment_ids": tf.int32, "padding_mask": tf.bool}

Outputs = dict[str, tf.Tensor]


def scorer(
    score: Callable[[Outputs], Outputs], encoder: Any, places: tuple[str, ...] = ()
) -> Callable[[Mapping[str, tf.Tensor]], Outputs]:
    """Lets rows be scored group by group.

    Args:
      score: from a batch with `FIELDS` [B, T] to outputs [B, ...], or [B, T, ...]; what it finds
        for a row must not depend on the others, or on padding.
      encoder: its config, of which `layout` says where padding is.
      places: more fields of the batch, int32 [B]; of these `context_start` counts columns.

    Returns:
      A function that does the same; what it gives for tokens [B, T, ...] is 0 where all of a group
      was padding. It takes no rows at all, too.
    """
    specs = {name: tf.TensorSpec([None, None], kind) for name, kind in FIELDS.items()}
    specs |= {name: tf.TensorSpec([None], tf.int32) for name in places}
    graph = tf.function(score, input_signature=[specs], autograph=False)
    left = encoder.layout == "cls_last"  # the side of the padding
    waste = READING + STARTING // encoder.hidden_size**2

    def scored(batch: Mapping[str, tf.Tensor]) -> Outputs:
        batch = {name: batch[name] for name in specs}
        # Where there is nothing at all, rows still have one position, which a pooler reads.
        none = tf.cast(tf.equal(tf.shape(batch["token_ids"])[1], 0), tf.int32)
        batch |= {name: tf.pad(batch[name], [[0, 0], [0, none]]) for name in FIELDS}
        count, length = tf.unstack(tf.shape(batch["token_ids"]))
        columns = tf.range(length)
        columns = length - columns if left else columns + 1
        lengths = tf.reduce_max(tf.where(batch["padding_mask"], columns[None, :], 1), axis=1)
        order = tf.argsort(lengths, direction="DESCENDING", stable=True)  # [B]
        lengths = tf.gather(lengths, order)
        batch = {name: tf.gather(value, order) for name, value in batch.items()}

        def read(group, start, *arrays):
            width = tf.reduce_max(tf.concat([lengths[start : start + 1], [1]], axis=0))
            others = lengths[start : start + tf.maximum(PLACES // width, 1)]
            fits = tf.cumsum(width - others) <= waste
            end = start + tf.reduce_sum(tf.cast(fits, tf.int32))
            rest = length - width
            kept = slice(rest, None) if left else slice(width)
            part = {
                name: value[start:end, kept] if name in FIELDS else value[start:end]
                for name, value in batch.items()
            }
            if left and "context_start" in part:
                part["context_start"] -= rest
            outputs = graph(part)
            padding = [rest, 0] if left else [0, rest]
            written = (
                array.write(group, _padded(outputs[name], kinds[name].shape, padding))
                for name, array in zip(kinds, arrays, strict=True)
            )
            return group + 1, end, *written

        kinds = graph.get_concrete_function().structured_outputs
        arrays = [
            tf.TensorArray(
                kind.dtype, 0, dynamic_size=True, infer_shape=False, element_shape=kind.shape
            )
            for kind in kinds.values()
        ]
        _, _, *arrays = tf.while_loop(
            lambda group, start, *_: (start < count) | (group < 1),
            read,
            (0, 0, *arrays),
            parallel_iterations=1,
        )
        back = tf.math.invert_permutation(order)
        return {
            name: tf.gather(array.concat(), back) for name, array in zip(kinds, arrays, strict=True)
        }

    return scored


def _padded(output: tf.Tensor, shape: tf.TensorShape, padding: list) -> tf.Tensor:
    """What is found for tokens, which `shape` tells, brought to the length of the whole batch."""
    if shape.rank < 2 or shape[1] is not None:
        return output
    return tf.pad(output, [[0, 0], padding, *[[0, 0]] * (shape.rank - 2)])
