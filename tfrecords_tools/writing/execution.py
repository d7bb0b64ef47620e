"""Where functions run: in processes of this machine, or on an engine."""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from official.utils import paths, runner_flags
from official.utils.engines import Engine
from official.utils.parallel import Pool
from official.utils.paths import AnyPath
from tfrecords_tools.writing import folders

if TYPE_CHECKING:
    from tfrecords_tools.writing.shuffle import Runner

_RUNS = "runs"


class Started(NamedTuple):
    """A runner, and a folder that all its workers can access, which is removed at the end."""

    runner: "Runner"
    scratch: AnyPath


@dataclasses.dataclass(frozen=True)
class Execution:
    """Where functions run.

    Attributes:
      workers: the number of worker processes; 0 = this process does everything.
      engine: an engine with its options; None = processes of this machine.
    """

    workers: int = 0
    engine: Engine | None = None

    @contextlib.contextmanager
    def start(
        self,
        output: AnyPath,
        plan: Mapping[str, Any],
        setup: Callable[[], None],
        report: Callable[[str], None],
    ) -> Iterator[Started]:
        """Yields a runner. On this machine, it continues what an earlier run has done.

        Args:
          output: the file or folder that the functions make.
          plan: everything that the results depend on, as JSON values.
          setup: is called once in each worker.
          report: is called with lines for the user.

        Raises:
          UserError: another run is making the same output, or the engine is not installed or has
            a wrong option.
        """
        if self.engine:
            with _on_engine(self.engine, output, setup) as started:
                yield started
            return
        with folders.unfinished(output, plan, lambda work: bool(_done(work)), report) as work:
            if done := len(_done(work)):
                report(f"continuing an earlier run: {done:,} parts of the text are done")
            with self._local(setup, work / _RUNS) as runner:
                yield Started(runner, work)

    @contextlib.contextmanager
    def start_anew(
        self, output: AnyPath, setup: Callable[[], None], runs: Path | None = None
    ) -> Iterator[Started]:
        """Yields a runner that does not continue an earlier run.

        Args:
          output: the file or folder that the functions make.
          setup: is called once in each worker.
          runs: the local folder for sorted runs of records; None = a temporary one.

        Raises:
          UserError: the engine is not installed, or has a wrong option.
        """
        if self.engine:
            with _on_engine(self.engine, output, setup) as started:
                yield started
            return
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with self._local(setup, runs or folder / _RUNS) as runner:
                yield Started(runner, folder)

    @contextlib.contextmanager
    def _local(self, setup: Callable[[], None], runs: Path) -> Iterator["Runner"]:
        # imports NumPy; workers start before that
        from tfrecords_tools.writing.local import LocalRunner

        with Pool(self.workers, setup) if self.workers else contextlib.nullcontext() as pool:
            yield LocalRunner(pool, runs)


@contextlib.contextmanager
def _on_engine(engine: Engine, output: AnyPath, setup: Callable[[], None]) -> Iterator[Started]:
    scratch = output.with_name(f".runner-{output.name}")
    runner = engine.runner(__package__, setup, scratch / "results")
    if isinstance(scratch, Path):
        folders.make_own(scratch)
    _empty(scratch)  # files of a killed run
    try:
        with runner:
            yield Started(runner, scratch)
    finally:
        paths.remove_tree(scratch)


def _empty(folder: AnyPath) -> None:
    """Removes the contents of a folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir():
            paths.remove_tree(path)
        else:
            path.unlink()


def define_flags(
    values: flags.FlagValues = flags.FLAGS, workers: str = "the number of cores"
) -> None:
    """Defines `--workers` and `--runner`.

    Args:
      values: the flag values to define them in.
      workers: the default of `--workers`, in words, for the help text.
    """
    flags.DEFINE_integer(
        "workers",
        None,
        f"number of processes; default: {workers}",
        lower_bound=1,
        flag_values=values,
    )
    runner_flags.flag().define(values)


def from_flags(argv: Sequence[str], values: flags.FlagValues = flags.FLAGS) -> Execution:
    """Returns the `Execution` that the flags select.

    Args:
      argv: the arguments that absl has not parsed.
      values: the flags.

    Raises:
      UserError: there are arguments that are not flags, and not for an engine.
    """
    engine = runner_flags.engine(argv, values)
    if engine:
        return Execution(engine=engine)
    return Execution(values.workers or os.cpu_count() or 1)


def _done(work: AnyPath) -> list[AnyPath]:
    """Returns one file for each item whose records are made."""
    return list(work.glob(f"{_RUNS}/*.counts"))
