"""Runs functions on Apache Beam: see `shuffle.Runner`.

What the functions return is stored in files in a folder that all workers and this process reach. It
is read here when a pipeline has ended. The records themselves go through Beam alone. Beam holds a
pipeline in memory as a whole, so large items are stored in files too.
"""

import contextlib
import dataclasses
import functools
import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from official.utils import paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.writing import shards
from tfrecords_tools.writing.shuffle import (
    OVERHEAD_BYTES,
    AnyCounts,
    Counts,
    Item,
    Keyed,
    Result,
    ShardRecords,
    order,
    part_of,
)

_ROOT = Path(__file__).parents[2]
_USER_ERROR = re.compile(r"UserError: (.*)")
_WHERE = re.compile(r" \[while running '.*", re.DOTALL)  # which Beam adds to messages
_KEY_BYTES = 8
_LARGE = 1 << 12  # bytes of an item


@dataclasses.dataclass(frozen=True)
class BeamRunner:
    """Runs functions in Beam pipelines.

    Attributes:
      options: options of Beam, as on its command lines.
      setup: is called once in each worker.
      folder: the folder for the results of functions; it is created.
    """

    options: Sequence[str]
    setup: Callable[[], None]
    folder: AnyPath

    def call(self, function: Callable[[Item], Result], item: Item) -> Result:
        """See `shuffle.Runner`; this process has loaded TensorFlow."""
        return function(item)

    def ordered(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """See `shuffle.Runner`."""
        listed, results = self._listed(items), self._results("ordered")
        with self._pipeline() as pipeline:
            _ = (
                self._numbered(pipeline, listed)
                | "apply" >> beam.ParDo(_Apply(function, self.setup))
                | "store" >> beam.MapTuple(results.store)
            )
        yield from results.read(len(listed))

    def shuffle(
        self,
        make: Callable[[Item], Iterator[Keyed[AnyCounts]]],
        items: Iterable[Item],
        parts: Callable[[int, int], int],
        write: Callable[[ShardRecords], Result],
        counts: type[AnyCounts],
        counted: Callable[[Item, AnyCounts], None],
    ) -> list[Result]:
        """See `shuffle.Runner`."""
        listed = self._listed(items)
        written, made, total = (self._results(name) for name in ("parts", "counts", "total"))
        with self._pipeline() as pipeline:
            records = (
                self._numbered(pipeline, listed)
                | "make" >> beam.ParDo(_Make(make, counts, made, self.setup))
                | "keep" >> beam.Reshuffle()
            )
            size = (
                records
                | "size" >> beam.Map(lambda keyed: (1, len(keyed[1]) + OVERHEAD_BYTES))
                | "sizes" >> beam.CombineGlobally(_Sizes())
                | "number of parts" >> beam.Map(functools.partial(_count, parts=parts))
            )
            _ = size | "store the number" >> beam.Map(functools.partial(total.store, 0))
            _ = (
                records
                | "part" >> beam.Map(_with_part, total=beam.pvalue.AsSingleton(size))
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
            counted(_content(item), item_counts)
        for part in range(number):
            if not written.path(part).exists():  # No key is in it.
                written.store(part, write(ShardRecords(part, number, [])))
        return list(written.read(number))

    @contextlib.contextmanager
    def _pipeline(self) -> Iterator[beam.Pipeline]:
        """Yields a pipeline that runs at the end of the block.

        Raises:
          UserError: a function raised it.
        """
        options = PipelineOptions(list(self.options))
        with _importable():
            try:
                with beam.Pipeline(options=options) as pipeline:
                    yield pipeline
            except Exception as error:
                message = str(error)
                if not isinstance(error, UserError):
                    if not (found := _USER_ERROR.search(message)):
                        raise
                    message = found[1]
                raise UserError(_WHERE.sub("", message)) from error

    def _listed(self, items: Iterable[Item]) -> list["Item | _Stored"]:
        """Returns the items, the large ones as files."""
        files = self._results("items")
        listed: list[Item | _Stored] = []
        for number, item in enumerate(items):
            data = pickle.dumps(item)
            if len(data) <= _LARGE:
                listed.append(item)
                continue
            path = files.path(number)
            path.write_bytes(data)
            listed.append(_Stored(path))
        return listed

    def _numbered(
        self, pipeline: beam.Pipeline, items: Iterable["Item | _Stored"]
    ) -> beam.PCollection:
        """Returns the items with their numbers, spread over the workers."""
        return pipeline | beam.Create(list(enumerate(items))) | beam.Reshuffle()

    def _results(self, name: str) -> "_Results":
        folder = self.folder / name
        paths.remove_tree(folder)
        folder.mkdir(parents=True)
        return _Results(folder)


@dataclasses.dataclass(frozen=True)
class _Results:
    """Numbered results in files."""

    folder: AnyPath

    def path(self, number: int) -> AnyPath:
        """Returns the file of a result."""
        return self.folder / f"{number:07d}"

    def store(self, number: int, result: Any) -> None:
        """Writes a result."""
        self.path(number).write_bytes(pickle.dumps(result))

    def read(self, count: int) -> Iterator[Any]:
        """Yields the results 0 to `count` - 1."""
        for number in range(count):
            yield pickle.loads(self.path(number).read_bytes())


class _Stored(NamedTuple):
    """An item in a file."""

    path: AnyPath


def _content(item: "Item | _Stored") -> Item:
    """Returns an item, which may be in a file."""
    return pickle.loads(item.path.read_bytes()) if isinstance(item, _Stored) else item


class _Apply(beam.DoFn):
    """Applies a function to numbered items."""

    def __init__(self, function: Callable, setup: Callable[[], None]):
        super().__init__()
        self._function, self._setup = function, setup

    def setup(self):
        """Sets up the worker."""
        _set_up(self._setup)

    def process(self, element: tuple[int, Any]) -> Iterable[tuple[int, Any]]:
        """Yields the number and the result."""
        number, item = element
        yield number, self._function(_content(item))


class _Make(beam.DoFn):
    """Makes the records of numbered items, and stores the counts of each item.

    (Some runners have one output of a function only.)
    """

    def __init__(
        self, make: Callable, counts: type[Counts], made: _Results, setup: Callable[[], None]
    ):
        super().__init__()
        self._make, self._counts, self._made, self._setup = make, counts, made, setup

    def setup(self):
        """Sets up the worker."""
        _set_up(self._setup)

    def process(self, element: tuple[int, Any]) -> Iterable[Any]:
        """Yields the keys and records."""
        number, item = element
        counts = self._counts()
        for keyed in self._make(_content(item)):
            counts.add(keyed.counts)
            for key, record in zip(keyed.keys.tolist(), keyed.records, strict=True):
                yield key.to_bytes(_KEY_BYTES, "big"), record
        self._made.store(number, counts)


class _Sizes(beam.CombineFn):
    """Adds pairs of numbers up."""

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
    """Returns the number of parts, or why there is none."""
    try:
        return parts(*sizes)
    except UserError as error:
        return str(error)


def _with_part(keyed: tuple[bytes, bytes], total: int | str) -> tuple[int, tuple[bytes, bytes]]:
    number = 0 if isinstance(total, str) else part_of(int.from_bytes(keyed[0], "big"), total)
    return number, keyed


def _write(
    part: tuple[int, Iterable[tuple[bytes, bytes]]],
    total: int | str,
    write: Callable[[ShardRecords], Any],
) -> tuple[int, Any]:
    number, keyed = part
    if isinstance(total, str):
        return number, None
    keys, records = zip(*keyed, strict=True)
    numbers = np.frombuffer(b"".join(keys), ">u8").astype(np.uint64)
    chosen = order(numbers, records.__getitem__)
    return number, write(ShardRecords(number, total, shards.encoded([records[i] for i in chosen])))


def _set_up(setup: Callable[[], None]) -> None:
    # Where a worker is a thread of a process that uses TensorFlow already, it is too late.
    with contextlib.suppress(RuntimeError):
        setup()


@contextlib.contextmanager
def _importable() -> Iterator[None]:
    """Lets processes that Beam starts on this machine import this package."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
