"""Makes the records of rows of sentences of whole words that continue from batch to batch: ELMo.

The shuffled documents form one text, in which a mark comes before each sentence. It is read in two
directions (Peters et al., 2018, section 3.1, and the release):

  forward    <S>   the  cat  sat   <S>   no          predicts  the  cat  sat  </S>  no   </S>
  backward   </S>  sat  cat  the   </S>  no          predicts  sat  cat  the  <S>   no   <S>

Sentences keep their order, and the words of each are reversed, so both directions have the marks of
sentences at the same positions. A row of the batch gets a part of the text, and its records are
consecutive windows of T positions of both directions, without padding. A sentence that ends after
its window continues in the next record of the row. Record t · R + b of the shards continues record
(t - 1) · R + b. Remaining positions at the end of the text are cut off and counted.

(The release reads the two directions from two shuffles of the sentences, so that a batch has
different text in each.)

Shapes: N positions of the text, n of a range of it, s sentences of the range, E records, T
positions of a record, Y bytes of the words.
"""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from official.shards import example_bytes
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.pretraining.counts import Counts
from tfrecords_tools.pretraining.streams import Plan, StoredArrays, StoredDocument
from tfrecords_tools.writing.shuffle import ShardRecords, content

RECORDS_AT_ONCE = 2048


class StoredPart(NamedTuple):
    """A part of the text: its index, and the number of its words and marks."""

    number: int
    positions: int


