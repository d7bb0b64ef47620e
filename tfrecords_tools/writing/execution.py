"""Where functions run: in processes of this machine, or on an engine."""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from official.utils import packed_files, paths, runner_flags
from official.utils.engines import Engine
from official.utils.parallel import Pool
from official.utils.paths import AnyPath
from tfrecords_tools.writing import folders

if TYPE_CHECKING:
    from tfrecords_tools.writing.shuffle import Runner

SMALL_BYTES = 8 << 20  # of input that is done before the processes of workers have started
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


def define_flags(values: flags.FlagValues = flags.FLAGS, of_size: bool = True) -> None:
    """Defines `--workers` and `--runner`.

    Args:
      values: the flag values to define them in.
      of_size: whether the default of `--workers` depends on the size of the input.
    """
    small = f", or 1 for files of less than {SMALL_BYTES >> 20} MB" if of_size else ""
    flags.DEFINE_integer(
        "workers",
        None,
        f"number of processes; default: the number of cores{small}",
        lower_bound=1,
        flag_values=values,
    )
    runner_flags.flag().define(values)


def from_flags(
    argv: Sequence[str],
    files: Callable[[], Iterable[AnyPath]] | None = None,
    values: flags.FlagValues = flags.FLAGS,
) -> Execution:
    """Returns the `Execution` that the flags select.

    Args:
      argv: the arguments that absl has not parsed.
      files: finds the input, files and folders, if the default depends on its size.
      values: the flags.

    Raises:
      UserError: there are arguments that are not flags, and not for an engine.
    """
    engine = runner_flags.engine(argv, values)
    if engine:
        return Execution(engine=engine)
    if values.workers is None and files is not None and _are_small(files()):
        return Execution()
    return Execution(values.workers or os.cpu_count() or 1)


def _are_small(given: Iterable[AnyPath]) -> bool:
    """Returns whether files, and the files in folders, have fewer than `SMALL_BYTES` together.

    A packed file counts as large as its text may be, and a pipe has any number of bytes.
    """
    size = 0
    for path in given:
        for file in path.rglob("*") if path.is_dir() else [path]:
            if not (file.is_file() or file.is_dir()):
                return False
            packed = packed_files.is_packed(file)
            size += file.stat().st_size * (packed_files.RATIO if packed else 1)
            if size >= SMALL_BYTES:
                return False
    return True


def _done(work: AnyPath) -> list[AnyPath]:
    """Returns one file for each item whose records are made."""
    return list(work.glob(f"{_RUNS}/*.counts"))
