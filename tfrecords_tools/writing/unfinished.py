"""The folder of a build that is not finished, with which the next run of it goes on.

`plan.json` says what the files are of. It is removed before files of another plan are, and written
when these are gone, so that files never have another plan than their own, whatever a killed process
or a power cut leaves.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from official.utils import atomic, checksums
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.writing import code_version, own_folder
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
      plan: everything that the files depend on beside the code, as JSON.
      done: returns whether a folder has something that is worth keeping.
      report: is called with a line for the user.

    Raises:
      UserError: another run is using the folder, or it is a link or another user's.
    """
    path = _place(output)
    own_folder.make(path)
    plan = json.loads(json.dumps({**plan, "code": code_version.digest()}))
    with _locked(path, output):
        try:
            earlier = json.loads((path / _PLAN).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            earlier = None
        if earlier != plan:
            if done(path):
                report(f"{path} is of another build ({_changed(earlier, plan)}): beginning anew")
            _clear(path)
            with atomic.file(path / _PLAN) as stream:
                json.dump(plan, stream)
        try:
            yield path
        except BaseException as error:
            if done(path) and (isinstance(error, WorkerKilled) or not isinstance(error, UserError)):
                report(f"what is done is kept in {path}: the same command goes on from there")
            else:
                _remove(path)
            raise
        _remove(path)


def _place(output: AnyPath) -> Path:
    """Returns the folder, which is beside a local output."""
    if isinstance(output, Path):
        return output.with_name(f".unfinished-{output.name}")
    name = f"unfinished-{checksums.hash_bytes(str(output).encode())[:16]}"
    return own_folder.temporary() / name


def _changed(earlier: Any, plan: Mapping[str, Any]) -> str:
    """Returns what differs between two plans, in words."""
    if not isinstance(earlier, dict):
        return "its plan is missing"
    return "other " + ", ".join(name for name in plan if earlier.get(name) != plan[name])


def _clear(path: Path) -> None:
    """Removes all but the lock, and waits until the disk has it so."""
    _remove_plan(path)
    for entry in path.iterdir():
        if entry.name == _LOCK:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    atomic.sync(path)


def _remove(path: Path) -> None:
    _remove_plan(path)
    shutil.rmtree(path)


def _remove_plan(path: Path) -> None:
    if (path / _PLAN).exists():
        atomic.remove(path / _PLAN)


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
