"""Evaluates the mean of several models and writes its predictions: `official.commands.ensemble`.

Each member reads shards that were made with its own tokenizer, one model at a time, and the outputs
are matched by the numbers of the rows. Members that read windows, of spans and of tags, read the
same shards together, and the outputs of each token are averaged.

Shapes: B rows, C outputs of a row.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official.data import ShardDataset
from official.evaluation import notes, rows
from official.evaluation.evaluator import Outputs, ReplicaLoop, Scorer
from official.evaluation.run import TrainedModel, write_predictions, write_submission
from official.modeling.model import Model
from official.modeling.objectives import ensembles as means
from official.modeling.objectives.base import Objective
from official.saving import ensembles
from official.shards import manifest
from official.tasks import kinds
from official.utils.errors import UserError
from official.utils.progress import Report

Folders = Sequence[str | os.PathLike]


class Metrics(NamedTuple):
    """The metrics of a split by their names, of the ensemble and of each member alone."""

    ensemble: dict[str, float]
    members: tuple[dict[str, float], ...]


def evaluate(
    model_dirs: Folders,
    data: Folders,
    *,
    mean: str | None = None,
    split: str | None = None,
    checkpoint: str = "best",
    report: Report | None = None,
) -> dict[str, Metrics]:
    """Computes the metrics of the task for the mean of several models, and for each of them.

    Args:
      model_dirs: the model folders.
      data: a folder of shards for all of them, or one for each.
      mean: `probabilities` or `logits`; None = `means.default`.
      split: the name of a split; None = all validation splits.
      checkpoint: `best`, `last`, a step or a path.
      report: is called with lines of progress; None = there are none.

    Returns:
      The metrics of each split by its name.

    Raises:
      UserError: the models cannot be one ensemble, the data does not suit one, or the shards of two
        have other rows or labels.
    """
    ensemble = Ensemble(model_dirs, data, mean, checkpoint, report)
    names = ensemble.splits(split, "validation", single=False)
    return {name: ensemble.metrics(ensemble.source(name)) for name in names}


def predict(
    model_dirs: Folders,
    data: Folders,
    output: str | os.PathLike,
    *,
    mean: str | None = None,
    submission: bool = False,
    split: str | None = None,
    checkpoint: str = "best",
    top_k: int = 0,
    report: Report | None = None,
) -> None:
    """Writes the predictions of the mean of several models.

    Args:
      model_dirs: the model folders.
      data: a folder of shards for all of them, or one for each.
      output: the file or the folder; see `official.evaluation.run.write_predictions`.
      mean: `probabilities` or `logits`; None = `means.default`.
      submission: whether `output` is a folder for GLUE's submission files.
      split: the name of a split; None = `test`, or for a submission all test splits.
      checkpoint: `best`, `last`, a step or a path.
      top_k: the maximum number of documents of a query, for rankings; 0 = all.
      report: is called with lines of progress; None = there are none.

    Raises:
      UserError: see `evaluate`, or the output cannot be written.
    """
    ensemble = Ensemble(model_dirs, data, mean, checkpoint, report)
    for name in ensemble.splits(split, "test", single=not submission):
        source = ensemble.source(name)
        if submission:
            write_submission(ensemble, source, output)
        else:
            write_predictions(ensemble, source, output, top_k)


class Ensemble:
    """Predicts, as an `Evaluator` does, by the mean of several models.

    Attributes:
      strategy: where the models compute.
      mean: `probabilities` or `logits`.
    """

    def __init__(
        self,
        model_dirs: Folders,
        data: Folders,
        mean: str | None = None,
        checkpoint: str = "best",
        report: Report | None = None,
    ):
        """Reads the configs, and checks that the models and the data belong together.

        Args:
          model_dirs: the model folders.
          data: a folder of shards for all of them, or one for each.
          mean: `probabilities` or `logits`; None = `means.default`.
          checkpoint: `best`, `last`, a step or a path.
          report: is called with lines of progress; None = there are none.

        Raises:
          UserError: see `evaluate`.
        """
        if len(data) not in (1, len(model_dirs)):
            raise UserError(
                f"--data: {len(data)} folders for {len(model_dirs)} members: give one for all of "
                "them, or one for each, in the order of --model_dir"
            )
        contents = [manifest.read(folder) for folder in data]
        tasks = [c.task_of(str(folder)) for c, folder in zip(contents, data, strict=True)]
        self._members = ensembles.members(model_dirs, tasks[0].name)
        ensembles.check_tasks(
            (str(folder), dataclasses.asdict(task))
            for folder, task in zip(data, tasks, strict=True)
        )
        if self._members[0].windowed and len(data) > 1:
            raise UserError(
                f"--data: members with the head {self._members[0].head.type} read the same "
                "windows: give one folder for all of them"
            )
        self.strategy = tf.distribute.get_strategy()
        self.mean = mean or means.default(self._members[0].head)
        self._trained = [
            TrainedModel.open(member.folder, checkpoint, (), self.strategy)
            for member in self._members
        ]
        self._data = list(data) * (len(model_dirs) // len(data))
        self._report = report
        self._scorer: tuple[ShardDataset, Scorer] | None = None

    def splits(self, split: str | None, kind: str, single: bool) -> list[str]:
        """Returns the names of the splits; see `TrainedModel.splits`."""
        return self._trained[0].splits(self._data[0], split, kind, single)

    def source(self, split: str) -> ShardDataset:
        """Opens a split of the data of the first member, which has the texts of the rows."""
        return self._source(0, split)

    def _source(self, number: int, split: str) -> ShardDataset:
        return ShardDataset(self._data[number], self._trained[number].config, split)

    def scorer(self, source: ShardDataset) -> Scorer:
        """Returns the scorer of a source's task, made once."""
        if self._scorer is None or self._scorer[0] is not source:
            module = kinds.load(kinds.KINDS[source.task.kind].scorer)
            self._scorer = source, module.Scorer(self._trained[0].config, source)
        return self._scorer[1]

    def metrics(self, source: ShardDataset) -> Metrics:
        """Computes the metrics of the task for the ensemble and for each member.

        Raises:
          UserError: the split has no labels, or see `predict`.
        """
        source.check(self._trained[0].config)
        scorer = self.scorer(source)
        if self._report is not None:
            for line in notes.of_source(source):
                self._report(line)
        numbers = range(len(self._members))
        found = self._predictions(source, scorer.outputs, [[*numbers], *([i] for i in numbers)])
        weights = np.ones(len(found[0]["row"]), np.float32)
        ensemble, *members = (
            scorer.metrics({**each, "example_weights": weights}) for each in found
        )
        return Metrics(ensemble, tuple(members))

    def predict(self, source: ShardDataset, names: Sequence[str]) -> Outputs:
        """Predicts the examples of a source; see `Evaluator.predict`.

        Raises:
          UserError: the shards of two members have other rows or labels, or the data does not suit
            a member.
        """
        (found,) = self._predictions(source, names, [range(len(self._members))])
        return {name: found[name] for name in (*names, "row")}

    def _predictions(
        self, source: ShardDataset, names: Sequence[str], groups: Sequence[Sequence[int]]
    ) -> list[Outputs]:
        """Returns the predictions of the mean of each group of members, given by their numbers.

        Returns:
          For each group the predictions and `row`, and the first target of a kind with one target a
          row.
        """
        if self._members[0].windowed:
            return self._of_windows(source, names, groups)
        outputs: list[Outputs] = []
        for number, member in enumerate(self._members):
            own = source if number == 0 else self._source(number, source.split)
            model = self._restored(number, own)
            head = member.head_of(model)
            outputs.append(self._outputs_of(number, model, head, own))
            self._check_rows(outputs[0], outputs[-1], number, source.split)
        prefix = f"{head.config.task}/"
        given = {name: x for name, x in outputs[0].items() if name != "outputs"}
        found = []
        for group in groups:
            mean = means.mean_outputs(head, [outputs[i]["outputs"] for i in group], self.mean)
            predictions = head.predictions_of(mean, {})
            found.append(
                {name.removeprefix(prefix): np.asarray(x) for name, x in predictions.items()}
                | given
            )
        return found

    def _restored(self, number: int, source: ShardDataset) -> Model:
        """Returns the model of a member with its weights, after the checks of its data."""
        given = [(source.split, source)]
        ((_, _, model),) = self._trained[number].restored(given, predicting=True)
        return model

    def _outputs_of(
        self, number: int, model: Model, head: Objective, source: ShardDataset
    ) -> Outputs:
        """Returns the `outputs` of a head [B, C], `row`, and the target, in the order of rows."""
        kind = kinds.KINDS[source.task.kind]
        given = {"row": "row"} | ({rows.target_name(kind): kind.targets[0]} if kind.output else {})

        def step(batch):
            batch = model.prepare(batch, None)
            encoded = model.encode_as_read(batch, objectives=[head])
            found = {name: batch[field] for name, field in given.items() if field in batch}
            return {"outputs": head.matched_outputs(batch, encoded, model.encoder), **found}

        numbers, outputs = rows.in_order(self._run(step, number, source), source)
        return {"row": numbers, **outputs}

    def _of_windows(
        self, source: ShardDataset, names: Sequence[str], groups: Sequence[Sequence[int]]
    ) -> list[Outputs]:
        """Does what `_predictions` does for members that read the same windows, in one step."""
        models = [self._restored(number, source) for number in range(len(self._members))]
        heads = [m.head_of(model) for m, model in zip(self._members, models, strict=True)]

        def step(batch):
            encoded = [
                model.encode_as_read(batch, objectives=[head])
                for model, head in zip(models, heads, strict=True)
            ]
            found = {"row": batch["row"]}
            for number, group in enumerate(groups):
                parts = [(heads[i], models[i].encoder) for i in group]
                states = [encoded[i] for i in group]
                predictions = means.predictions(parts, states, batch, self.mean)
                found |= {f"{number}/{name}": predictions[name] for name in names}
            return found

        found = self._run(step, None, source)
        return [
            {name: found[f"{number}/{name}"] for name in names} | {"row": found["row"]}
            for number in range(len(groups))
        ]

    def _run(
        self,
        step: Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]],
        number: int | None,
        source: ShardDataset,
    ) -> Outputs:
        """Runs a step on all batches of a source; returns its outputs without filler.

        Args:
          step: computes the outputs of a batch.
          number: the member that computes; None = all.
          source: the examples.
        """
        report = self._report
        if report is not None and number is not None:
            member = f"{self._members[number].folder} ({number + 1} of {len(self._members)}): "
            report = functools.partial(_prefixed, report, member)

        def weighted(batch):
            return tf.zeros([0]), step(batch) | {"example_weights": batch["example_weights"]}

        recipe = self._trained[number or 0].config.recipe
        size = recipe.eval_batch_size or recipe.batch_size
        outputs = ReplicaLoop(self.strategy, weighted).run(source, size, report=report)[1]
        real = outputs.pop("example_weights") > 0  # [B]
        return {name: value[real] for name, value in outputs.items()}

    def _check_rows(self, first: Outputs, other: Outputs, number: int, split: str) -> None:
        """Refuses shards that were visibly not made of the same rows.

        Raises:
          UserError: the numbers of the rows, the labels or the candidates differ.
        """
        one, two = (f"{self._data[i]}" for i in (0, number))
        advice = "make the shards of all members from the same files, with the same limits"
        rows_of = [set(each["row"].tolist()) for each in (first, other)]
        if lone := sorted(rows_of[0] ^ rows_of[1]):
            where = (one, two) if lone[0] in rows_of[0] else (two, one)
            raise UserError(
                f"row {lone[0]} of the {split} split is in {where[0]} and not in {where[1]}, and "
                f"{len(lone) - 1:,} more: {advice}"
            )
        for name in sorted(first.keys() & other.keys() - {"row", "outputs"}):
            differ = first[name] != other[name]
            if len(found := np.flatnonzero(differ.reshape(len(differ), -1).any(axis=1))):
                raise UserError(
                    f"row {first['row'][found[0]]} of the {split} split has another "
                    f"{name.removeprefix('true_')} in {one} than in {two}, and {len(found) - 1:,} "
                    f"more: {advice}"
                )
        if first["outputs"].shape != other["outputs"].shape:
            raise UserError(
                f"the {split} split has {first['outputs'].shape[1]} choices a row in {one} and "
                f"{other['outputs'].shape[1]} in {two}: {advice}"
            )
        runs = [manifest.read(folder).candidates.get(f"{split}.run") for folder in (one, two)]
        if runs[0] != runs[1]:
            raise UserError(f"{one} and {two} have other candidates in the {split} split: {advice}")


def _prefixed(report: Report, before: str, line: str) -> None:
    report(f"{before}{line}")
