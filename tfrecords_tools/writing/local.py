"""Runs functions in the processes of this machine; see `shuffle.Runner`.

Records are shuffled by an external sort. The records of an item, or of several ones if there are
many, are written to separate files, sorted by their keys (`SortedRuns`). When all are made, each
part is read from these files. So little is in memory, and a build that was killed continues after
the items that are done.

Shapes: N records.
"""

import bisect
import collections
import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from official.utils import atomic
from official.utils.batched import batched
from official.utils.errors import UserError
from official.utils.parallel import Pool
from tfrecords_tools.writing.shards import disk_errors
from tfrecords_tools.writing.shuffle import (
    OVERHEAD_BYTES,
    AnyCounts,
    Item,
    Keyed,
    Result,
    ShardRecords,
    content,
    first_key,
    order,
    sorted_blocks,
)

if TYPE_CHECKING:
    import tensorflow as tf

FILES = ("records", "keys", "ends", "runs")
RUN_BYTES = 32 << 20  # of records that are sorted in memory
# Neighboring items whose records are sorted together, and neighboring parts that are read at a
# time, each of about 32 MB; and the number of items, or of files, from which on there are several.
MOST_NEIGHBORS = 8
MANY = 64


@dataclasses.dataclass(frozen=True)
class LocalRunner:
    """Runs functions in processes of this machine.

    Attributes:
      pool: the processes; None = this process does everything.
      folder: the folder for sorted runs of records, which is created.
    """

    pool: Pool | None
    folder: Path

    def call(self, function: Callable[[Item], Result], item: Item) -> Result:
        """See `shuffle.Runner`."""
        (result,) = self.ordered(function, [item])
        return result

    def ordered(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """See `shuffle.Runner`."""
        return map(function, items) if self.pool is None else self.pool.ordered(function, items)

    def shuffle(
        self,
        make: Callable[[Item], Iterator[Keyed[AnyCounts]]],
        items: Iterable[Item],
        parts: Callable[[int, int], int],
        write: Callable[[ShardRecords], Result],
        counts: type[AnyCounts],
        counted: Callable[[Sequence[Item], AnyCounts], None],
    ) -> list[Result]:
        """See `shuffle.Runner`."""
        atomic.make_folder(self.folder)
        together = neighbors(len(items)) if isinstance(items, Sized) else 1
        stored: list[SortedRuns] = []
        working: collections.deque[Sequence[Item]] = collections.deque()

        def unfinished() -> Iterator[tuple[SortedRuns, Sequence[Item]]]:
            for number, some in enumerate(batched(items, together)):
                runs = SortedRuns(self.folder, number)
                stored.append(runs)
                if runs.done:
                    counted(some, runs.read_counts(counts))
                else:
                    working.append(some)
                    yield runs, some

        store = functools.partial(_make, make=make, counts=counts, run_bytes=together * RUN_BYTES)
        for made in self.ordered(store, unfinished()):
            counted(working.popleft(), made)
        sizes = [runs.sizes() for runs in stored]
        total = parts(sum(n for n, _ in sizes), sum(size for _, size in sizes))
        write_parts = functools.partial(_write_parts, write=write, stored=stored, total=total)
        count = neighbors(len(stored))
        starts = range(0, total, count)
        jobs = (range(start, min(start + count, total)) for start in starts)
        return [result for written in self.ordered(write_parts, jobs) for result in written]


def neighbors(number: int) -> int:
    """Returns how many neighbors of so many items or files a process takes at a time.

    Each part reads from the files of all items. With one file for each item, which is opened for
    each part, thousands of items would take longer to read than to make.
    """
    return min(MOST_NEIGHBORS, 1 + number // MANY)


def _make(
    job: tuple["SortedRuns", Sequence[Item]],
    make: Callable[[Item], Iterator[Keyed[AnyCounts]]],
    counts: type[AnyCounts],
    run_bytes: int,
) -> AnyCounts:
    runs, items = job
    return runs.write(itertools.chain.from_iterable(map(make, items)), counts(), run_bytes)


def _write_parts(
    numbers: range,
    write: Callable[[ShardRecords], Result],
    stored: Sequence["SortedRuns"],
    total: int,
) -> list[Result]:
    """Writes neighboring parts from the records of all items."""
    first, end = first_key(numbers.start, total), first_key(numbers.stop, total)
    ranges = [runs.read(first, end) for runs in stored]
    keys = np.concatenate([keys for keys, _ in ranges])
    records = [record for _, each in ranges for record in each]
    later = np.array([first_key(number, total) for number in numbers[1:]], np.uint64)
    parts = np.searchsorted(later, keys, "right")  # [N], from 0
    results = []
    for part, number in enumerate(numbers):
        places = np.flatnonzero(parts == part)
        own = [records[i] for i in places]
        chosen = order(keys[places], functools.partial(_content, own))
        results.append(write(ShardRecords(number, total, [own[i] for i in chosen])))
    return results


def _content(records: Sequence[bytes], number: int) -> bytes | memoryview:
    return content(records[number])


@dataclasses.dataclass(frozen=True)
class SortedRuns:
    """The records of some items in files, in runs that are sorted by key.

    The files are `records`, as in a TFRecord file; `keys`, uint64 [N]; `ends`, the end of each
    record, int64 [N]; `runs`, the row splits of the runs among the records, int64; and `counts`,
    which is written when the others are on the disk. Its first line has the sizes of all files in
    bytes.

    Attributes:
      folder: the folder of the files.
      number: the index of the files.
    """

    folder: Path
    number: int

    def path(self, name: str) -> Path:
        """Returns the path of a file."""
        return self.folder / f"{self.number:06d}.{name}"

    @property
    def done(self) -> bool:
        """Whether the files are complete."""
        try:
            with open(self.path("counts"), "rb") as stream:
                return self._recorded_sizes(stream) == self._file_sizes()
        except (OSError, ValueError):  # a file is missing, or its first line is different
            return False

    def write(
        self, made: Iterator[Keyed[AnyCounts]], counts: AnyCounts, run_bytes: int = RUN_BYTES
    ) -> AnyCounts:
        """Writes the files; when this returns, they are on the disk.

        Args:
          made: the records.
          counts: an instance with all counts 0.
          run_bytes: of records that are sorted in memory.

        Returns:
          The counts of all records.

        Raises:
          OSError: the disk is full.
        """
        import tensorflow as tf

        records = tf.io.TFRecordWriter(str(self.path("records")))
        runs, end = [0], 0
        with open(self.path("keys"), "wb") as keys, open(self.path("ends"), "wb") as ends:
            for block in sorted_blocks(made, counts, run_bytes):
                end = _write_run(*block, records, keys, ends, end)
                runs.append(keys.tell() // 8)
        with disk_errors():
            records.close()
        np.array(runs, np.int64).tofile(self.path("runs"))
        for name in FILES:
            atomic.sync(self.path(name))
        atomic.sync(self.folder)
        with atomic.file(self.path("counts"), "wb") as stream:
            stream.write(json.dumps(self._file_sizes()).encode() + b"\n")
            counts.save(stream)
        return counts

    def read_counts(self, counts: type[AnyCounts]) -> AnyCounts:
        """Returns the counts of the items."""
        with open(self.path("counts"), "rb") as stream:
            self._recorded_sizes(stream)
            return counts.load(stream)

    def sizes(self) -> tuple[int, int]:
        """Returns N, and the number of bytes of the records."""
        return self.path("keys").stat().st_size // 8, self.path("records").stat().st_size

    def read(self, first: int, end: int) -> tuple[np.ndarray, list[bytes]]:
        """Returns the keys from `first` to `end`, uint64, and their records.

        Raises:
          UserError: a file was truncated.
        """
        if not self.sizes()[0]:
            return np.zeros(0, np.uint64), []
        all_keys = np.memmap(self.path("keys"), np.uint64, mode="r")
        all_ends = np.memmap(self.path("ends"), np.int64, mode="r")
        runs = np.fromfile(self.path("runs"), np.int64).tolist()
        keys: list[np.ndarray] = []
        records: list[bytes] = []
        with open(self.path("records"), "rb") as stream:
            for start, stop in zip(runs[:-1], runs[1:], strict=True):
                begin = bisect.bisect_left(all_keys, first, start, stop)
                last = bisect.bisect_left(all_keys, end, begin, stop)
                ends = all_ends[begin:last]
                if not len(ends):
                    continue
                position = int(all_ends[begin - 1]) if begin else 0
                stream.seek(position)
                data = stream.read(int(ends[-1]) - position)
                if len(data) != ends[-1] - position:
                    raise UserError(f"{stream.name} was cut while it was in use: run again")
                bounds = [0, *(ends - position).tolist()]
                records += [data[a:b] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
                keys.append(np.array(all_keys[begin:last]))
        return np.concatenate([*keys, np.zeros(0, np.uint64)]), records

    def _file_sizes(self) -> dict[str, int]:
        """Returns the number of bytes of each of `FILES`."""
        return {name: self.path(name).stat().st_size for name in FILES}

    @staticmethod
    def _recorded_sizes(stream: IO[bytes]) -> dict[str, int]:
        """Reads the first line of `counts`.

        Raises:
          ValueError: there is no such line.
        """
        return json.loads(stream.readline(1 << 10))


def _write_run(
    own_keys: np.ndarray,
    records: Sequence[bytes],
    file: "tf.io.TFRecordWriter",
    keys: IO[bytes],
    ends: IO[bytes],
    end: int,
) -> int:
    """Appends a run at the position `end` of the records; returns the new position."""
    with disk_errors():
        for record in records:
            file.write(record)
    sizes = np.fromiter(map(len, records), np.int64, len(records))
    positions = end + np.cumsum(sizes + OVERHEAD_BYTES)
    own_keys.tofile(keys)
    positions.tofile(ends)
    return int(positions[-1]) if len(positions) else end
