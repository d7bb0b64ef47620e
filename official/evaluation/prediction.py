"""Predictions of a whole split, written beside nothing but the number of the row they are for.

Shapes: B examples of a batch, C classes.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from official.distribution import strategies
from official.distribution.numerics import keep_order_of_sums
from official.distribution.strategies import distribute
from official.evaluation import glue_submission, span_answers
from official.shards import candidates
from official.tasks import trec
from official.utils import atomic
from official.utils.errors import UserError

SUFFIXES = (".tsv", ".jsonl")
RUN_SUFFIX = ".run"


def predict(
    model: Any,
    config: Any,
    source: Any,
    strategy: tf.distribute.Strategy,
    output: str | os.PathLike,
    top: int = 0,
) -> int:
    """Writes the predictions of a split, one line a row, in the order of the source file.

    A classification gives the number of the row (from 0), the label and the probability of every
    class; a choice the same of the letters of its choices; a regression the number of the row and
    the score. `.tsv` has a header line; in `.jsonl` every line is an object. A ranking is written
    as a TREC run, the candidates of each query from the best on. Answers to questions come into a
    folder: see `answers.Answers.save`.

    Args:
      model: an `official.modeling.model.Model` with a classification, regression, multiple_choice
        or span objective.
      config: its config.
      source: an `official.data.Source` of the split, opened with `training=False`.
      strategy: where the model computes; all workers call this, the chief writes.
      output: the file to write, `.tsv` or `.jsonl`; of a ranking `.run`; of spans the folder.
      top: of a ranking, the most documents of a query; 0 = all its candidates.

    Returns:
      The number of rows, or of questions.

    Raises:
      UserError: another file ending, a model that predicts nothing, or data without rows; a folder
        that is there.
    """
    output = Path(output)
    if (source.manifest.task or {}).get("kind") == "ranking":
        return _rerank(model, config, source, strategy, output, top)
    if top:
        raise UserError(f"--top_k={top}: is of rankings, and this is no ranking: leave it out")
    if (source.manifest.task or {}).get("kind") == "span":
        return _predict_spans(model, config, source, strategy, output)
    if output.suffix not in SUFFIXES:
        raise UserError(f"{output}: predictions are written as {' or '.join(SUFFIXES)}: name one")
    rows, outputs = _in_order(model, config, source, strategy)
    if strategies.is_chief(strategy):
        labels = _labels(config, source)
        with atomic.file(output) as stream:
            write = _write_tsv if output.suffix == ".tsv" else _write_jsonl
            write(stream, rows, outputs, labels)
    return len(rows)


def submit(
    model: Any,
    config: Any,
    source: Any,
    strategy: tf.distribute.Strategy,
    folder: str | os.PathLike,
) -> None:
    """Writes what GLUE takes as the predictions of a split: see `official.submission`.

    Args:
      model: as for `predict`.
      config: its config.
      source: of the split.
      strategy: where the model computes; all workers call this, the chief writes.
      folder: where the file goes, whose name the benchmark has given.

    Raises:
      UserError: as `predict` and `official.evaluation.glue_submission.write`.
    """
    rows, outputs = _in_order(model, config, source, strategy)
    if strategies.is_chief(strategy):
        glue_submission.write(folder, source.manifest.task["name"], source.split, rows, outputs)


def _rerank(
    model: Any, config: Any, source: Any, strategy: tf.distribute.Strategy, output: Path, top: int
) -> int:
    """Writes the candidates of a split as a TREC run, and returns how many were scored."""
    if output.suffix != RUN_SUFFIX:
        raise UserError(f"{output}: rankings are written as TREC runs: name a file {RUN_SUFFIX}")
    listed = candidates.read(Path(source.folder), source.manifest, source.split)
    rows, outputs = _in_order(model, config, source, strategy)
    if strategies.is_chief(strategy):
        with atomic.file(output) as stream:
            trec.write_run(stream, listed.run(rows, outputs["score"]), config.name, top)
    return len(rows)


def _in_order(
    model: Any, config: Any, source: Any, strategy: tf.distribute.Strategy
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The numbers of the rows, rising, and the predictions in that order."""
    outputs = _gather(model, config, source, strategy)
    rows, order = np.unique(outputs.pop("row"), return_index=True)
    if len(rows) != source.num_examples:
        raise UserError(
            f"{len(rows):,} predictions for the {source.num_examples:,} examples of the "
            f"{source.split} split: rows are numbered twice; give one shard folder, made by "
            "build_task_shards"
        )
    return rows, {name: values[order] for name, values in outputs.items()}


