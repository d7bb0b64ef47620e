"""Filters of documents: which ones of a corpus are left out, found in a pass over the text.

The pass measures the documents in several processes (`measure_group`). One process takes what is
measured in the order of the corpus, joins the parts of long documents, and decides (`Decisions`).
The documents that are left out are written to a file, and whoever reads the corpus afterwards
leaves them out (`dropped`). So they are the same with any number of processes and on any runner,
and every pass over the text sees the same documents.

A document that one filter leaves out is not seen by the next one: words, symbols, duplicates. What
is in memory does not grow with the text, but with the number of documents: 24 bytes for each that
is left out, and for each other one, with a search for duplicates, 16 bytes and its row in
`duplicates`.

Shapes: D documents, N documents that are left out.
"""

import dataclasses
import functools
import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from official.shards.text_filters import TextFilters
from official.utils.paths import AnyPath
from official.utils.progress import Progress, Report
from tfrecords_tools.text import corpus, dropped, duplicates, words
from tfrecords_tools.text.corpus import Corpus, Group, Reading
from tfrecords_tools.text.documents import Document

_FEW_WORDS, _MANY_SYMBOLS, _EQUAL, _ALIKE = range(len(dropped.REASONS))
# A function that calls another one for each item, in order.
Ordered = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


class Whole(NamedTuple):
    """The measurements of whole documents.

    Attributes:
      places: the range in which each begins and its number there; see `dropped`; int64 [D, 2].
      counts: its characters, symbols and words; int64 [D, 3].
      rows: its row for the search for duplicates, uint8 [D, W]; W is 0 without one.
    """

    places: np.ndarray
    counts: np.ndarray
    rows: np.ndarray


class Part(NamedTuple):
    """The measurements of a part of a document.

    Attributes:
      place: as above, int64 [2].
      counts: as above, int64 [3].
      text: for exact duplicates, the text in UTF-8, uint8.
      least: for near-duplicates, the least hashes, uint32 [HASHES].
    """

    place: np.ndarray
    counts: np.ndarray
    text: np.ndarray
    least: np.ndarray


def passed(
    filters: TextFilters | None,
    files: Corpus,
    reading: Reading,
    ordered: Ordered,
    folder: AnyPath,
    report: Report,
) -> Reading:
    """Reads a corpus once, and returns how its documents that pass the filters are read.

    Args:
      filters: the filters; None = there are none, and nothing is read.
      files: the corpus.
      reading: how it is read.
      ordered: calls a function in several processes.
      folder: a folder that all processes reach, for the file of what is left out. What an earlier
        run of the same filters has written there is used.
      report: is called with lines of progress.

    Raises:
      UserError: the text cannot be read, or a process was killed.
    """
    if filters is None:
        return reading
    folder.mkdir(parents=True, exist_ok=True)
    if path := dropped.find(folder):
        return dataclasses.replace(reading, dropped=path)
    decisions = Decisions(filters)
    progress = Progress(files.bytes, report, "filters: ")
    groups = files.groups(seed=None)
    measure = functools.partial(measure_group, filters=filters, reading=reading, folder=folder)
    for group, path in zip(groups, ordered(measure, groups), strict=True):
        decisions.add(read_measured(path))
        path.unlink()
        progress(group.bytes, lambda _: f", {decisions.documents:,} documents")
    table = decisions.table()
    progress.finish(f", {decisions.documents:,} documents, {table.shape[1]:,} left out")
    return dataclasses.replace(reading, dropped=dropped.write(folder, table))


def measure_group(group: Group, filters: TextFilters, reading: Reading, folder: AnyPath) -> AnyPath:
    """Measures a group's documents, and returns the file of what is measured.

    It is a file, because a packed file is one group, however many documents it has.
    """
    path = folder / f"measured-{group.number:07d}"
    with path.open("wb") as stream:
        for chunk in corpus.read_chunks(group, reading, shared=False):
            for measured in measure(chunk.documents, filters):
                np.save(stream, isinstance(measured, Part))
                for array in measured:
                    np.save(stream, array)
    return path


def read_measured(path: AnyPath) -> Iterator[Whole | Part]:
    """Yields what is measured of a group's documents, in order."""
    with path.open("rb") as stream:
        while True:
            try:
                kind = Part if np.load(stream) else Whole
            except EOFError:
                return
            yield kind(*(np.load(stream) for _ in kind._fields))


