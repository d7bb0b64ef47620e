"""Runs functions on Apache Beam: see `shuffle.Runner`.

Results of functions are passed in files (`official.utils.beam`), records only through Beam. An
element of Beam costs more than a record, so records travel in blocks.

Shapes: N records of a block.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np

from official.utils import beam as pipelines
from official.utils.beam import Results, content, set_up
from official.utils.errors import UserError
from tfrecords_tools.writing import shards
from tfrecords_tools.writing.shuffle import (
    OVERHEAD_BYTES,
    AnyCounts,
    Counts,
    Item,
    Keyed,
    Result,
    ShardRecords,
    first_key,
    order,
    sorted_blocks,
)

_KEY_BYTES = 8
_BLOCK_BYTES = 4 << 20  # of records that travel together


class Runner(pipelines.Runner):
    """Runs functions in Beam pipelines."""

    def call(self, function: Callable[[Item], Result], item: Item) -> Result:
        """See `shuffle.Runner`; this process has loaded TensorFlow."""
        return function(item)

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
        listed = self.listed(items)
        written, made, total = (self.results(name) for name in ("parts", "counts", "total"))
        with self.pipeline() as pipeline:
            records = (
                self.numbered(pipeline, listed)
                | "make" >> beam.ParDo(_Make(make, counts, made, self.setup))
                | "keep" >> beam.Reshuffle()
            )
            size = (
                records
                | "size" >> beam.Map(_Block.sizes)
                | "sizes" >> beam.CombineGlobally(_Sizes())
                | "number of parts" >> beam.Map(functools.partial(_count, parts=parts))
            )
            _ = size | "store the number" >> beam.Map(functools.partial(total.store, 0))
            _ = (
                records
                | "part" >> beam.FlatMap(_Block.parts, total=beam.pvalue.AsSingleton(size))
                | "parts" >> beam.GroupByKey()
                | "write"
                >> beam.Map(
                    functools.partial(_write, write=write), total=beam.pvalue.AsSingleton(size)
                )
                | "store parts" >> beam.MapTuple(written.store)
            )
        (number,) = total.read(1)
        if isinstance(number, str):
            raise UserError(number)
        for item, item_counts in zip(listed, made.read(len(listed)), strict=True):
            counted([content(item)], item_counts)
        for part in range(number):
            if not written.path(part).exists():  # a part without records
                written.store(part, write(ShardRecords(part, number, [])))
        return list(written.read(number))


class _Make(beam.DoFn):
    """Makes the records of numbered items, and stores the counts of each item.

    (Counts go to files, because some runners support only one output of a function.)
    """

    def __init__(
        self, make: Callable, counts: type[Counts], made: Results, setup: Callable[[], None]
    ):
        super().__init__()
        self._make, self._counts, self._made, self._setup = make, counts, made, setup

    def setup(self):
        """Sets up the worker."""
        set_up(self._setup)

    def process(self, element: tuple[int, Any]) -> Iterable[Any]:
        """Yields the records in blocks, as tuples of bytes; see `_Block`."""
        number, item = element
        counts = self._counts()
        for keys, records in sorted_blocks(self._make(content(item)), counts, _BLOCK_BYTES):
            yield tuple(_Block.of(keys, records))
        self._made.store(number, counts)


class _Block(NamedTuple):
    """Records in the order of their keys, as bytes, for which every runner has a fast coder.

    Attributes:
      keys: uint64 [N].
      ends: the end of each record, int64 [N].
      data: the records, one behind the other.
    """

    keys: bytes
    ends: bytes
    data: bytes

    @classmethod
    def of(cls, keys: np.ndarray, records: Sequence[bytes]) -> "_Block":
        """Returns the block of records in the order of their keys."""
        ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)))
        return cls(keys.tobytes(), ends.tobytes(), b"".join(records))

    @staticmethod
    def sizes(block: tuple[bytes, bytes, bytes]) -> tuple[int, int]:
        """Returns the number of records and of their bytes in a TFRecord file."""
        keys, _, data = block
        count = len(keys) // _KEY_BYTES
        return count, len(data) + count * OVERHEAD_BYTES

    @staticmethod
    def parts(
        block: tuple[bytes, bytes, bytes], total: int | str
    ) -> Iterator[tuple[int, tuple[bytes, bytes, bytes]]]:
        """Yields the numbers of parts, and the records of each as a block."""
        if isinstance(total, str):
            return
        all_keys, all_ends, data = block
        keys, ends = np.frombuffer(all_keys, np.uint64), np.frombuffer(all_ends, np.int64)
        cuts = np.searchsorted(keys, _later_keys(total))
        for number in np.unique(np.searchsorted(cuts, np.arange(len(keys)), "right")).tolist():
            first = int(cuts[number - 1]) if number else 0
            last = int(cuts[number]) if number < total - 1 else len(keys)
            start = int(ends[first - 1]) if first else 0
            own = ends[first:last] - start
            yield number, (keys[first:last].tobytes(), own.tobytes(), data[start : ends[last - 1]])

    def records(self) -> list[bytes]:
        """Returns the records."""
        ends = np.frombuffer(self.ends, np.int64).tolist()
        return [self.data[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]


@functools.lru_cache(maxsize=1)
def _later_keys(total: int) -> np.ndarray:
    """Returns the first key of each part but the first, uint64 [total - 1]."""
    return np.array([first_key(part, total) for part in range(1, total)], np.uint64)


class _Sizes(beam.CombineFn):
    """Sums pairs of numbers."""

    def create_accumulator(self) -> tuple[int, int]:
        """Returns zeros."""
        return 0, 0

    def add_input(
        self, mutable_accumulator: tuple[int, int], element: tuple[int, int]
    ) -> tuple[int, int]:
        """Adds a pair."""
        return mutable_accumulator[0] + element[0], mutable_accumulator[1] + element[1]

    def merge_accumulators(self, accumulators: Iterable[tuple[int, int]]) -> tuple[int, int]:
        """Adds pairs."""
        records, sizes = zip(*accumulators, strict=True)
        return sum(records), sum(sizes)

    def extract_output(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        """Returns the sums."""
        return accumulator


def _count(sizes: tuple[int, int], parts: Callable[[int, int], int]) -> int | str:
    """Returns the number of parts, or the message of a UserError."""
    try:
        return parts(*sizes)
    except UserError as error:
        return str(error)


def _write(
    part: tuple[int, Iterable[tuple[bytes, bytes, bytes]]],
    total: int | str,
    write: Callable[[ShardRecords], Any],
) -> tuple[int, Any]:
    assert isinstance(total, int)  # or there are no parts
    number, given = part
    blocks = [_Block(*each) for each in given]
    keys = np.concatenate([np.frombuffer(block.keys, np.uint64) for block in blocks])
    records = [record for block in blocks for record in block.records()]
    chosen = order(keys, records.__getitem__)
    return number, write(ShardRecords(number, total, shards.encoded([records[i] for i in chosen])))