def _predict_spans(
    model: Any, config: Any, source: Any, strategy: tf.distribute.Strategy, output: Path
) -> int:
    if output.suffix in SUFFIXES or output.exists():
        what = "is there already" if output.exists() else "is the name of a file"
        files = ", ".join(span_answers.FILES)
        raise UserError(
            f"{output}: {what}: answers are written into a new folder ({files}): name one"
        )
    found = span_answers.Answers(config, source)
    outputs = _gather(model, config, source, strategy, span_answers.OUTPUTS)
    every = found.find({**outputs, "example_weights": np.ones(len(outputs["row"]))})
    if strategies.is_chief(strategy):
        found.save(every, output)
    return len(every)


def _gather(
    model: Any,
    config: Any,
    source: Any,
    strategy: tf.distribute.Strategy,
    names: tuple[str, ...] = (),
) -> dict[str, np.ndarray]:
    """Row numbers and predictions of the real examples, in the order they came.

    The predictions are those of `names`, or else the one of a classification or a regression.
    """
    keep_order_of_sums()  # so that predictions are the same before and after an evaluation

    def on_replica(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        batch = model.prepare(batch, None)
        head = f"{source.task_name}/"  # of this task, where the model has several
        found = {k.removeprefix(head): value for k, value in model.predictions(batch).items()}
        known = names or ("probabilities", "score")
        wanted = {name: found[name] for name in known if name in found}
        if len(wanted) != max(1, len(names)):
            raise UserError(
                "this model has no classification, regression or ranking objective (or several), "
                f"so there is no prediction to write; its outputs are {', '.join(found) or 'none'}"
            )
        if "row" not in batch:
            raise UserError(
                f"the {source.split} split has no row numbers: predictions want the shards of a "
                "task, made by build_task_shards"
            )
        return {**wanted, "row": batch["row"], "example_weights": batch["example_weights"]}

    @tf.function(autograph=False, reduce_retracing=True)
    def step(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs = strategy.run(on_replica, args=(batch,))
        return {name: strategy.gather(value, axis=0) for name, value in outputs.items()}

    batch_size = config.recipe.eval_batch_size or config.recipe.batch_size
    gathered: list[dict[str, np.ndarray]] = []
    for batch in distribute(strategy, source, batch_size):
        outputs = {name: value.numpy() for name, value in step(batch).items()}
        real = outputs.pop("example_weights") > 0  # [B]
        gathered.append({name: value[real] for name, value in outputs.items()})
    return {name: np.concatenate([part[name] for part in gathered]) for name in gathered[0]}


def _labels(config: Any, source: Any) -> list[str]:
    """The names of the classes: the model's own, or those of the data."""
    for objective in config.objectives:
        mine = getattr(objective, "task", "") in ("", source.task_name)
        if mine and (labels := getattr(objective, "labels", ())):
            return list(labels)
    return list(source.manifest.task["labels"])


def _write_tsv(stream: Any, rows: np.ndarray, outputs: dict, labels: list[str]) -> None:
    if "score" in outputs:
        stream.write("row\tscore\n")
        stream.writelines(
            f"{row}\t{score!s}\n" for row, score in zip(rows, outputs["score"], strict=True)
        )
        return
    stream.write("\t".join(["row", "label", *(f"probability:{label}" for label in labels)]) + "\n")
    for row, probabilities in zip(rows, outputs["probabilities"], strict=True):
        label = labels[int(probabilities.argmax())]
        stream.write("\t".join([str(row), label, *map(str, probabilities)]) + "\n")


def _write_jsonl(stream: Any, rows: np.ndarray, outputs: dict, labels: list[str]) -> None:
    def line(row: int, values: np.ndarray) -> dict:
        # By way of text: the shortest that gives the same float32 again, as in TSV.
        if "score" in outputs:
            return {"row": row, "score": float(str(values))}
        numbers = [float(str(value)) for value in values]
        return {
            "row": row,
            "label": labels[int(values.argmax())],
            "probabilities": dict(zip(labels, numbers, strict=True)),
        }

    (values,) = outputs.values()
    for row, value in zip(rows.tolist(), values, strict=True):
        stream.write(json.dumps(line(row, value), ensure_ascii=False) + "\n")
