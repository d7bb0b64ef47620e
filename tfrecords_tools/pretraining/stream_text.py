"""The text of a stream in files, of which any process reads any range.

The shuffled documents form one text. It is stored in parts, one after the other, and read by the
position of the tokens in the whole text. Text that is read backward has its positions from the end.

Shapes: N tokens of the text, D documents, n tokens of a range, d documents of it, W windows.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from official.utils.paths import AnyPath
from tfrecords_tools.pretraining.stored_document import StoredDocument
from tfrecords_tools.pretraining.streams import Plan, Text
from tfrecords_tools.writing.shuffle import ShardRecords, content

_DTYPES = {"ids": np.int32, "begins": bool, "documents": np.int64, "identities": np.uint64}


class StoredPart(NamedTuple):
    """A part of the text.

    Attributes:
      number: the number of the part.
      tokens: the number of its tokens.
      documents: the number of its documents.
    """

    number: int
    tokens: int
    documents: int


def write(part: ShardRecords, folder: AnyPath, plan: Plan) -> StoredPart:
    """Stores the documents of a part.

    If documents are joined, `plan.end_id` comes after each.
    """
    ids: list[np.ndarray] = []
    begins: list[np.ndarray] = []
    lengths: list[int] = []
    identities: list[int] = []
    unfinished = False
    for record in part.records:
        document = StoredDocument.unpack(content(record))
        flags = np.zeros(len(document.ids), bool)
        flags[np.cumsum(document.sentences) - document.sentences] = True
        tokens = document.ids
        if plan.joins and not document.unfinished:
            tokens, flags = np.append(tokens, plan.end_id), np.append(flags, False)
        ids.append(tokens.astype(np.int32))
        begins.append(flags)
        if document.part and unfinished and identities[-1] == document.identity:
            lengths[-1] += len(tokens)
        else:
            lengths.append(len(tokens))
            identities.append(document.identity)
        unfinished = document.unfinished
    arrays = {
        "ids": np.concatenate([np.zeros(0, np.int32), *ids]),
        "begins": np.concatenate([np.zeros(0, bool), *begins]),
        "documents": np.cumsum([0, *lengths]),
        "identities": np.array(identities, np.uint64),
    }
    for name, array in arrays.items():
        _path(folder, part.number, name).write_bytes(array.astype(_DTYPES[name]).tobytes())
    return StoredPart(part.number, sum(lengths), len(lengths))


@dataclasses.dataclass(frozen=True)
class StoredText:
    """The whole text, read forward or backward.

    Attributes:
      folder: the folder of the files.
      parts: the parts, in the order of the text.
      plan: the plan of the rows.
      backward: whether positions are counted from the end, and tokens are read in reverse.
    """

    folder: AnyPath
    parts: Sequence[StoredPart]
    plan: Plan
    backward: bool = False

    @functools.cached_property
    def _order(self) -> list[StoredPart]:
        """The parts in the direction of reading."""
        return list(self.parts)[:: -1 if self.backward else 1]

    @functools.cached_property
    def _starts(self) -> np.ndarray:
        """The position of the first token of each part, and N."""
        return np.cumsum([0, *(part.tokens for part in self._order)])

    def __len__(self) -> int:
        """Returns N."""
        return int(self._starts[-1])

    def documents(self, index: int) -> np.ndarray:
        """Returns the row splits of the documents of part `index`, in the direction of reading."""
        splits = self._array(self._order[index], "documents")
        return splits[-1] - splits[::-1] if self.backward else splits

    def window_counts(self, index: int) -> np.ndarray:
        """Returns the number of windows of each document of a part, if each is a context."""
        lengths = np.diff(self.documents(index))
        return np.maximum(0, (lengths - self.plan.span) // self.plan.stride + 1)

    @functools.cached_property
    def _firsts(self) -> np.ndarray:
        """The number of the first window of each part, and of all windows.

        If documents are joined, the whole text is one context, and belongs to the first part.
        """
        if self.plan.joins:
            return np.array([0, max(0, (len(self) - self.plan.span) // self.plan.stride + 1)])
        counts = [int(self.window_counts(i).sum()) for i in range(len(self._order))]
        return np.cumsum([0, *counts])

    @property
    def num_windows(self) -> int:
        """The number of windows of the text."""
        return int(self._firsts[-1])

    def windows(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the position of windows [W], and whether each continues the one before it [W]."""
        if self.plan.joins:
            return numbers * self.plan.stride, numbers > 0
        starts, continues = np.zeros_like(numbers), np.zeros(len(numbers), bool)
        parts = np.searchsorted(self._firsts, numbers, side="right") - 1
        for index in np.unique(parts).tolist():
            counts = self.window_counts(index)
            firsts = np.cumsum(counts) - counts
            chosen = parts == index
            own = numbers[chosen] - self._firsts[index]
            # Documents without a window have the number of the next one.
            document = np.searchsorted(firsts, own, side="right") - 1
            step = own - firsts[document]
            begin = self._starts[index] + self.documents(index)[document]
            starts[chosen] = begin + step * self.plan.stride
            continues[chosen] = step > 0
        return starts, continues

    def uncovered(self, count: int) -> int:
        """Returns the number of tokens in none of the first `count` windows."""
        plan = self.plan
        if self.plan.joins:
            return len(self) - (plan.stride * (count - 1) + plan.span)
        covered = 0
        for index in range(len(self._order)):
            counts = self.window_counts(index)
            firsts = self._firsts[index] + np.cumsum(counts) - counts
            used = np.clip(count - firsts, 0, counts)
            covered += int(np.where(used, plan.stride * (used - 1) + plan.span, 0).sum())
        return len(self) - covered

    def longest_run(self, steps: int, rows: int) -> int:
        """Returns the largest number of windows of a row that continue one another.

        Args:
          steps: the number of windows of a row.
          rows: the number of rows.
        """
        if self.plan.joins:
            return steps
        longest = 0
        for index in range(len(self._order)):
            counts = self.window_counts(index)
            firsts = self._firsts[index] + np.cumsum(counts) - counts
            # The windows of a document, cut where rows begin, and the parts in the middle of it.
            stops = np.minimum(firsts + counts, steps * rows)
            in_first = np.minimum(stops, (firsts // steps + 1) * steps) - firsts
            in_last = stops - np.maximum(firsts, (stops - 1) // steps * steps)
            whole = np.where(stops - firsts - in_first - in_last >= steps, steps, 0)
            longest = max(
                longest, *np.stack([in_first, in_last, whole]).max(axis=1, initial=0).tolist()
            )
        return longest

    def read(self, begin: int, end: int) -> Text:
        """Returns the tokens from position `begin` to `end`."""
        if self.backward:
            text = dataclasses.replace(self, backward=False)
            return text.read(len(self) - end, len(self) - begin).reversed()
        first, last = np.searchsorted(self._starts, [begin, end - 1], side="right") - 1
        ids, begins, documents, identities = [], [], [], []
        for index in range(int(first), int(last) + 1):
            part, start = self._order[index], int(self._starts[index])
            low, high = max(begin - start, 0), min(end - start, part.tokens)
            ids.append(self._slice(part, "ids", low, high))
            begins.append(self._slice(part, "begins", low, high))
            splits = self._array(part, "documents")
            left, right = np.searchsorted(splits, [low, high - 1], side="right") - 1
            documents.append(np.maximum(splits[left : right + 1], low) + start - begin)
            identities.append(self._array(part, "identities")[left : right + 1])
        return Text(
            np.concatenate(ids),
            np.append(np.concatenate(begins), self._begins_at(end)),
            np.append(np.concatenate(documents), end - begin),
            np.concatenate(identities),
        )

    def _begins_at(self, position: int) -> bool:
        """Returns whether a sentence begins at a position; at the end of the text one does."""
        index = int(np.searchsorted(self._starts, position, side="right")) - 1
        if index >= len(self._order):
            return True
        low = position - int(self._starts[index])
        return bool(self._slice(self._order[index], "begins", low, low + 1)[0])

    def _slice(self, part: StoredPart, name: str, begin: int, end: int) -> np.ndarray:
        with _path(self.folder, part.number, name).open("rb") as stream:
            dtype = np.dtype(_DTYPES[name])
            stream.seek(begin * dtype.itemsize)
            return np.frombuffer(stream.read((end - begin) * dtype.itemsize), dtype)

    def _array(self, part: StoredPart, name: str) -> np.ndarray:
        return _array(self.folder, part.number, name)


@functools.lru_cache(maxsize=64)
def _array(folder: AnyPath, number: int, name: str) -> np.ndarray:
    return np.frombuffer(_path(folder, number, name).read_bytes(), _DTYPES[name])


def _path(folder: AnyPath, number: int, name: str) -> AnyPath:
    return folder / f"text-{number:05d}.{name}"