class _Range(NamedTuple):
    """A range of the text: whole sentences, and the mark after the last sentence.

    Attributes:
      ids: the id of each position, `<S>` of a mark; int32 [n + 1].
      ends: the row splits of the positions in `data`, where a mark has no bytes; int64 [n + 2].
      data: the bytes of the words; uint8 [Y].
      sentences: the row splits of the sentences with their marks; int64 [s + 1].
    """

    ids: np.ndarray
    ends: np.ndarray
    data: np.ndarray
    sentences: np.ndarray

    def reversed(self, positions: np.ndarray) -> np.ndarray:
        """Returns the positions in the text that are read at `positions` in reverse."""
        sentence = np.searchsorted(self.sentences, positions, side="right") - 1
        inside = np.minimum(sentence, len(self.sentences) - 2)
        first, last = self.sentences[inside], self.sentences[inside + 1]
        mark = (positions == first) | (sentence > inside)
        return np.where(mark, positions, first + last - positions)

    def words(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the concatenated bytes of positions [K], uint8, and their lengths [K]."""
        starts, lengths = self.ends[positions], self.ends[positions + 1] - self.ends[positions]
        before = np.cumsum(lengths) - lengths
        index = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
        return self.data[index], lengths


def write(part: ShardRecords, folder: AnyPath, plan: Plan) -> StoredPart:
    """Stores the sentences of a part."""
    ids, lengths, data, sentences = [], [], [], []
    for record in part.records:
        document = StoredDocument.unpack(content(record))
        begins = np.cumsum(document.sentences) - document.sentences
        ids.append(np.insert(document.ids, begins, plan.cls_id))
        lengths.append(np.insert(document.lengths, begins, 0))
        data.append(document.data)
        sentences.append(document.sentences + 1)
    arrays = {
        "ids": np.concatenate([np.zeros(0, np.int32), *ids]),
        "ends": np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths])),
        "bytes": np.concatenate([np.zeros(0, np.uint8), *data]),
        "sentences": np.cumsum(np.concatenate([np.zeros(1, np.int64), *sentences])),
    }
    StoredArrays(folder, part.number).write(arrays)
    return StoredPart(part.number, len(arrays["ids"]))


@dataclasses.dataclass(frozen=True)
class SentenceRows:
    """The rows of a stored text of sentences.

    Attributes:
      folder: the folder of the text.
      parts: its parts.
      plan: the plan of the rows.
    """

    folder: AnyPath
    parts: tuple[StoredPart, ...]
    plan: Plan

    @functools.cached_property
    def _starts(self) -> np.ndarray:
        """The first position of each part, and N."""
        return np.cumsum([0, *(part.positions for part in self.parts)])

    def arranged(self) -> tuple["SentenceRows", Counts]:
        """Returns the rows with their number of steps, and the counts of unused text.

        Raises:
          UserError: the text is too short for the rows.
        """
        length, rows = self.plan.segments.max_length, self.plan.segments.rows
        total = int(self._starts[-1])
        steps = total // length // rows
        if not steps:
            raise UserError(
                f"{total:,} words and marks give {total // length:,} rows of {length}, but "
                f"segments.rows: {rows} needs {rows}: lower segments.rows or max_length, or use "
                "more text"
            )
        counts = Counts()
        counts.totals["longest_memory"] = (steps - 1) * length
        counts.totals["cut_tokens"] = total - steps * rows * length
        return dataclasses.replace(self, plan=dataclasses.replace(self.plan, steps=steps)), counts

    def records(self, rows: range, steps: range) -> list[bytes]:
        """Returns the records of some rows, step by step."""
        at_once = max(1, RECORDS_AT_ONCE // len(rows))
        records: list[bytes] = []
        for first in range(steps.start, steps.stop, at_once):
            block = range(first, min(first + at_once, steps.stop))
            made = [self._row(row, block) for row in rows]
            records += [made[row][step] for step in range(len(block)) for row in range(len(rows))]
        return records

    def _row(self, row: int, steps: range) -> list[bytes]:
        """Returns the records of a row."""
        length, plan = self.plan.segments.max_length, self.plan
        begin = (row * plan.steps + steps.start) * length
        text, first = self._read(begin, begin + len(steps) * length + 1)
        forward = (
            begin - first + np.arange(len(steps))[:, None] * length + np.arange(length + 1)
        )  # [E, T + 1]
        marks = text.ids[forward] == plan.cls_id
        numbers = {
            "continues": np.array(steps) > 0,
            "segment_lengths": np.full(len(steps), length),
        }
        columns = {}
        for prefix, stored, mark in (
            ("", forward, plan.cls_id),
            ("backward_", text.reversed(forward), plan.sep_id),
        ):
            ids = np.where(marks, mark, text.ids[stored])
            data, lengths = text.words(stored[:, :-1].ravel())
            splits = np.concatenate([[0], np.cumsum(lengths)])[::length]
            numbers |= {
                f"{prefix}token_ids": ids[:, :-1],
                f"{prefix}next_id": ids[:, -1],
                f"{prefix}word_lengths": lengths,
            }
            columns[f"{prefix}word_bytes"] = data.view("S1"), splits
        columns |= {
            name: example_bytes.rows(np.reshape(values, (len(steps), -1)).astype(np.int64))
            for name, values in numbers.items()
        }
        return example_bytes.serialize(columns)

    def _read(self, begin: int, end: int) -> tuple[_Range, int]:
        """Returns the sentences that have the positions from `begin` to `end`, up to N + 1.

        The second result is the position of the first of them.
        """
        stop = min(end, int(self._starts[-1]))
        first, last = np.searchsorted(self._starts, [begin, stop - 1], side="right") - 1
        ids, lengths, data, sentences = [], [], [], []
        position = 0
        for index in range(int(first), int(last) + 1):
            number, start = self.parts[index].number, int(self._starts[index])
            stored = StoredArrays(self.folder, number)
            splits = stored.read("sentences")
            low, high = max(begin - start, 0), min(stop - start, int(splits[-1]))
            left = int(np.searchsorted(splits, low, side="right")) - 1
            right = int(np.searchsorted(splits, high, side="left"))
            low, high = int(splits[left]), int(splits[right])
            if index == first:
                position = start + low
            ends = stored.read_range("ends", low, high + 1)
            ids.append(stored.read_range("ids", low, high))
            lengths.append(np.diff(ends))
            data.append(stored.read_range("bytes", int(ends[0]), int(ends[-1])))
            sentences.append(np.diff(splits[left : right + 1]))
        text = _Range(
            np.append(np.concatenate(ids), self.plan.cls_id),
            np.cumsum(np.concatenate([[0], *lengths, [0]])),
            np.concatenate(data),
            np.cumsum(np.concatenate([[0], *sentences])),
        )
        return text, position
