"""Computes the states of all layers of an encoder for task shards, so that heads need no encoder.

Shapes: B batch, T length, N examples, K layers with the token layer, D hidden.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from official import config as configs
from official.data import ShardDataset, each_batch
from official.distribution.numerics import restrict_graph_optimizer
from official.modeling.model import Model
from official.saving import model_folder, named_arrays
from official.shards import layer_states, manifest
from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.progress import Progress


def checksum(model: Model) -> str:
    """Returns the SHA-256 of the weights of a model's encoder in float32, without its pooler."""
    arrays = {
        path: np.asarray(array, np.float32)
        for path, array in named_arrays.values(model.variables_by_path()).items()
        if path.startswith("encoder/") and not path.startswith("encoder/pooler/")
    }
    return named_arrays.digest(arrays, None)


def write(
    model_dir: str | os.PathLike,
    data: str | os.PathLike,
    splits: Sequence[str],
    output: str | os.PathLike,
    *,
    checkpoint: str = "best",
    batch_size: int = 64,
    report: Callable[[str], None] = print,
) -> None:
    """Writes the states of all layers for splits of a shard folder of a task.

    Args:
      model_dir: the model folder with the encoder.
      data: the shard folder.
      splits: the splits; () = all.
      output: the folder to create; see `official.shards.layer_states`.
      checkpoint: the checkpoint of the model.
      batch_size: examples of a batch.
      report: takes the lines to print.

    Raises:
      UserError: the data does not suit the encoder, or its examples have several sequences.
    """
    atomic.check_new(output)
    config, _, model = model_folder.restore(model_dir, checkpoint)
    recipe = configs.Recipe.of_one_pass(batch_size)
    reading = dataclasses.replace(
        config, segments=None, corruption=None, objectives=(), recipe=recipe
    )
    restrict_graph_optimizer()
    encoded = _encoder(model)
    names = splits or _splits(data)
    sources = {split: _source(model_dir, data, reading, split) for split in names}
    with atomic.folder(output, layer_states.FILE) as temporary:
        writer = layer_states.Writer(temporary, str(model_dir), checksum(model))
        for split, source in sources.items():
            progress = Progress(source.num_examples, report, f"{split}: ", "examples")
            batches = _states(encoded, source, batch_size, progress)
            shape = config.encoder.num_states, config.encoder.hidden_size
            lengths = _lengths(source, batch_size)
            writer.write(split, source.fingerprint, lengths, shape, batches)
            report(f"{split}: {source.num_examples:,} examples, {lengths.sum():,} tokens")
        writer.finish()


def _source(
    model_dir: str | os.PathLike,
    data: str | os.PathLike,
    reading: configs.ResolvedConfig,
    split: str,
) -> ShardDataset:
    """Opens a split, and checks that it suits the encoder."""
    source = ShardDataset(data, reading, split, numbered=True)
    source.check_tokenizer(paths.path(model_dir) / "tokenizer")
    source.check(reading, predicting=True)
    if "text_mask" in source.fields:
        raise UserError(
            f"{data}: an example of {source.task_name} has several sequences: the states of all "
            "layers are supported only for examples with one sequence"
        )
    return source


def _states(
    encoded: Callable[[dict[str, tf.Tensor]], tf.Tensor],
    source: ShardDataset,
    batch_size: int,
    progress: Progress,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the numbers of the examples of each batch, and the states of their tokens."""
    for numbers, batch in _numbered(source, batch_size):
        yield numbers, encoded(batch).numpy()
        progress(len(numbers))


def _splits(data: str | os.PathLike) -> list[str]:
    """Returns the names of the splits of a shard folder that have examples."""
    shards = manifest.read(paths.path(data)).shards
    return list(dict.fromkeys(shard.split for shard in shards if shard.records))


def _encoder(model: Model) -> Callable[[dict[str, tf.Tensor]], tf.Tensor]:
    """Returns the graph from a batch to the states of its real tokens: [tokens, K, D]."""

    def states(batch):
        encoded = model.encode(batch, output_all=True)
        real = batch["padding_mask"] & (batch["example_number"] >= 0)[:, None]
        return tf.boolean_mask(tf.stack(encoded["hidden_states"], axis=2), real)

    return tf.function(states, autograph=False, reduce_retracing=True)


def _numbered(
    source: ShardDataset, batch_size: int
) -> Iterator[tuple[np.ndarray, dict[str, tf.Tensor]]]:
    """Yields each batch after the numbers of its examples, without those that fill it."""
    for batch in each_batch(source, batch_size):
        numbers = batch["example_number"].numpy()
        yield numbers[numbers >= 0], batch


def _lengths(source: ShardDataset, batch_size: int) -> np.ndarray:
    """Returns the number of tokens of each example: int32 [N]."""
    lengths = np.zeros(source.num_examples, np.int32)
    for numbers, batch in _numbered(source, batch_size):
        tokens = batch["padding_mask"].numpy().sum(axis=1)
        lengths[numbers] = tokens[batch["example_number"].numpy() >= 0]
    return lengths
