"""The folders that builds write to: shards, and the work of a build that is not finished.

A shard folder is renamed to its final name when it is complete (`new_shards`).

The work of an unfinished build is kept, and the next run of the same build continues it
(`unfinished`). `plan.json` describes the build that the files belong to. When the plan changes, it
is removed first, then the files, and then the new plan is written. So files are never combined with
the plan of another build, even after a killed process or a power cut.

Other users can guess the names of these folders. If they can write to the parent folder, they may
have created a link or a folder with such a name, and this program would read or remove their files.
So only folders of this user are used (`make_own`, `temporary`).
"""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from official.shards import manifest
from official.utils import atomic, checksums
from official.utils.errors import UserError
from official.utils.parallel import WorkerKilled
from official.utils.paths import AnyPath

_PLAN, _LOCK = "plan.json", "lock"
# The code that decides the records of a build.
_ROOT = Path(__file__).parents[2]
_PACKAGES = ("tfrecords_tools", *(f"official/{name}" for name in (
    "config", "corruption", "shards", "tasks", "tokenizers", "utils",
)))  # fmt: skip
_LIBRARIES = ("numpy", "sentencepiece", "tensorflow")


@contextlib.contextmanager
def new_shards(output: AnyPath) -> Iterator[AnyPath]:
    """Yields a folder for the shards, whose manifest is written last.

    A local folder is renamed to `output` at the end. Folders that killed runs with the same output
    have left are removed, and files of killed attempts in this one.

    Raises:
      UserError: `output` exists or is being written by another run, or the disk is full.
    """
    if isinstance(output, Path):
        _remove_leftovers(output)
    with atomic.folder(output, manifest.FILE, in_place=True) as folder:
        yield folder
        for path in folder.glob(f"{atomic.PREFIX}*"):
            if atomic.LEFT_OVER.fullmatch(path.name):
                path.unlink(missing_ok=True)


def _remove_leftovers(output: Path) -> None:
    begin = re.escape(f"{atomic.PREFIX}{output.name}-")
    name = re.compile(begin + r"([0-9a-f]{8}-)?[a-z0-9_]{8}(-old)?")
    for path in output.parent.glob(f"{atomic.PREFIX}*"):
        if name.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            with _locked(path, path):
                shutil.rmtree(path)


@contextlib.contextmanager
def unfinished(
    output: AnyPath, plan: Mapping[str, Any], done: Callable[[Path], bool], report: Callable
) -> Iterator[Path]:
    """Yields the folder for the finished parts of a build, which may have files of an earlier run.

    It is removed at the end, and after an error of the input. If the run is stopped, if a process
    of it is killed or if the disk is full, it is kept, and the next run with the same plan gets it.

    Args:
      output: the file or folder that the build makes.
      plan: everything, except the code, that the files depend on, as JSON values.
      done: returns whether a folder has finished work.
      report: is called with a line for the user.

    Raises:
      UserError: another run is using the folder, or it is a link or another user's.
    """
    path = _work_folder(output)
    make_own(path)
    plan = json.loads(json.dumps({**plan, "code": code_digest()}))
    # All writers lock the folder itself, so a separate file is locked for the build.
    with _locked(_lock_file(path), output):
        try:
            _take_over(path, plan, done, report)
            yield path
        except BaseException as error:
            if done(path) and (isinstance(error, WorkerKilled) or not isinstance(error, UserError)):
                report(
                    f"the finished part is kept in {path}: the same command continues from there"
                )
            else:
                _remove(path)
            raise
        _remove(path)


def _lock_file(path: Path) -> Path:
    """Makes and returns the lock file of a build; if the disk is full, leaves no folder."""
    try:
        with atomic.disk_errors(path):
            (path / _LOCK).touch()
    except UserError:
        with contextlib.suppress(OSError):
            path.rmdir()
        raise
    return path / _LOCK


def _take_over(
    path: Path, plan: Mapping[str, Any], done: Callable[[Path], bool], report: Callable
) -> None:
    """Writes the plan; files of another plan are removed first."""
    try:
        earlier = json.loads((path / _PLAN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        earlier = None
    if earlier == plan:
        return
    if done(path):
        report(f"{path} belongs to another build ({_changed(earlier, plan)}): starting again")
    _clear(path)
    with atomic.file(path / _PLAN) as stream:
        json.dump(plan, stream)


def _work_folder(output: AnyPath) -> Path:
    """Returns the folder for the work, which is beside a local output."""
    if isinstance(output, Path):
        return output.with_name(f".unfinished-{output.name}")
    name = f"unfinished-{checksums.hash_bytes(str(output).encode())[:16]}"
    return temporary() / name


def _changed(earlier: Any, plan: Mapping[str, Any]) -> str:
    """Describes the differences between two plans."""
    if not isinstance(earlier, dict):
        return "its plan is missing"
    return "other " + ", ".join(name for name in plan if earlier.get(name) != plan[name])


def _clear(path: Path) -> None:
    """Removes everything but the lock file, and waits until the disk has done so."""
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
def _locked(path: Path, what: AnyPath) -> Iterator[None]:
    """Holds an exclusive lock on a file or folder.

    A process that writes to a folder holds a shared lock on it: see `atomic.folder`. A process that
    removes a folder of a killed run needs an exclusive lock.

    Args:
      path: the file or folder.
      what: the path in the message.

    Raises:
      UserError: another process holds the lock.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{what} is being written by another run: wait for its end") from None
        yield
    finally:
        os.close(descriptor)


def make_own(path: Path) -> None:
    """Makes a folder and its parents, unless it exists and belongs to this user.

    Raises:
      UserError: it is a link, or it belongs to another user and others can write to its parent.
    """
    atomic.make_folder(path.parent)
    with atomic.disk_errors(path), contextlib.suppress(FileExistsError):
        os.mkdir(path)
        atomic.sync(path.parent)
    shared = path.parent.stat().st_mode & stat.S_IWOTH
    _check_own(path, owned=bool(shared), advice="remove it, or name another --output")


def temporary() -> Path:
    """Returns a private folder of this user in `TMPDIR`, the same at each call.

    Raises:
      UserError: the path is a link, or other users own the folder or can enter it.
    """
    path = Path(tempfile.gettempdir(), f"encoder-garden-{os.getuid()}")
    with atomic.disk_errors(path), contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    advice = "remove it, or set TMPDIR to a folder of your own"
    if _check_own(path, owned=True, advice=advice).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UserError(f"{path}: other users may enter it: {advice}")
    return path


def _check_own(path: Path, owned: bool, advice: str) -> os.stat_result:
    """Returns the status of a folder; refuses links and, if `owned`, folders of other users."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        what = "a link" if stat.S_ISLNK(status.st_mode) else "no folder"
        raise UserError(f"{path} is {what}, where unfinished work is kept: {advice}")
    if owned and status.st_uid != os.getuid():
        raise UserError(f"{path} belongs to another user: {advice}")
    return status


@functools.cache
def code_digest() -> str:
    """Returns the SHA-256 of all sources that records depend on, and of the libraries' versions."""
    hashed = hashlib.sha256()
    for name in _LIBRARIES:
        hashed.update(f"{name} {_version(name)}\n".encode())
    for path in sources():
        hashed.update(f"{path.relative_to(_ROOT)}\n".encode() + path.read_bytes())
    return hashed.hexdigest()


def sources() -> list[Path]:
    """Returns the source files."""
    return [path for name in _PACKAGES for path in sorted((_ROOT / name).rglob("*.py"))]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
