"""Metrics and predictions of rows that are compared with each other (`official.tasks.best_rows`).

The best row of a group is the first one with the highest score. It gets the label of the best rows
(`Description.best`), and all other rows get the other label. A row that is alone in its group is
the best one if its score is above the `threshold` of the objective. A row without an example is
never the best one.

Shapes: B examples, R rows of the file, C = 2 labels.
"""

import collections
import json
from collections.abc import Mapping

import numpy as np

from official import config as configs
from official.data import ShardDataset
from official.evaluation import rows
from official.shards import side_texts
from official.shards.side_texts import ComparedRow
from official.utils import atomic, paths
from official.utils.paths import AnyPath


class Scorer:
    """See `official.evaluation.evaluator.Scorer`."""

    outputs = ("score",)

    def __init__(self, config: configs.ResolvedConfig, source: ShardDataset):
        self._source = source
        heads = [o for o in config.objectives if hasattr(o, "threshold")]
        self._threshold = heads[0].threshold or 0.0 if heads else 0.0

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Computes the accuracy of all rows, and of those that are compared with others.

        Raises:
          UserError: the split has no labels.
        """
        real = outputs["example_weights"] > 0
        compared = self._compared()
        best = best_rows(compared, self._scores(outputs, real), self._threshold)
        if any(each.best is None for each in compared if each.row is not None):
            raise rows.nothing_to_compare(f"labels of the task {self._source.task.name}")
        sizes = collections.Counter(each.group for each in compared)
        hits = [
            (flag == each.best, each.group is not None and sizes[each.group] > 1)
            for each, flag in zip(compared, best, strict=True)
            if each.row is not None
        ]
        several = [hit for hit, among in hits if among]
        found = {
            "accuracy": float(np.mean([hit for hit, _ in hits])),
            "compared_accuracy": float(np.mean(several)) if several else 0.0,
        }
        return {name: found[name] for name in self._source.task.metrics}

    def check_output(self, output: AnyPath) -> None:
        """See `paths.check_suffix`; a split for training is refused."""
        paths.check_suffix(output, "predictions", rows.SUFFIXES)
        self._compared()

    def write(self, outputs: Mapping[str, np.ndarray], output: AnyPath) -> None:
        """Writes the label and the score of each row in the order of the source file."""
        task = self._source.task
        other = next(label for label in task.labels if label != task.best)
        compared = self._compared()
        scores = self._scores(outputs)
        best = best_rows(compared, scores, self._threshold)
        of_rows = iter(map(str, scores))
        with atomic.file(output) as stream:
            if output.suffix == ".tsv":
                stream.write("row\tlabel\tscore\n")
            for each, flag in zip(compared, best, strict=True):
                score = None if each.group is None else next(of_rows)
                label = task.best if flag else other
                if each.row is None:
                    continue
                if output.suffix == ".tsv":
                    stream.write(f"{each.row}\t{label}\t{score or ''}\n")
                else:
                    known = {} if score is None else {"score": float(score)}
                    line = {"row": each.row, "label": label, **known}
                    stream.write(json.dumps(line, ensure_ascii=False) + "\n")

    def classes(self, outputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the numbers of the rows in order, and 1 for the label of each, for a submission.

        Returns:
          int [R], and `probabilities` [R, C].
        """
        task = self._source.task
        compared = self._compared()
        best = best_rows(compared, self._scores(outputs), self._threshold)
        flags = np.array(
            [f for f, each in zip(best, compared, strict=True) if each.row is not None]
        )
        numbers = np.array([each.row for each in compared if each.row is not None])
        mine = task.labels.index(task.best)
        return numbers, np.eye(2)[np.where(flags, mine, 1 - mine)]

    def _compared(self) -> list[ComparedRow]:
        source = self._source
        return side_texts.read_compared(paths.path(source.folder), source.split, source.manifest)

    def _scores(
        self, outputs: Mapping[str, np.ndarray], real: np.ndarray | slice = slice(None)
    ) -> np.ndarray:
        """Returns the scores of the examples in order, without filler: [B]."""
        found = {name: outputs[name][real] for name in ("row", "score")}
        return rows.in_order(found, self._source)[1]["score"]


def best_rows(compared: list[ComparedRow], scores: np.ndarray, threshold: float) -> list[bool]:
    """Returns whether each row is the best one of its group.

    Args:
      compared: the rows.
      scores: the score of each row that has a group, in their order [B].
      threshold: the score above which a row that is alone in its group is the best one.
    """
    members: dict[int, list[int]] = {}
    own: dict[int, float] = {}
    of_rows = iter(scores.tolist())
    for number, each in enumerate(compared):
        if each.group is not None:
            members.setdefault(each.group, []).append(number)
            own[number] = next(of_rows)
    best = [False] * len(compared)
    for several in members.values():
        first = max(several, key=own.__getitem__)  # the first one if several are equal
        best[first] = len(several) > 1 or own[first] > threshold
    return best
