"""A shard folder that gets its name when it is complete."""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from official.shards import manifest
from official.utils import atomic
from official.utils.errors import UserError
from official.utils.paths import AnyPath


@contextlib.contextmanager
def new(output: AnyPath) -> Iterator[AnyPath]:
    """Yields a folder for the shards, whose manifest is written last.

    A local folder is renamed to `output` at the end. What killed runs with the same output left
    behind is removed.

    Raises:
      UserError: `output` is there already or is being written by another run, or the disk is full.
    """
    if isinstance(output, Path):
        _remove_leftovers(output)
    with atomic.folder(output, manifest.FILE, in_place=True) as folder, _locked(folder):
        yield folder


def _remove_leftovers(output: Path) -> None:
    name = re.compile(re.escape(f"{atomic.PREFIX}{output.name}-") + r"[a-z0-9_]{8}(-old)?")
    for path in output.parent.glob(f"{atomic.PREFIX}*"):
        if name.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            with _locked(path, fcntl.LOCK_EX):
                shutil.rmtree(path)


@contextlib.contextmanager
def _locked(folder: AnyPath, kind: int = fcntl.LOCK_SH) -> Iterator[None]:
    """Holds a lock that tells a local folder in use from one that a killed run left behind.

    A process that writes to the folder, with `atomic.file` too, holds a shared lock. A process that
    removes the folder needs an exclusive lock.
    """
    if not isinstance(folder, Path):
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder} is being written by another run: wait for its end") from None
        yield
    finally:
        os.close(descriptor)
