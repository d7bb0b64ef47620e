"""Shuffles records and divides them into parts, independently of the processes that make them.

A record has a key of 64 bits, a hash of the seed and its index. The records are sorted by their
keys. Each of S parts has an S-th of the range of keys, so a part is a random sample of the corpus,
which is sorted in memory. The parts are the same for any number of processes and on any runner.

Shapes: N records.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

Item = TypeVar("Item")
Result = TypeVar("Result")
OVERHEAD_BYTES = 16  # of a record in a TFRecord file, in addition to its content
_END = 1 << 64  # after the last key


class Counts(Protocol):
    """Counts that can be added and written to a file; the constructor without arguments gives 0."""

    def add(self, other: Self) -> None:
        """Adds other counts."""

    def save(self, stream: IO[bytes]) -> None:
        """Writes the counts."""

    @classmethod
    def load(cls, stream: IO[bytes]) -> Self:
        """Reads what `save` wrote."""


AnyCounts = TypeVar("AnyCounts", bound=Counts)


class Keyed(NamedTuple, Generic[AnyCounts]):
    """Records with their keys.

    Attributes:
      keys: uint64 [N].
      records: N strings of bytes.
      counts: the counts of the text that the records were made from.
    """

    keys: np.ndarray
    records: Sequence[bytes]
    counts: AnyCounts


class Runner(Protocol):
    """Runs functions in several processes."""

    def call(self, function: Callable[[Item], Result], item: Item) -> Result:
        """Returns `function(item)`, computed once, by a process that may load TensorFlow."""

    def ordered(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """Yields `function(item)` for each item, in order.

        Args:
          function: a pure function that can be pickled.
          items: the items.

        Raises:
          UserError: a process was killed, or `function` raises it.
        """

    def shuffle(
        self,
        make: Callable[[Item], Iterator[Keyed[AnyCounts]]],
        items: Iterable[Item],
        parts: Callable[[int, int], int],
        write: Callable[["ShardRecords"], Result],
        counts: type[AnyCounts],
        counted: Callable[[Sequence[Item], AnyCounts], None],
    ) -> list[Result]:
        """Makes records of all items, shuffles them and writes them in parts.

        Args:
          make: makes the records of an item; a pure function that can be pickled.
          items: the items.
          parts: returns S; it is called with the number of records and of their bytes. A pure
            function that can be pickled.
          write: writes a part; can be pickled.
          counts: the class of the counts.
          counted: is called with the items, some at a time, when their records are made, and with
            the counts of these.

        Returns:
          The results of `write`, part by part.

        Raises:
          UserError: a process was killed, or a function raises it.
        """


class ShardRecords(NamedTuple):
    """The records of one part, in order.

    Attributes:
      number: the index of the part.
      total: S.
      records: the records, each framed as in a TFRecord file (see `content`).
    """

    number: int
    total: int
    records: Sequence[bytes | memoryview]


def content(record: bytes | memoryview) -> bytes | memoryview:
    """Returns the content of a record that is framed as in a TFRecord file.

    It comes after its length (8 bytes) and the checksum of the length (4), and before its own
    checksum (4).
    """
    return record[12:-4]


def first_key(part: int, total: int) -> int:
    """Returns the smallest key of a part; of part `total`, a number after all keys."""
    return -(-part * _END // total)


def order(keys: np.ndarray, record: Callable[[int], bytes | memoryview]) -> list[int]:
    """Returns the order of records: by their keys, and by their bytes if keys are equal.

    Args:
      keys: the keys, uint64 [N].
      record: returns a record by its index.
    """
    chosen = np.argsort(keys, kind="stable")
    ordered = keys[chosen]
    if (ordered[1:] == ordered[:-1]).any():
        return sorted(chosen.tolist(), key=lambda i: (int(keys[i]), bytes(record(i))))
    return chosen.tolist()


def sorted_blocks(
    made: Iterable[Keyed[AnyCounts]], counts: AnyCounts, most: int
) -> Iterator[tuple[np.ndarray, list[bytes]]]:
    """Yields the records of an item in blocks, each in the order of its keys.

    Args:
      made: the records as they are made.
      counts: takes their counts.
      most: a block ends when its records have more bytes.

    Yields:
      keys uint64 [N], and the N records.
    """
    waiting: list[Keyed[AnyCounts]] = []
    size = 0
    for keyed in made:
        counts.add(keyed.counts)
        waiting.append(keyed)
        size += sum(map(len, keyed.records))
        if size > most:
            yield _sorted(waiting)
            waiting, size = [], 0
    if waiting:
        yield _sorted(waiting)


def _sorted(made: Sequence[Keyed]) -> tuple[np.ndarray, list[bytes]]:
    keys = np.concatenate([each.keys for each in made])
    records = [record for each in made for record in each.records]
    chosen = order(keys, records.__getitem__)
    return keys[chosen], [records[i] for i in chosen]
