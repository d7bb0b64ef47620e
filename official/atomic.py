"""Files and folders that appear under their final name only when they are whole."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from official.errors import UserError

PREFIX = ".tmp-"


@contextlib.contextmanager
def folder(path: str | os.PathLike, replace: bool = False) -> Iterator[Path]:
    """Yields an empty folder beside `path` that becomes `path` when the block ends well.

    Args:
      path: the final name.
      replace: whether an existing folder of that name may be replaced.

    Raises:
      UserError: `path` is there already and `replace` is false, or the disk is full.
    """
    path = Path(path)
    if path.exists() and not replace and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} is there already: name another folder or remove it first")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{path.name}-", dir=path.parent))
    try:
        with _disk_errors(path):
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    _sync(file)
            temporary.chmod(0o755)
            if path.exists():
                retired = temporary.with_name(f"{temporary.name}-old")
                os.rename(path, retired)
                os.rename(temporary, path)
                shutil.rmtree(retired)
            else:
                os.rename(temporary, path)
            _sync(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextlib.contextmanager
def file(path: str | os.PathLike, mode: str = "w") -> Iterator[IO]:
    """Yields an open file that takes the name `path` when the block ends well.

    Raises:
      UserError: the disk is full.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f"{PREFIX}{path.name}-", dir=path.parent)
    try:
        with _disk_errors(path):
            encoding = None if "b" in mode else "utf-8"
            with os.fdopen(descriptor, mode, encoding=encoding) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def sweep(parent: str | os.PathLike) -> None:
    """Removes what a killed process left half-written in `parent`."""
    for path in Path(parent).glob(f"{PREFIX}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UserError(
                f"no room to write {path} ({error.strerror}): free some space and run again; "
                "nothing was left half-written"
            ) from error
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
