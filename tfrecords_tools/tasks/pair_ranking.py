"""Examples of pairs of texts that are ranked, from a labelled table (see `builder`).

The pairs with the same first text are a group, and the best one of a group has a certain label. A
training example is a triple as those of `ranking`: the first text, the second text of a pair with
the label, and that of another pair of the group. Groups without the one or the other are left out
and counted. The other splits have an example for each row, in the order of the file, and the groups
of the rows beside the shards (`official.shards.side_texts`).
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator

from official.shards import side_texts
from official.tasks import trec
from official.utils.paths import AnyPath
from tfrecords_tools.tasks import labelled_text, ranking
from tfrecords_tools.tasks.splits import Splits

# The number of a row, its two texts, and whether it has the label of the best one.
Pair = tuple[int, str, str, bool | None]


@dataclasses.dataclass
class SplitCounts(ranking.SplitCounts):
    """The counts of one split; a query is a first text.

    Attributes:
      alone: the number of rows that have no other row to be compared with.
    """

    alone: int = 0


@dataclasses.dataclass
class Builder(ranking.TripleBuilder):
    """Builds the shards of pairs that are ranked; a query is a first text."""

    counts_type = SplitCounts

    def prepare(self) -> None:
        """See `builder.Builder`; without labels they are those of the train file."""
        self.check_max_length(2)
        if not self.task.labels:
            self.task = labelled_text.with_labels_of_train_file(
                self.task, self.files, self.format, self.skip_bad_rows, self.report
            )
        self._compared: dict[str, list[side_texts.ComparedRow]] = {}

    def read(
        self, split: str, counts: ranking.SplitCounts, writer: Splits
    ) -> Iterator[ranking.Row]:
        """See `builder.Builder`."""
        assert isinstance(counts, SplitCounts)
        best = self.task.labels.index(self.task.best)
        rows = labelled_text.usable(self.task, split, self.files[split], self.format, counts.bad)
        pairs = [
            (number, first, second, None if label is None else label == best)
            for number, (first, second), label in rows
        ]
        wanted: Iterable[tuple[str, tuple[str, ...]]]
        if split == "train":
            run, qrels = _judged(pairs)
            wanted = ranking.triples(run, qrels, self.negatives, self.seed, counts)
        else:
            wanted = ((first, (second,)) for _, first, second, _ in pairs)
            sizes = collections.Counter(first for _, first, _, _ in pairs)
            groups = {first: number for number, first in enumerate(sizes)}
            counts.queries = len(groups)
            counts.alone = sum(size == 1 for size in sizes.values())
            counts.labelled = all(right is not None for *_, right in pairs)
            self._compared[split] = [
                side_texts.ComparedRow(number, groups[first], right)
                for number, first, _, right in pairs
            ]
        same = {text: text for _, *texts, _ in pairs for text in texts}
        return ranking.Texts(same, same, self.max_length).rows(wanted, writer)

    def write_beside(
        self, folder: AnyPath, split: str, counts: ranking.SplitCounts
    ) -> dict[str, str]:
        """See `builder.Builder`."""
        if split == "train":
            return {}
        return side_texts.write_compared(folder, split, self._compared.pop(split))

    def summary(self, split: str, counts: ranking.SplitCounts) -> list[str]:
        """See `builder.Builder`."""
        assert isinstance(counts, SplitCounts)
        alone = [f"{counts.alone:,} rows have no other to be compared with"]
        return super().summary(split, counts) + (alone if counts.alone else [])


def _judged(pairs: Iterable[Pair]) -> tuple[trec.Run, trec.Qrels]:
    """Returns the second texts of each first text in their order, and their grades."""
    run: trec.Run = {}
    qrels: trec.Qrels = {}
    for number, first, second, right in pairs:
        run.setdefault(first, {})[second] = -number
        grades = qrels.setdefault(first, {})
        grades[second] = max(grades.get(second, 0), int(bool(right)))
    return run, qrels
