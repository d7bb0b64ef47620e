"""Runs functions in the processes of this machine; see `shuffle.Runner`.

The records of an item go to files in a folder of their own, in the order of their keys. When all
are made, each part is read from these files. So little is in memory, and a run that was killed goes
on with the items that are done.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from official.utils import atomic
from tfrecords_tools.writing.parallel import Pool
from tfrecords_tools.writing.shuffle import (
    Counts,
    Item,
    Keyed,
    Part,
    Result,
    content,
    first_key,
    order,
)
from tfrecords_tools.writing.spill import Spill


@dataclasses.dataclass(frozen=True)
class LocalRunner:
    """Runs functions in processes of this machine.

    Attributes:
      pool: the processes; None = this process does everything.
      folder: the folder for records that are not in order yet, which is created.
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
        make: Callable[[Item], Iterator[Keyed]],
        items: Iterable[Item],
        parts: Callable[[int, int], int],
        write: Callable[[Part], Result],
        counts: type[Counts],
        counted: Callable[[Item, Counts], None],
    ) -> list[Result]:
        """See `shuffle.Runner`."""
        atomic.make_folder(self.folder)
        spills: list[Spill] = []
        working: collections.deque[Item] = collections.deque()

        def waiting() -> Iterator[tuple[Spill, Item]]:
            for number, item in enumerate(items):
                spill = Spill(self.folder, number)
                spills.append(spill)
                if spill.done:
                    counted(item, spill.read_counts(counts))
                else:
                    working.append(item)
                    yield spill, item

        function = functools.partial(_make, make=make, counts=counts)
        for made in self.ordered(function, waiting()):
            counted(working.popleft(), made)
        sizes = [spill.sizes() for spill in spills]
        total = parts(sum(n for n, _ in sizes), sum(size for _, size in sizes))
        function = functools.partial(_write, write=write, spills=spills, total=total)
        return list(self.ordered(function, range(total)))


def _make(
    job: tuple[Spill, Item], make: Callable[[Item], Iterator[Keyed]], counts: type[Counts]
) -> Counts:
    from tfrecords_tools.writing import spill_writer  # It imports TensorFlow.

    spill, item = job
    return spill_writer.write(spill, make(item), counts())


def _write(
    number: int, write: Callable[[Part], Result], spills: Sequence[Spill], total: int
) -> Result:
    """Writes a part from the records of all items."""
    first, end = first_key(number, total), first_key(number + 1, total)
    found = [spill.read(first, end) for spill in spills]
    keys = np.concatenate([keys for keys, _ in found])
    framed = [record for _, records in found for record in records]
    chosen = order(keys, lambda i: content(framed[i]))
    return write(Part(number, total, [framed[i] for i in chosen]))
