"""Runs functions on Apache Beam: see `shuffle.Runner`.

Results of functions are passed in files (`official.utils.beam`), records only through Beam, in
blocks, which are tuples of bytes: every runner of Beam has a fast coder for them.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from official.utils import beam as pipelines
from official.utils.beam import Results, content, set_up
from official.utils.errors import UserError
from tfrecords_tools.writing import blocks
from tfrecords_tools.writing.blocks import Block, shard_records
from tfrecords_tools.writing.shuffle import (
    AnyCounts,
    Counts,
    Item,
    Keyed,
    Result,
    ShardRecords,
    sorted_blocks,
)


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
                | "size" >> beam.Map(_size)
                | "sizes" >> beam.CombineGlobally(_Sizes())
                | "number of parts" >> beam.Map(functools.partial(_count, parts=parts))
            )
            _ = size | "store the number" >> beam.Map(functools.partial(total.store, 0))
            _ = (
                records
                | "part" >> beam.FlatMap(_cut, total=beam.pvalue.AsSingleton(size))
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
        """Yields the records in blocks, as tuples of bytes; see `Block`."""
        number, item = element
        counts = self._counts()
        for keys, records in sorted_blocks(self._make(content(item)), counts, blocks.BYTES):
            yield tuple(Block.of(keys, records))
        self._made.store(number, counts)


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


def _size(block: tuple[bytes, bytes, bytes]) -> tuple[int, int]:
    return Block(*block).sizes()


def _cut(
    block: tuple[bytes, bytes, bytes], total: int | str
) -> Iterator[tuple[int, tuple[bytes, bytes, bytes]]]:
    """Yields the numbers of parts, and the records of each as a block."""
    if not isinstance(total, str):
        for number, part in Block(*block).parts(total):
            yield number, (part.keys, part.ends, part.data)


def _write(
    part: tuple[int, Iterable[tuple[bytes, bytes, bytes]]],
    total: int | str,
    write: Callable[[ShardRecords], Any],
) -> tuple[int, Any]:
    assert isinstance(total, int)  # or there are no parts
    number, given = part
    return number, write(shard_records(number, total, (Block(*each) for each in given)))
