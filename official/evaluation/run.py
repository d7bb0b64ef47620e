"""Evaluation and prediction from Python: what `--mode=eval` and `--mode=predict` run."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import tensorflow as tf

from official import config as configs
from official import tasks
from official.data import ShardDataset, streams
from official.data.labels import check_labels
from official.data.mixture import Mixture, open_data
from official.distribution import numerics, strategies
from official.evaluation import prediction
from official.evaluation.evaluator import Evaluator, target_entropy
from official.modeling.model import Model
from official.saving import warm_start
from official.shards import manifest

Paths = str | os.PathLike | Sequence[str | os.PathLike]


def evaluate(
    model_dir: str | os.PathLike,
    data: Paths,
    *,
    split: str | None = None,
    checkpoint: str = "best",
    overrides: Sequence[str] = (),
    strategy: tf.distribute.Strategy | None = None,
) -> dict[str, dict[str, float]]:
    """Computes losses and metrics of a trained model.

    Args:
      model_dir: the model folder.
      data: a folder of shards, or a list of them: the tasks that the model learned together.
      split: such as `validation`; None = all validation splits of a task, and the held-out text
        of pretraining shards.
      checkpoint: `best`, `last`, a step or a path.
      overrides: `key=value` each, of the model's config.
      strategy: where to compute; None = one device.

    Returns:
      Metrics by name, by split.

    Raises:
      UserError: the model and the data do not fit together.
    """
    strategy = strategy or tf.distribute.get_strategy()
    config = _config(model_dir, overrides)
    found = {}
    splits = _splits(config, data, split, "validation", whole=False)
    for name, source, model in _opened(
        model_dir, data, config, splits, checkpoint, strategy, predicting=False
    ):
        evaluator = Evaluator(config, model, strategy)
        found[name] = metrics = evaluator.run(source)
        if entropy := target_entropy(source, evaluator.batch_size):
            metrics["target_entropy"] = entropy
    return found


def predict(
    model_dir: str | os.PathLike,
    data: str | os.PathLike,
    output: str | os.PathLike,
    *,
    submission: bool = False,
    split: str | None = None,
    checkpoint: str = "best",
    overrides: Sequence[str] = (),
    top_k: int = 0,
    strategy: tf.distribute.Strategy | None = None,
) -> None:
    """Writes the predictions of a trained model.

    Args:
      model_dir: the model folder.
      data: a folder of shards.
      output: the file, or the folder of answers; see `official.evaluation.prediction.predict`.
      submission: whether `output` is the folder of GLUE's submission files.
      split: such as `test`; None = `test`, or for a submission all test splits.
      checkpoint: `best`, `last`, a step or a path.
      overrides: `key=value` each, of the model's config.
      top_k: of a ranking, the largest number of documents of a query; 0 = all.
      strategy: where to compute; None = one device.

    Raises:
      UserError: the model and the data do not fit together, or the output cannot be written.
    """
    strategy = strategy or tf.distribute.get_strategy()
    config = _config(model_dir, overrides)
    splits = _splits(config, data, split, "test", whole=not submission)
    for _, source, model in _opened(
        model_dir, data, config, splits, checkpoint, strategy, predicting=True
    ):
        evaluator = Evaluator(config, model, strategy)
        if submission:
            prediction.submit(evaluator, source, output)
        else:
            prediction.predict(evaluator, source, output, top_k)


def _config(model_dir: str | os.PathLike, overrides: Sequence[str]) -> configs.Config:
    """Loads the config and sets the precision of the SavedModel: mixed is for training."""
    config = configs.load(model_dir, overrides)
    numerics.set_precision("float64" if config.recipe.precision == "float64" else "float32")
    return config


def _splits(
    config: configs.Config, data: Paths, split: str | None, kind: str, whole: bool
) -> list[str]:
    """Returns the split that is named, or those of a kind that all folders have."""
    if split:
        return [split]
    if config.segments or whole:
        return ["train" if config.segments and kind == "validation" else kind]
    folders = [data] if isinstance(data, str | os.PathLike) else data
    there = set.intersection(
        *({shard.split for shard in manifest.read(folder).shards} for folder in folders)
    )
    return [name for name in tasks.SPLITS if name.startswith(kind) and name in there] or [kind]


def _opened(
    model_dir: str | os.PathLike,
    data: Paths,
    config: configs.Config,
    splits: Sequence[str],
    checkpoint: str,
    strategy: tf.distribute.Strategy,
    predicting: bool,
) -> Iterator[tuple[str, ShardDataset | Mixture, Model]]:
    """Yields each split, checked against the model, and the model with its weights."""
    trained = configs.load(model_dir).encoder
    model = None
    for split in splits:
        source = open_data(data, config, split)
        source.check(config, strategy.num_replicas_in_sync, predicting)
        check_labels(config, source.manifest, source.folder)
        if getattr(config.encoder, "memory_length", 0) != getattr(trained, "memory_length", 0):
            # Held-out text may be shorter than the memory of training, but a longer memory has to
            # be filled.
            streams.check_memory(source.folder, config, source.manifest)
        source.check_tokenizer(Path(model_dir) / "tokenizer")
        if model is None:
            model = strategies.build_model(config, strategy)
            warm_start.start_from(model, str(model_dir), checkpoint, "all")
        yield split, source, model
