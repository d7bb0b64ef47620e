"""Cuts text into rows that continue from batch to batch: Transformer-XL and XLNet.

There are two layouts of a sequence:

* With a `reuse_length` r: [reused text][A][SEP][B][SEP][CLS], stride r (Yang et al., 2019, section
  2.5, and the data of the release). The reused text, A and B are consecutive in the text, and the
  next sequence begins at the end of the reused text. A ends at the end of a random sentence, or at
  a random token if no sentence ends there. With the relation `next_sentence`, B may come from
  another document, from the text of the rows and steps that are made together. The memory holds
  only the reused text, so it is always the context of its row.
* Without `reuse_length`: T tokens of plain text, stride T (Dai et al., 2019, section 3.2), and
  `next_id`, the next token.

If documents are joined, an <eod> follows each (XLNet's release, `use_eod`), or a [SEP] if the
vocabulary has no <eod>. Rows of reversed text (`backward`) are cut from the reversed text in the
same way. No sequence is padded. Remaining tokens at the end of a text are cut off and counted.

The shuffled documents form one text, which is stored in consecutive parts (`write`), and read by
positions of tokens in the whole text (`StoredText`). Positions of text that is read backward count
from the end. Any process can make the rows of any range of steps, and reads only the text of these
rows (`StreamRows`).

Shapes: N tokens of the text, D documents, W windows or steps of a row, E sequences, T tokens of a
sequence.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from official.shards import example_bytes
from official.utils import host_seeding
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.pretraining.counts import Counts
from tfrecords_tools.pretraining.streams import Plan, StoredArrays, StoredDocument
from tfrecords_tools.writing.shuffle import ShardRecords, content

SEQUENCES_AT_ONCE = 2048
# The number of tokens that are searched backward for the begin of the sentence of a random B.
_LOOK_BACK = 128


@dataclasses.dataclass(frozen=True)
class StreamRows:
    """The rows of a stored text.

    Attributes:
      folder: the folder of the text.
      parts: its parts.
      plan: the plan of the rows.
    """

    folder: AnyPath
    parts: tuple["StoredPart", ...]
    plan: Plan

    @functools.cached_property
    def _texts(self) -> list["StoredText"]:
        """The text, forward and, if some rows are backward, in reverse."""
        directions = (False, True) if self.plan.segments.backward else (False,)
        return [StoredText(self.folder, self.parts, self.plan, each) for each in directions]

    def arranged(self) -> tuple["StreamRows", Counts]:
        """Returns the rows with their number of steps, and the counts of unused text.

        Raises:
          UserError: the text is too short for the rows.
        """
        plan, text = self.plan, self._texts[0]
        steps = text.num_windows // plan.streams
        lengths = [np.diff(text.documents(i)) - plan.joins for i in range(len(self.parts))]
        short = sum(int((each < plan.span).sum()) for each in lengths) // plan.segments.duplicates
        if not steps:
            dropped = f", without {short:,} short documents," if short and not plan.joins else ""
            kept = len(text) if plan.joins else sum(int(n[n >= plan.span].sum()) for n in lengths)
            raise _too_short(plan, f"{kept:,} tokens of text{dropped}", text.num_windows)
        counts = Counts()
        longest = text.longest_run(steps, plan.streams)
        counts.totals["longest_memory"] = (longest - 1) * plan.stride
        counts.totals["cut_tokens"] = text.uncovered(steps * plan.streams)
        if short and plan.joins:
            counts.totals["short_documents_joined"] = short
        elif short:
            counts.skipped["documents shorter than a row"] = short
        return dataclasses.replace(self, plan=dataclasses.replace(plan, steps=steps)), counts

    def records(self, rows: range, steps: range) -> list[bytes]:
        """Returns the records of some rows, step by step."""
        at_once = max(1, SEQUENCES_AT_ONCE // len(rows))
        records: list[bytes] = []
        for first in range(steps.start, steps.stop, at_once):
            records += self._block(rows, range(first, min(first + at_once, steps.stop)))
        return records

    def _block(self, rows: range, steps: range) -> list[bytes]:
        count = self.plan.streams
        directions = []
        for backward, text in enumerate(self._texts):
            own = [row - backward * count for row in rows if row // count == backward]
            if own:
                counters = (rows.start, steps.start, backward)
                rng = host_seeding.numpy_rng(self.plan.seed, *counters)
                directions.append(self._features(text, own, steps, rng, backward))

        def together(name: str) -> np.ndarray:
            """Returns the rows of all directions, step by step."""
            parts = [columns[name] for columns in directions]  # [rows, W, ...]
            return np.concatenate(parts).swapaxes(0, 1).reshape(len(steps) * len(rows), -1)

        return example_bytes.serialize(
            {name: example_bytes.rows(together(name)) for name in directions[0]}
        )

    def _features(
        self,
        text: "StoredText",
        rows: list[int],
        steps: range,
        rng: np.random.Generator,
        backward: int,
    ) -> dict[str, np.ndarray]:
        """Returns the features of rows of one direction, int64 [rows, W, ...]."""
        texts, positions, continues = [], [], []
        size = 0
        for row in rows:
            starts, goes_on = text.windows(row * self.plan.steps + np.array(steps))
            low, high = int(starts.min()), int(starts.max()) + self.plan.span
            texts.append(text.read(low, high))
            positions.append(starts - low + size)
            continues.append(goes_on & (np.array(steps) > 0))
            size += high - low
        columns = cut_sequences(join(texts), np.concatenate(positions), self.plan, rng)
        columns["continues"] = np.concatenate(continues)
        if self.plan.segments.backward:
            columns["backward"] = np.full(len(columns["continues"]), backward)
        shape = len(rows), len(steps), -1
        return {name: x.reshape(shape).astype(np.int64) for name, x in columns.items()}


def _too_short(plan: "Plan", text: str, sequences: int) -> UserError:
    """Returns the error of a text that does not fill the rows.

    Args:
      plan: the plan.
      text: the amount of text, in words.
      sequences: the number of sequences of the text.
    """
    segments = plan.segments
    backward = ", each in both directions" if segments.backward else ""
    return UserError(
        f"{text} give {sequences:,} sequences of {segments.max_length}, but segments.rows: "
        f"{segments.rows} needs {plan.streams}{backward}: lower segments.rows or max_length, or "
        "use more text"
    )


@dataclasses.dataclass(frozen=True)
class Text:
    """A text, or a range of it, that rows are cut from.

    Attributes:
      ids: int32 [N].
      begins: whether a sentence begins at each token, and after the last token; bool [N + 1].
      documents: the row splits of the documents; int64 [D + 1].
      identities: a number that parts and copies of the same document share; uint64 [D].
    """

    ids: np.ndarray
    begins: np.ndarray
    documents: np.ndarray
    identities: np.ndarray

    def reversed(self) -> "Text":
        """Returns the text in reverse order."""
        documents = self.documents[-1] - self.documents[::-1]
        return Text(self.ids[::-1], self.begins[::-1], documents, self.identities[::-1])


class StoredPart(NamedTuple):
    """A part of the text.

    Attributes:
      number: the index of the part.
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
    StoredArrays(folder, part.number).write(arrays)
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

    def _stored(self, index: int) -> StoredArrays:
        return StoredArrays(self.folder, self._order[index].number)

    def documents(self, index: int) -> np.ndarray:
        """Returns the row splits of the documents of part `index`, in the direction of reading."""
        splits = self._stored(index).read("documents")
        return splits[-1] - splits[::-1] if self.backward else splits

    def window_counts(self, index: int) -> np.ndarray:
        """Returns the number of windows of each document of a part, if each is a context."""
        lengths = np.diff(self.documents(index))
        return np.maximum(0, (lengths - self.plan.span) // self.plan.stride + 1)

    @functools.cached_property
    def _firsts(self) -> np.ndarray:
        """The index of the first window of each part, and the number of all windows.

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
        """Returns the positions of windows, and whether each continues the previous one: [W]."""
        if self.plan.joins:
            return numbers * self.plan.stride, numbers > 0
        starts, continues = np.zeros_like(numbers), np.zeros(len(numbers), bool)
        parts = np.searchsorted(self._firsts, numbers, side="right") - 1
        for index in np.unique(parts).tolist():
            counts = self.window_counts(index)
            firsts = np.cumsum(counts) - counts
            chosen = parts == index
            own = numbers[chosen] - self._firsts[index]
            # Documents without a window have the index of the next window.
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
        """Returns the largest number of consecutive windows of a row that continue each other.

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
            stored = self._stored(index)
            ids.append(stored.read_range("ids", low, high))
            begins.append(stored.read_range("begins", low, high))
            splits = stored.read("documents")
            left, right = np.searchsorted(splits, [low, high - 1], side="right") - 1
            documents.append(np.maximum(splits[left : right + 1], low) + start - begin)
            identities.append(stored.read("identities")[left : right + 1])
        return Text(
            np.concatenate(ids),
            np.append(np.concatenate(begins), self._begins_at(end)),
            np.append(np.concatenate(documents), end - begin),
            np.concatenate(identities),
        )

    def _begins_at(self, position: int) -> bool:
        """Returns whether a sentence begins at a position; true at the end of the text."""
        index = int(np.searchsorted(self._starts, position, side="right")) - 1
        if index >= len(self._order):
            return True
        low = position - int(self._starts[index])
        return bool(self._stored(index).read_range("begins", low, low + 1)[0])


def join(texts: Sequence[Text]) -> Text:
    """Concatenates texts; each consists of whole sentences."""
    starts = np.cumsum([0, *(len(text.ids) for text in texts)])
    documents = [
        text.documents[:-1] + start for text, start in zip(texts, starts[:-1], strict=True)
    ]
    begins = np.concatenate([*(text.begins[:-1] for text in texts), texts[-1].begins[-1:]])
    begins[starts[:-1]] = True
    return Text(
        np.concatenate([text.ids for text in texts]),
        begins,
        np.concatenate([*documents, starts[-1:]]),
        np.concatenate([text.identities for text in texts]),
    )


def cut_sequences(
    text: Text, starts: np.ndarray, plan: Plan, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Cuts the sequences that begin at `starts` [E] from a text; returns features [E, ...]."""
    length, reused = plan.segments.max_length, plan.segments.reuse_length
    index = starts[:, None] + np.arange(plan.span)
    ids = text.ids[index]
    if not reused:
        lengths = np.full((len(starts), 1), length)
        return {
            "token_ids": ids[:, :length], "segment_lengths": lengths, "next_id": ids[:, length],
        }  # fmt: skip
    room = plan.span - reused
    first = 1 + draw_flagged(
        text.begins[index[:, reused + 1 :]], rng
    )  # [E]: the number of tokens of A.
    second = room - first
    features = {}
    if plan.segments.label:
        random = rng.random(len(starts)) < plan.segments.random_next_prob
        elsewhere = draw_elsewhere(text, starts + reused, second, rng)
        from_there = elsewhere[:, None] + np.arange(-reused, room) - first[:, None]
        in_second = np.arange(plan.span) >= (reused + first)[:, None]
        replaced = random[:, None] & in_second
        ids = np.where(replaced, text.ids[np.where(replaced, from_there, 0)], ids)
        features[plan.segments.label] = random
    # The source of each token: the separators before B move it to the right.
    columns = np.arange(length) - reused
    after = columns >= (first + plan.between)[:, None]
    sources = np.clip(np.arange(length) - plan.between * after, 0, plan.span - 1)
    separators = (columns >= first[:, None]) & ~after
    token_ids = np.where(separators, plan.sep_id, np.take_along_axis(ids, sources, axis=1))
    token_ids[:, -2:] = plan.sep_id, plan.cls_id
    parts = [reused + first + plan.between, second + 1, np.ones_like(first)]
    return {"token_ids": token_ids, "segment_lengths": np.stack(parts, axis=1), **features}


def draw_flagged(flags: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws a true column of each row, or any column if none is true; int64 [E]."""
    draws, counts = rng.random(len(flags)), flags.sum(axis=1)
    ranks = np.cumsum(flags, axis=1) - 1
    chosen = np.argmax(flags & (ranks == np.floor(draws * counts)[:, None]), axis=1)
    return np.where(counts > 0, chosen, np.floor(draws * flags.shape[1]).astype(np.int64))


def draw_elsewhere(
    text: Text, here: np.ndarray, lengths: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draws positions from which `lengths` tokens belong to other documents than at `here`, [E].

    If no other document is long enough, a position in the same document may be drawn. A position is
    moved back to the begin of its sentence if it is near.
    """
    document = np.searchsorted(text.documents, here, side="right") - 1
    draws = rng.random(len(here))
    own = _extents(text)
    positions = np.array(
        [
            _outside(own[identity], int(length), len(text.ids), draw)
            for identity, length, draw in zip(
                text.identities[document].tolist(), lengths, draws.tolist(), strict=True
            )
        ],
        np.int64,
    )
    back = np.maximum(0, positions[:, None] - np.arange(_LOOK_BACK))
    begins = text.begins[back]
    nearest = np.take_along_axis(back, np.argmax(begins, axis=1)[:, None], axis=1)[:, 0]
    return np.where(begins.any(axis=1), nearest, positions)


def _extents(text: Text) -> dict[int, list[tuple[int, int]]]:
    """Returns the begin and end of all parts and copies of each document, by its identity."""
    extents: dict[int, list[tuple[int, int]]] = {}
    bounds = itertools.pairwise(text.documents.tolist())
    for identity, extent in zip(text.identities.tolist(), bounds, strict=True):
        extents.setdefault(identity, []).append(extent)
    return extents


def _outside(extents: Sequence[tuple[int, int]], length: int, size: int, draw: float) -> int:
    """Returns a position in a text of `size` tokens from which `length` tokens are in no extent.

    Args:
      extents: the begins and ends of the parts and copies of a document, ascending.
      length: the number of tokens.
      size: the number of tokens of the text.
      draw: a uniform random number in [0, 1), which selects one of the positions.
    """
    begins = [0, *(end for _, end in extents)]
    ends = [*(begin for begin, _ in extents), size]
    counts = [max(0, end - length + 1 - begin) for begin, end in zip(begins, ends, strict=True)]
    total = sum(counts)
    if not total:
        return int(draw * (size - length + 1))
    number = int(draw * total)
    for begin, count in zip(begins, counts, strict=True):
        if number < count:
            return begin + number
        number -= count
    raise AssertionError("the draw is in [0, 1)")