def measure(documents: Sequence[Document], filters: TextFilters) -> Iterator[Whole | Part]:
    """Yields what is measured of documents, in order."""
    if not documents:
        return
    texts = [unicodedata.normalize("NFC", document.text) for document in documents]
    near = filters.deduplicate == "near"
    measured = words.measure(texts, hashed=near)
    counts = np.stack([measured.characters, measured.symbols, np.diff(measured.words)], axis=1)
    places = np.array(
        [(dropped.key(*each.identity[:2]), each.identity[2]) for each in documents], np.int64
    ).reshape(-1, 2)
    rows = np.zeros((len(documents), 0), np.uint8)
    least = np.zeros((len(documents), 0), np.uint32)
    if near:
        empty = np.flatnonzero(counts[:, 2] == 0)
        stand_ins = np.array([_hash(texts[i]) for i in empty], np.uint64)
        least = duplicates.least_hashes(measured.hashes, measured.words, stand_ins)
        rows = duplicates.shortened(least)
    elif filters.deduplicate == "exact":
        digests = b"".join(duplicates.TextHash().add(text).digest() for text in texts)
        rows = np.frombuffer(digests, np.uint8).reshape(-1, duplicates.DIGEST_BYTES)
    in_parts = [i for i, each in enumerate(documents) if each.part or each.unfinished]
    start = 0
    for i in [*in_parts, len(documents)]:
        if i > start:
            yield Whole(places[start:i], counts[start:i], rows[start:i])
        if i < len(documents):
            text = texts[i].encode() if filters.deduplicate == "exact" else b""
            yield Part(places[i], counts[i], np.frombuffer(text, np.uint8), least[i])
        start = i + 1


def _hash(text: str) -> int:
    """Returns a hash of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class _Joined:
    """The parts of a document together."""

    def __init__(self, part: Part, filters: TextFilters):
        self._filters, self._place = filters, part.place
        self._counts, self._least = np.zeros_like(part.counts), part.least
        self._hash = duplicates.TextHash()
        self.add(part)

    def add(self, part: Part) -> bool:
        """Adds a part, and returns whether it is of this document."""
        if (part.place != self._place).any():
            return False
        self._counts = self._counts + part.counts
        self._least = np.minimum(self._least, part.least)
        self._hash.add(part.text.tobytes().decode())
        return True

    def whole(self) -> Whole:
        """Returns what is measured of the document."""
        row = duplicates.shortened(self._least)
        if self._filters.deduplicate == "exact":
            row = np.frombuffer(self._hash.digest(), np.uint8)
        return Whole(self._place[None], self._counts[None], row[None])


class Decisions:
    """Takes the measurements in the order of the corpus, and decides which documents are left out.

    Attributes:
      documents: the number of documents so far.
    """

    def __init__(self, filters: TextFilters):
        """Starts without a document."""
        self.documents = 0
        self._filters = filters
        self._joined: _Joined | None = None
        # Arrays that grow.
        self._left_out = bytearray()  # int64 [N, 3]
        self._places = bytearray()  # int64 [D, 2], of the documents whose duplicates are sought
        self._rows = bytearray()  # uint8 [D, W]

    def add(self, measured: Iterable[Whole | Part]) -> None:
        """Adds documents."""
        for each in measured:
            if isinstance(each, Whole):
                self._end_joined()
                self._take(each)
            elif self._joined is None or not self._joined.add(each):
                self._end_joined()
                self._joined = _Joined(each, self._filters)

    def table(self) -> np.ndarray:
        """Returns what is left out, int64 [3, N]; see `dropped`. No document may follow."""
        self._end_joined()
        places = np.frombuffer(self._places, np.int64).reshape(-1, 2)
        if len(places):
            rows = np.frombuffer(self._rows, np.uint8).reshape(len(places), -1)
            if self._filters.deduplicate == "exact":
                self._leave_out(places[duplicates.find_equal(rows)], _EQUAL)
            else:
                self._leave_out(places[duplicates.find_alike(rows)], _ALIKE)
        return np.frombuffer(self._left_out, np.int64).reshape(-1, 3).T

    def _end_joined(self) -> None:
        if self._joined is not None:
            self._take(self._joined.whole())
            self._joined = None

    def _take(self, whole: Whole) -> None:
        """Decides on documents, but for duplicates, whose rows are kept."""
        self.documents += len(whole.places)
        characters, symbols, count = whole.counts.T
        few = count < (self._filters.min_words or 0)
        share = self._filters.max_symbol_share
        many = ~few & (symbols > (1 if share is None else share) * characters)
        self._leave_out(whole.places[few], _FEW_WORDS)
        self._leave_out(whole.places[many], _MANY_SYMBOLS)
        if self._filters.deduplicate:
            others = ~(few | many)
            self._places += whole.places[others].tobytes()
            self._rows += whole.rows[others].tobytes()

    def _leave_out(self, places: np.ndarray, reason: int) -> None:
        reasons = np.full((len(places), 1), reason)
        self._left_out += np.concatenate([places, reasons], axis=1).tobytes()
