"""Computes the outputs of teachers for task shards, so that students need no teacher.

Shapes: N examples, K teachers, C outputs.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from official import config as configs
from official.config.distillation import EXAMPLE_HEADS
from official.config.parts import ObjectiveConfig
from official.data import ShardDataset
from official.evaluation.evaluator import ReplicaLoop, check_count
from official.saving import model_folder, teachers
from official.shards import teacher_outputs
from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath


def write(
    folders: Sequence[str],
    data: str | os.PathLike,
    splits: Sequence[str],
    output: str | os.PathLike,
    *,
    checkpoint: str = "best",
    batch_size: int = 64,
    report: Callable[[str], None] = print,
) -> None:
    """Writes the outputs of one or more teachers for splits of a shard folder.

    Args:
      folders: the model folders of the teachers, in the order of `distillation.teachers`.
      data: the shard folder of a task.
      splits: the splits.
      output: the folder to create.
      checkpoint: the checkpoint of the teachers.
      batch_size: examples of a batch.
      report: takes the lines to print.

    Raises:
      UserError: a teacher has no head of a task, the data does not suit it, or the outputs of two
        teachers are not alike.
    """
    atomic.check_new(output)
    heads = {folder: _head(model_folder.config_of(folder), folder) for folder in folders}
    _check_alike(heads)
    sources = {
        folder: [_source(folder, head, data, split, batch_size) for split in splits]
        for folder, head in heads.items()
    }
    found: dict[str, list[np.ndarray]] = {split: [] for split in splits}
    fingerprints = {}
    for folder, head in heads.items():
        config, _, model = model_folder.restore(folder, checkpoint)
        layer = model.objectives[config.objectives.index(head)]
        for split, source in zip(splits, sources[folder], strict=True):
            fingerprints[split] = source.fingerprint
            found[split].append(_outputs(model, layer, source, batch_size, report))
            report(f"{folder}: {split}: {source.num_examples:,} examples")
    teacher_outputs.write(
        output,
        next(iter(heads.values())).type,
        {folder: teachers.checksum(folder, checkpoint) for folder in folders},
        {split: (fingerprints[split], np.stack(rows, axis=1)) for split, rows in found.items()},
    )


def _head(config: configs.ResolvedConfig, folder: str) -> ObjectiveConfig:
    """Returns the only objective of a teacher that has outputs for each example."""
    heads = config.of_types(*EXAMPLE_HEADS)
    if len(heads) != 1:
        types = ", ".join(o.type for o in config.objectives) or "none"
        raise UserError(
            f"--teacher: {folder} has the objectives {types}: outputs can be written for one of "
            f"{', '.join(EXAMPLE_HEADS)}. A teacher with others has to run beside the student"
        )
    return heads[0]


def _check_alike(heads: Mapping[str, ObjectiveConfig]) -> None:
    """Refuses teachers whose outputs cannot be averaged, before any of them runs."""
    kinds = {(head.type, head.num_outputs or 1) for head in heads.values()}
    if len(kinds) > 1:
        shown = ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds))
        raise UserError(
            f"--teacher: {', '.join(heads)} have outputs that cannot be averaged ({shown}): name "
            "teachers of one task"
        )


def _source(
    folder: str, head: ObjectiveConfig, data: str | os.PathLike, split: str, batch_size: int
) -> ShardDataset:
    """Opens a split, and checks that it suits a teacher."""
    reading = _reading(model_folder.config_of(folder), head, batch_size)
    source = ShardDataset(data, reading, split, numbered=True)
    teachers.check_data(folder, source.tokenizer, source.max_length)
    return source


def _reading(
    config: configs.ResolvedConfig, head: ObjectiveConfig, batch_size: int
) -> configs.ResolvedConfig:
    """Returns a config that reads shards with or without labels, in batches of similar lengths."""
    if head.type in (
        "classification",
        "multi_label",
        "regression",
    ):  # the heads that may lack labels
        head = dataclasses.replace(head, weight=0.0, task="")
    recipe = configs.Recipe.of_one_pass(batch_size)
    return dataclasses.replace(config, objectives=(head,), recipe=recipe)


def _outputs(
    model, head, source: ShardDataset, batch_size: int, report: Callable[[str], None]
) -> np.ndarray:
    """Returns the outputs of a head for all examples of a source: float32 [N, C]."""

    def step(batch):
        batch = model.prepare(batch)
        encoded = model.encode_as_read(batch, objectives=[head])
        rows = head.matched_outputs(batch, encoded, model.encoder)
        return tf.zeros([0]), {"outputs": rows, "numbers": batch["example_number"]}

    loop = ReplicaLoop(tf.distribute.get_strategy(), step)
    gathered = loop.run(source, batch_size, report=report)[1]
    numbers = gathered["numbers"]  # -1 in rows that fill the last batch
    outputs = np.zeros((source.num_examples, gathered["outputs"].shape[1]), np.float32)
    check_count(source, len(np.unique(numbers[numbers >= 0])))
    outputs[numbers[numbers >= 0]] = gathered["outputs"][numbers >= 0]
    return outputs


def default_output(data: str | os.PathLike) -> AnyPath:
    """Returns the folder beside the shards that outputs are written to by default."""
    path = paths.path(data)
    return path.with_name(f"{path.name}-teacher")
