"""Masks examples when the shards are written, instead of when they are read.

Shapes: B rows of a batch, E examples in them, L tokens of all examples, T tokens of an example with
padding, P predictions with padding.
"""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from official import config, tokenizers
from official.corruption.vocabulary import Vocabulary
from official.shards import example_bytes, token_counts
from official.utils import paths, seeding
from tfrecords_tools.pretraining.settings import Settings


def masker(settings: Settings, tokenizer: tokenizers.Tokenizer) -> Callable:
    """Returns a function that masks examples with the corruption of the settings.

    The function takes token features, concatenated [L], a padding mask [E, T], and for each example
    the number of its copy, int64 [E], and its own number, uint64 [E]. It returns the masked batch.
    """
    corruption = config.module_of(settings.corruption)
    counts = None
    if settings.token_counts:
        with paths.local_copy(paths.join(settings.token_counts, token_counts.FILE)) as path:
            counts = np.load(path)
    vocabulary = Vocabulary.from_tokenizer(tokenizer, counts, settings.corruption)
    max_length = settings.segments.max_length
    fields = {"token_ids": tf.int32, "padding_mask": tf.bool}
    fields |= dict.fromkeys(settings.corruption.needs(), tf.bool)

    @tf.function(
        input_signature=[
            {name: tf.TensorSpec([None, max_length], dtype) for name, dtype in fields.items()},
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None], tf.uint64),
        ],
        autograph=False,
    )
    def corrupt(batch, copies, numbers):
        seeds = seeding.row_seeds(settings.seed, copies, numbers)
        return corruption.corrupt(settings.corruption, vocabulary, batch, seeds)

    def mask(values, padding_mask, copies, numbers):
        batch = {"padding_mask": padding_mask}
        for name in fields.keys() & values.keys():
            fill = tokenizer.pad_id if name == "token_ids" else False
            batch[name] = np.full(padding_mask.shape, fill, values[name].dtype)
            batch[name][padding_mask] = values[name]
        return {name: value.numpy() for name, value in corrupt(batch, copies, numbers).items()}

    return mask


def columns(
    masked: Mapping[str, np.ndarray],
    padding_mask: np.ndarray,
    part_splits: np.ndarray,
    parts: np.ndarray,
) -> dict[str, example_bytes.Column]:
    """Returns the features that static masks change or add.

    Args:
      masked: the masked batch, token_ids int32 [E, T], masked_positions, masked_ids and
        masked_weights [E, P].
      padding_mask: bool [E, T].
      part_splits: the row splits of the examples among their tokens, [E + 1].
      parts: the row splits of the rows among the examples, [B + 1].
    """
    row_splits = part_splits[parts]
    times = masked["masked_weights"].astype(np.int64)  # [E, P]: how often each is listed.
    starts = np.concatenate([[0], np.cumsum(times.sum(axis=1))])[parts]
    before = part_splits[:-1] - np.repeat(row_splits[:-1], np.diff(parts))  # [E]: in the same row.
    positions = masked["masked_positions"] + before[:, None]
    return {
        "token_ids": (masked["token_ids"][padding_mask], row_splits),
        "masked_positions": (np.repeat(positions, times.ravel()), starts),
        "masked_ids": (np.repeat(masked["masked_ids"], times.ravel()), starts),
    }
