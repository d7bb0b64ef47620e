"""Evaluates trained models and writes their predictions: `--mode=eval` and `--mode=predict`."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tasks
from official.config import distillation
from official.data import ShardDataset
from official.data.checks import check_labels
from official.data.mixture import Data, Paths, open_data
from official.distribution import numerics, strategies
from official.evaluation import (
    generated_texts,
    glue_submission,
    language_models,
    notes,
    rankings,
    rows,
)
from official.evaluation.evaluator import Evaluator, Predictor, target_entropy
from official.modeling.model import Model
from official.saving import model_folder, teachers, warm_start
from official.shards import manifest, shard_folder
from official.utils import errors, paths
from official.utils.paths import AnyPath
from official.utils.progress import Report

Source = TypeVar("Source", bound=Data)


def evaluate(
    model_dir: str | os.PathLike,
    data: Paths,
    *,
    split: str | None = None,
    checkpoint: str = "best",
    overrides: Sequence[str] = (),
    strategy: tf.distribute.Strategy | None = None,
    pseudo: bool = False,
    report: Report | None = None,
) -> dict[str, dict[str, float]]:
    """Computes losses and metrics of a trained model.

    Example:
    ```python
    metrics = official.evaluate("run/sst2", "run/sst2-shards")
    metrics["validation"]["accuracy"]
    ```

    Args:
      model_dir: the model folder.
      data: a folder of shards, or a list of folders, one for each task of the model.
      split: the name of a split, such as `validation`; None = all validation splits of a task,
        or the held-out text of pretraining shards.
      checkpoint: `best`, `last`, a step or a path.
      overrides: `key=value` strings that change the model's config.
      strategy: where to compute; None = one device.
      pseudo: whether to compute the pseudo-perplexity of a masked LM as well, on one device.
      report: is called with lines of progress; None = there are none.

    Returns:
      {split: {metric: value}}.

    Raises:
      UserError: the data does not suit the model.
    """
    trained = TrainedModel.open(model_dir, checkpoint, overrides, strategy)
    metrics_by_split = {}
    splits = trained.splits(data, split, "validation", single=False)
    with strategies.lost_workers(trained.strategy):
        opened = ((name, open_data(data, trained.config, name)) for name in splits)
        for name, source, model in trained.restored(opened, predicting=False):
            evaluator = trained.evaluator(model, report)
            metrics_by_split[name] = metrics = evaluator.run(source)
            if report is not None:
                for line in notes.of_source(source):
                    report(line)
            if entropy := target_entropy(source, evaluator.batch_size):
                metrics["target_entropy"] = entropy
            if pseudo:
                folders = data if isinstance(data, str | os.PathLike) else list(data)
                bare = ShardDataset(folders, language_models.reading_config(trained.config), name)
                metrics |= language_models.pseudo_perplexity(
                    model, bare, evaluator.batch_size, report
                )
    return metrics_by_split


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
    report: Report | None = None,
) -> None:
    """Writes the predictions of a trained model.

    Example:
    ```python
    official.predict("run/sst2", "run/sst2-shards", "predictions.tsv", split="test")
    ```

    Args:
      model_dir: the model folder.
      data: a folder of shards.
      output: the file, or the folder of answers; see `write_predictions`.
      submission: whether `output` is a folder for GLUE's submission files.
      split: the name of a split; None = `test`, or for a submission all test splits.
      checkpoint: `best`, `last`, a step or a path.
      overrides: `key=value` strings that change the model's config.
      top_k: the maximum number of documents of a query, for rankings; 0 = all.
      strategy: where to compute; None = one device.
      report: is called with lines of progress; None = there are none.

    Raises:
      UserError: the data does not suit the model, or the output cannot be written.
    """
    trained = TrainedModel.open(model_dir, checkpoint, overrides, strategy)
    splits = trained.splits(data, split, "test", single=not submission)
    with strategies.lost_workers(trained.strategy):
        opened = ((name, ShardDataset(data, trained.config, name)) for name in splits)
        for _, source, model in trained.restored(opened, predicting=True):
            evaluator = trained.evaluator(model, report)
            if submission:
                write_submission(evaluator, source, output)
            else:
                write_predictions(evaluator, source, output, top_k)


def write_predictions(
    evaluator: Predictor, source: ShardDataset, output: str | os.PathLike, top: int = 0
) -> int:
    """Writes the predictions of a split in the order of the source file.

    For a classification, each line has the number of the row (from 0), the label and the
    probability of each class. A choice has the letters of the choices instead of classes. A
    regression has the number of the row and the score. Tasks of text to text have the text that is
    generated, and the label that it is. `.tsv` has a header line; in `.jsonl` every
    line is an object. A ranking is written as a TREC run with the best candidates of each query
    first. Of texts whose vectors are compared, the cosines of the first text with the others are
    written. Answers to questions are written to a folder: see `span_answers.Scorer.write`.

    Args:
      evaluator: the evaluator of the model, or of an ensemble. All workers call this function, the
        chief writes.
      source: the examples of the split, opened with `training=False`.
      output: the file to write, `.tsv` or `.jsonl`; `.run` for a ranking; a folder for answers.
      top: the maximum number of documents of a query, for rankings; 0 = all candidates.

    Returns:
      The number of rows or of questions.

    Raises:
      UserError: the file has another suffix, the model has no predictions, the data has no row
        numbers, or the folder exists.
    """
    scorer = evaluator.scorer(source)
    if top and not isinstance(scorer, rankings.Scorer):
        kind = source.task.kind
        raise errors.UserError(f"--top_k={top}: not supported for a {kind} task; remove --top_k")
    scorer.check_output(paths.path(output))
    outputs = evaluator.predict(source, scorer.outputs)
    if strategies.is_chief(evaluator.strategy):
        if isinstance(scorer, rankings.Scorer):
            scorer.write(outputs, paths.path(output), top)
        else:
            scorer.write(outputs, paths.path(output))
    return len(np.unique(outputs["row"]))


def write_submission(evaluator: Predictor, source: ShardDataset, folder: str | os.PathLike) -> None:
    """Writes the predictions of a split in the format of GLUE: see `official.commands.submission`.

    Args:
      evaluator: the evaluator of the model, or of an ensemble. All workers call this function, the
        chief writes.
      source: the examples of the split.
      folder: the folder of the file. GLUE determines the name of the file.

    Raises:
      UserError: see `predict` and `official.evaluation.glue_submission.write`.
    """
    if source.task.kind == "embedding":
        raise errors.UserError(
            f"--submission has classes and scores, and the model of {source.task.name} compares "
            "vectors: write their cosines with --output"
        )
    glue_submission.check(source.task.name, source.split)
    scorer = evaluator.scorer(source)
    outputs = evaluator.predict(source, scorer.outputs)
    numbers, outputs = rows.in_order(outputs, source)
    if isinstance(scorer, generated_texts.Scorer):
        outputs = scorer.classes_or_scores(outputs)
    if strategies.is_chief(evaluator.strategy):
        task = source.task.name
        glue_submission.write(folder, task, source.split, numbers, outputs)


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A model folder that is evaluated.

    Attributes:
      model_dir: the model folder.
      checkpoint: `best`, `last`, a step or a path.
      config: the config of the model with overrides.
      strategy: where to compute.
    """

    model_dir: AnyPath
    checkpoint: str
    config: configs.ResolvedConfig
    strategy: tf.distribute.Strategy

    @classmethod
    def open(
        cls,
        model_dir: str | os.PathLike,
        checkpoint: str,
        overrides: Sequence[str],
        strategy: tf.distribute.Strategy | None,
    ) -> "TrainedModel":
        """Loads the config, and sets the precision of the SavedModel: mixed is for training."""
        config = model_folder.config_of(model_dir, overrides)
        numerics.set_precision(config.recipe.weights_dtype)
        strategy = strategy or tf.distribute.get_strategy()
        return cls(paths.path(model_dir), checkpoint, config, strategy)

    def evaluator(self, model: Model, report: Report | None) -> Evaluator:
        """Returns the evaluator of a model. The chief reports its progress."""
        chief = strategies.is_chief(self.strategy)
        return Evaluator(self.config, model, self.strategy, report=report if chief else None)

    def splits(self, data: Paths, split: str | None, kind: str, single: bool) -> list[str]:
        """Returns the split that is named, or the splits of a kind that all folders have.

        Args:
          data: the folders of shards.
          split: the name of a split; None = choose.
          kind: `validation` or `test`.
          single: whether to choose one split only.
        """
        if split:
            return [split]
        if self.config.segments or single:
            return ["train" if self.config.segments and kind == "validation" else kind]
        folders = [data] if isinstance(data, str | os.PathLike) else data
        common = set.intersection(
            *({shard.split for shard in manifest.read(folder).shards} for folder in folders)
        )
        return [name for name in tasks.SPLITS if name.startswith(kind) and name in common] or [kind]

    def restored(
        self, splits: Iterable[tuple[str, Source]], predicting: bool
    ) -> Iterator[tuple[str, Source, Model]]:
        """Yields each split, checked against the model, and the model with its weights."""
        trained_memory = _memory_length(model_folder.config_of(self.model_dir))
        model = None
        for split, source in splits:
            source.check(self.config, self.strategy.num_replicas_in_sync, predicting)
            check_labels(self.config, source.manifest, source.folder)
            if _memory_length(self.config) != trained_memory:
                # Held-out text may be shorter than the memory of training, but must fill a longer
                # memory.
                shard_folder.check_memory(source.folder, self.config, source.manifest)
            source.check_tokenizer(self.model_dir / "tokenizer")
            flags = {"--mode": "predict" if predicting else "eval", "--split": split}
            strategies.check_run(self.strategy, self.config, flags, {"--data": source})
            if model is None:
                model = strategies.build_model(self.config, self.strategy)
                warm_start.start_from(model, str(self.model_dir), self.checkpoint, "all")
                if not predicting:
                    self._attach_teachers(model, source)
            yield split, source, model

    def _attach_teachers(self, model: Model, source: Data) -> None:
        """Loads the teachers of a student if their folders exist, for the distillation terms."""
        objective = distillation.find(self.config)
        if objective is None or objective.cache:
            return
        gone = [folder for folder in objective.teachers if not paths.path(folder).exists()]
        if gone:
            errors.warn(
                f"{', '.join(gone)}: no such folder: without teacher, no distillation terms"
            )
            return
        teachers.attach(
            model,
            teachers.described(self.config),
            source.tokenizer,
            source.manifest.max_length,
            self.strategy.scope,
        )


def _memory_length(config: configs.ResolvedConfig) -> int:
    return config.encoder.memory_length
