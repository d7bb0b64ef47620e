"""Lets one training run at a time write to a model folder; whoever reads the folder needs no lock.

The run holds the file `training.lock`, which says which process it is.

* On local file systems and NFS, the file has a lock of the operating system, which ends with the
  process, however that ends.
* Where there are no such locks (`gs://`, some file systems of clusters), the file itself is the
  lock. The run writes it again every `RENEWAL` seconds. One that nobody has written for `PATIENCE`
  seconds was left by a killed process: the next run waits for that long, and takes it over. If the
  killed process was one of this machine, the next run does not wait.

A run that ends removes the file.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

FILE = "training.lock"
RENEWAL = 10.0
PATIENCE = 45.0
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextlib.contextmanager
def held(
    model_dir: str | os.PathLike, report: Callable[[str], None] = print
) -> Iterator[Callable[[], None]]:
    """Holds the lock of a model folder, which is made, during the block.

    Args:
      model_dir: the folder.
      report: takes the line that says why a run waits.

    Yields:
      A function that raises UserError if another run has taken the lock over, which can happen
      where the file itself is the lock.

    Raises:
      UserError: another run holds the lock, or the folder cannot be written.
    """
    model_dir = paths.path(model_dir)
    file = model_dir / FILE
    existed = model_dir.exists()
    atomic.make_folder(model_dir)
    try:
        with atomic.disk_errors(file):
            descriptor = _lock(file) if isinstance(file, Path) else None
        if descriptor is None:
            with _lease(file, report) as check:
                yield check
        else:
            try:
                yield lambda: None
            finally:
                file.unlink(missing_ok=True)
                os.close(descriptor)
    finally:
        if not existed and isinstance(model_dir, Path):
            with contextlib.suppress(OSError):
                model_dir.rmdir()  # the run has ended before it wrote anything


def _lock(file: Path) -> int | None:
    """Locks a file; returns its descriptor, or None if the file system has no locks."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise _refused(file, _read(file)) from None
        except OSError as error:
            os.close(descriptor)
            if error.errno in _NO_LOCKS:
                return None
            raise
        if _is_at(descriptor, file):
            break
        os.close(descriptor)  # the run that held it has just removed the file
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, json.dumps(_owner()).encode())
    except OSError:
        file.unlink()
        os.close(descriptor)
        raise
    return descriptor


def _is_at(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _lease(file: AnyPath, report: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Holds a lock file, and renews its content as long as the run goes on."""
    _wait_until_free(file, report)
    owner = _owner()
    _write(file, owner)
    ended = threading.Event()

    def renew():
        number = 0
        while not ended.wait(RENEWAL):
            number += 1
            # A file system may fail for a while, and a lock that was taken over is not ours.
            with contextlib.suppress(Exception):
                if _same(_read(file), owner):
                    _write(file, {**owner, "renewal": number})

    def check():
        holder = _read(file)
        if holder and not _same(holder, owner):
            raise _refused(file, holder)

    thread = threading.Thread(target=renew, name="training lock", daemon=True)
    thread.start()
    try:
        yield check
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(Exception):
            if _same(_read(file), owner):
                file.unlink(missing_ok=True)


def _wait_until_free(file: AnyPath, report: Callable[[str], None]) -> None:
    """Returns as soon as nobody holds a lock file.

    Raises:
      UserError: it is written again while we wait.
    """
    holder = _read(file)
    if not holder or _has_ended(holder):
        return
    report(f"{file} names {_words(holder)}: waiting {PATIENCE:.0f} s for a sign that it goes on")
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        time.sleep(min(1.0, RENEWAL / 2))
        now = _read(file)
        if not now:
            return
        if now != holder:
            raise _refused(file, now)


def _owner() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "machine": _machine(),
        "started": time.time_ns(),
    }


def _machine() -> str:
    """Returns an id of this boot of this machine and of its process ids; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _has_ended(owner: dict[str, Any]) -> bool:
    """Returns whether a lock was written by a process of this machine that has ended."""
    if not _machine() or owner.get("machine") != _machine():
        return False
    try:
        os.kill(int(owner["process"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, KeyError, OverflowError):
        pass
    return False


def _same(holder: dict[str, Any], owner: dict[str, Any]) -> bool:
    return {name: holder.get(name) for name in owner} == owner


def _read(file: AnyPath) -> dict[str, Any]:
    """Returns the content of the file; empty if there is none, or nothing that can be read."""
    try:
        content = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(file: AnyPath, content: dict[str, Any]) -> None:
    with atomic.file(file) as stream:
        json.dump(content, stream)


def _words(owner: dict[str, Any]) -> str:
    if not owner:
        return "another process"
    return f"process {owner.get('process')} of {owner.get('host')}, since {owner.get('since')}"


def _refused(file: AnyPath, owner: dict[str, Any]) -> UserError:
    return UserError(
        f"{file.parent}: another run trains in this model folder ({_words(owner)}). Wait until "
        "it has ended, stop it (at SIGTERM it saves a checkpoint, from which this command goes "
        "on), or name another --model_dir"
    )
