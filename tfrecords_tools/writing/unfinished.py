"""The folder of a build that is not finished, with which the next run of it goes on."""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from official.utils import atomic, checksums
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.writing.parallel import WorkerKilled

_PLAN, _LOCK = "plan.json", "lock"


@contextlib.contextmanager
def folder(
    output: AnyPath, plan: Mapping[str, Any], done: Callable[[Path], bool], report: Callable
) -> Iterator[Path]:
    """Yields the folder for what is done of a build, which may have files of an earlier run.

    It is removed at the end, and after an error of the input. If the run is stopped, if a process
    of it is killed or if the disk is full, it is kept, and the next run with the same plan gets it.

    Args:
      output: what the build makes.
      plan: everything that the files depend on, as JSON.
      done: returns whether a folder has something that is worth keeping.
      report: is called with a line for the user.

    Raises:
      UserError: another run is using the folder.
    """
    path = _place(output)
    atomic.make_folder(path)
    with _locked(path, output):
        try:
            earlier = json.loads((path / _PLAN).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            earlier = None
        if earlier != json.loads(json.dumps(plan)):
            _clear(path)
            with atomic.file(path / _PLAN) as stream:
                json.dump(plan, stream)
        try:
            yield path
        except BaseException as error:
            if done(path) and (isinstance(error, WorkerKilled) or not isinstance(error, UserError)):
                report(f"what is done is kept in {path}: the same command goes on from there")
            else:
                shutil.rmtree(path)
            raise
        shutil.rmtree(path)


def _place(output: AnyPath) -> Path:
    """Returns the folder, which is beside a local output."""
    if isinstance(output, Path):
        return output.with_name(f".unfinished-{output.name}")
    name = f"unfinished-{checksums.hash_bytes(str(output).encode())[:16]}"
    return Path(tempfile.gettempdir(), name)


def _clear(path: Path) -> None:
    for entry in path.iterdir():
        if entry.name == _LOCK:
            continue
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


@contextlib.contextmanager
def _locked(path: Path, output: AnyPath) -> Iterator[None]:
    # (Not the folder itself, which is locked by everyone who writes in it.)
    descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{output} is being written by another run: wait for its end") from None
        yield
    finally:
        os.close(descriptor)
