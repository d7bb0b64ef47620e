"""Compares the metrics of the validation split in float32 and in the precision of an export."""

import os

import tensorflow as tf

from official import config as configs
from official.data import ShardDataset
from official.data.checks import check_labels
from official.evaluation.evaluator import Evaluator
from official.modeling.model import Model
from official.saving import model_folder
from official.serving import precision as precisions
from official.serving.served_model import with_one_head
from official.utils import paths
from official.utils.paths import AnyPath


def compare(
    model_dir: str | os.PathLike,
    data: str | os.PathLike,
    precision: str,
    checkpoint: str = "best",
    task: str | None = None,
) -> dict[str, dict[str, float]]:
    """Evaluates a model in `float32` and in another precision.

    Args:
      model_dir: the model folder.
      data: shards of the model's task with a validation split.
      precision: one of `official.serving.PRECISIONS`.
      checkpoint: as in `official.saving.model_folder.restore`.
      task: the name of the head, for a model of several tasks.

    Returns:
      {precision: {metric: value}}, with the metrics of `--mode=eval`.

    Raises:
      UserError: there is no such model, or the data belongs to another task.
    """
    results = {}
    for name in dict.fromkeys(("float32", precision)):
        config, _, model = model_folder.restore(model_dir, checkpoint, name)
        config = with_one_head(config, model, task)
        if name == "int8":
            precisions.round_weights(model)
        results[name] = _metrics(config, model, paths.path(model_dir), str(data))
    return results


def check(model_dir: str | os.PathLike, data: str | os.PathLike, task: str | None = None) -> None:
    """Checks what `compare` needs of the data, before an export.

    Raises:
      UserError: the data does not suit the model.
    """
    config = model_folder.config_of(model_dir)
    if task is None:
        _source(config, paths.path(model_dir), str(data))
    else:
        ShardDataset(data, config, "validation")


def _source(config: configs.Config, model_dir: AnyPath, data: str) -> ShardDataset:
    source = ShardDataset(data, config, "validation")
    source.check(config)
    check_labels(config, source.manifest, data)
    source.check_tokenizer(model_dir / "tokenizer")
    return source


def _metrics(
    config: configs.Config, model: Model, model_dir: AnyPath, data: str
) -> dict[str, float]:
    source = _source(config, model_dir, data)
    return Evaluator(config, model, tf.distribute.get_strategy()).run(source)


def table(results: dict[str, dict[str, float]]) -> str:
    """Returns the result of `compare` as a table with a line for each metric."""
    lines = ["".join([f"{'validation':24}", *(f"{name:>12}" for name in results)])]
    for name in next(iter(results.values())):
        values = (metrics[name] for metrics in results.values())
        lines.append("".join([f"{name:24}", *(f"{value:12.6f}" for value in values)]))
    return "\n".join(lines)
