"""Applies functions to items on Apache Beam.

What the functions return is stored in files in a folder that all workers and this process reach. It
is read here when a pipeline has ended. Beam holds a pipeline in memory as a whole, so large items
are stored in files too.
"""

import contextlib
import dataclasses
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from official.utils import atomic, engines, paths
from official.utils.errors import UserError
from official.utils.parallel import Item, Result
from official.utils.paths import AnyPath

_USER_ERROR = re.compile(r"UserError: (.*)")
_WHERE = re.compile(r" \[while running '.*", re.DOTALL)  # which Beam adds to messages
_LARGE = 1 << 12  # bytes of an item


@dataclasses.dataclass(frozen=True)
class Runner:
    """Runs functions in Beam pipelines; see `official.utils.engines`.

    Attributes:
      options: options of Beam, as on its command lines.
      setup: is called once in each worker.
      folder: the folder for the results of functions; it is created.
    """

    options: Sequence[str]
    setup: Callable[[], None]
    folder: AnyPath

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def ordered(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """Yields `function(item)` for each item, in order, when all are done.

        Args:
          function: a pure function that can be pickled; it runs in the workers only.
          items: the items.

        Raises:
          UserError: the function raised it.
        """
        listed, results = self.listed(items), self.results("ordered")
        with self.pipeline() as pipeline:
            _ = (
                self.numbered(pipeline, listed)
                | "apply" >> beam.ParDo(_Apply(function, self.setup))
                | "store" >> beam.MapTuple(results.store)
            )
        yield from results.read(len(listed))

    @contextlib.contextmanager
    def pipeline(self) -> Iterator[beam.Pipeline]:
        """Yields a pipeline that runs at the end of the block.

        Raises:
          UserError: a function raised it.
        """
        options = PipelineOptions(list(self.options))
        standard = options.view_as(StandardOptions)
        # Beam's own default, DirectRunner, may be another engine: since Beam 2.68 it takes Prism if
        # it can fetch it, which ignores --direct_running_mode.
        standard.runner = standard.runner or "FnApiRunner"
        with engines.importable():
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

    def listed(self, items: Iterable[Item]) -> list["Item | Stored"]:
        """Returns the items, the large ones as files."""
        files = self.results("items")
        listed: list[Item | Stored] = []
        for number, item in enumerate(items):
            data = pickle.dumps(item)
            if len(data) <= _LARGE:
                listed.append(item)
                continue
            path = files.path(number)
            path.write_bytes(data)
            listed.append(Stored(path))
        return listed

    def numbered(
        self, pipeline: beam.Pipeline, items: Iterable["Item | Stored"]
    ) -> beam.PCollection:
        """Returns the items with their numbers, spread over the workers."""
        return pipeline | beam.Create(list(enumerate(items))) | beam.Reshuffle()

    def results(self, name: str) -> "Results":
        """Returns an empty folder of results for a step; earlier results of it are removed."""
        folder = self.folder / name
        paths.remove_tree(folder)
        folder.mkdir(parents=True)
        return Results(folder)


@dataclasses.dataclass(frozen=True)
class Results:
    """Numbered results in files."""

    folder: AnyPath

    def path(self, number: int) -> AnyPath:
        """Returns the file of a result."""
        return self.folder / f"{number:07d}"

    def store(self, number: int, result: Any) -> None:
        """Writes a result, whose file appears when it is whole: an attempt may be killed."""
        with atomic.file(self.path(number), "wb") as stream:
            stream.write(pickle.dumps(result))

    def read(self, count: int) -> Iterator[Any]:
        """Yields the results 0 to `count` - 1."""
        for number in range(count):
            yield pickle.loads(self.path(number).read_bytes())


class Stored(NamedTuple):
    """An item in a file."""

    path: AnyPath


def content(item: "Item | Stored") -> Item:
    """Returns an item, which may be in a file."""
    return pickle.loads(item.path.read_bytes()) if isinstance(item, Stored) else item


class _Apply(beam.DoFn):
    """Applies a function to numbered items."""

    def __init__(self, function: Callable, setup: Callable[[], None]):
        super().__init__()
        self._function, self._setup = function, setup

    def setup(self):
        """Sets up the worker."""
        set_up(self._setup)

    def process(self, element: tuple[int, Any]) -> Iterable[tuple[int, Any]]:
        """Yields the number and the result."""
        number, item = element
        yield number, self._function(content(item))


def set_up(setup: Callable[[], None]) -> None:
    """Sets up a worker."""
    # If workers are threads of a process that already uses TensorFlow, it is too late.
    with contextlib.suppress(RuntimeError):
        setup()
