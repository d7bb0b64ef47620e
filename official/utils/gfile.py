"""Calls to remote file systems, those of TensorFlow and of fsspec, with the errors of Python.

`official.utils.paths` uses this module. The schemes of `official.utils.buckets` are fsspec's, whose
packages try again by themselves. All others are TensorFlow's, which is imported at the first call
and whose calls are tried again here.

TensorFlow knows `gs://` and `ram://`. The environment variable `GARDEN_FILE_SYSTEMS` names what
adds other file systems, separated by commas: a Python module that registers them when it is
imported, or the path of a shared library with a file system plugin (`.so`).
"""

import errno
import functools
import importlib
import io
import os
import random
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, BinaryIO, TypeVar

from official.utils import buckets, errors
from official.utils.errors import UserError

T = TypeVar("T")

VARIABLE = "GARDEN_FILE_SYSTEMS"
PREFIX = ".tmp-"  # the beginning of the names of files and folders that are not complete
_PAUSES = (0.1, 0.4, 1.6, 6.4, 25.6)  # seconds between tries
_READ, _WRITE = 512 << 10, 16 << 20  # bytes at once; TensorFlow reads so many
# TensorFlow's text for such an error in a graph on one machine.
_REPLACED = "originally returned UnavailableError, and was replaced by InternalError"
# Lines of a failed graph that say where its operation was made.
_PLACE = re.compile(r'Graph execution error:|Detected at node |File "|\(most recent call')
# Their files appear when they are closed, and their renaming is a copy.
_OBJECT_STORES = ("gs", "s3e", "oss")


class Patience:
    """Waits after errors that may pass, longer and longer, and then gives up.

    Args:
      place: the file or folder, for messages.
    """

    def __init__(self, place: str):
        self._place = place
        self._pauses = iter(_PAUSES)

    def wait(self, error: Exception) -> None:
        """Waits until the next try.

        Raises:
          UserError: there were enough tries.
        """
        pause = next(self._pauses, None)
        if pause is None:
            raise UserError(
                f"{self._place}: the file system fails again and again, for {sum(_PAUSES):.0f} "
                f"seconds now ({words(error)}): try again when it works"
            ) from error
        if pause > 1:
            errors.warn(f"{self._place}: {words(error)}; the next try is in {pause:.0f} seconds")
        time.sleep(pause * random.uniform(0.75, 1.25))


def retried(uri: str, work: Callable[[Any], T]) -> T:
    """Calls a function that works on a remote file, and again after an error that may pass.

    Args:
      uri: the file or folder, for messages.
      work: takes `tf.io.gfile`, or a `Bucket`. It may be called several times.

    Raises:
      FileNotFoundError: there is no such file.
      FileExistsError: there is such a file.
      UserError: the file system is not known, does not answer, or refuses.
    """
    if by_fsspec(uri):
        return _in_bucket(uri, work)
    tf = _tensorflow(uri)
    patience = Patience(uri)
    while True:
        try:
            return work(tf.io.gfile)
        except (tf.errors.InternalError, tf.errors.UnknownError) as error:
            patience.wait(error)
        except tf.errors.NotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), uri) from error
        except tf.errors.AlreadyExistsError as error:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), uri) from error
        except tf.errors.OpError as error:
            if not may_pass(error):
                raise UserError(
                    f"{uri}: {words(error)}: check the path, the network, and what you may read "
                    "and write there"
                ) from error
            patience.wait(error)


def by_fsspec(uri: str) -> bool:
    """Returns whether fsspec opens a file, and not TensorFlow, which cannot."""
    return buckets.scheme(uri) is not None


def _in_bucket(uri: str, work: Callable[[Any], T]) -> T:
    """Calls a function as `retried` does, once: the packages of fsspec try again."""
    try:
        return work(buckets.Bucket(uri))
    except UserError:
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), uri) from error
    except FileExistsError as error:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), uri) from error
    except Exception as error:  # each package has errors of its own
        raise UserError(
            f"{uri}: {buckets.words(error)}: check the path, the network, the credentials and what "
            "you may read and write there, and try again"
        ) from error


def each(read: Callable[[int], Iterable[T]], place: str) -> Iterator[T]:
    """Yields items that TensorFlow reads; if one cannot be read, reading begins again there.

    Args:
      read: returns the items from a number on.
      place: the file or folder, for messages.

    Raises:
      UserError: an item cannot be read after several tries.
    """
    number, rest, patience = 0, iter(read(0)), Patience(place)
    while True:
        try:
            item = next(rest)
        except StopIteration:
            return
        except _load_file_systems().errors.OpError as error:
            if not may_pass(error):
                raise
            patience.wait(error)
            rest = iter(read(number))
            continue
        yield item
        number, patience = number + 1, Patience(place)


def may_pass(error: Exception) -> bool:
    """Returns whether an error may be gone later, also one of a graph that reads files."""
    known = _load_file_systems().errors
    passing = known.UnavailableError, known.DeadlineExceededError, known.AbortedError
    return isinstance(error, passing) or _REPLACED in str(error)


def words(error: Exception) -> str:
    """Returns the kind of TensorFlow's error, and the line of its message about a file.

    Without a file, it is the first line that does not say where the operation was made.
    """
    said = getattr(error, "message", None) or ""
    kind = "Unavailable" if _REPLACED in said else type(error).__name__.removesuffix("Error")
    lines = [line.strip() for line in re.sub(r"{{.*?}}", "", said).splitlines()]
    lines = [line for line in lines if line and not _PLACE.match(line)]
    line = next((line for line in lines if "://" in line), lines[0] if lines else "")
    return f"{kind}: {line}" if line else kind


class Reader(io.RawIOBase):
    """Reads a remote file; a read that fails is tried again at its place.

    Raises:
      FileNotFoundError: there is no such file.
    """

    def __init__(self, uri: str):
        super().__init__()
        self._uri = uri
        self._file: Any = None  # a file of TensorFlow; None = it is opened at the next read
        self._position = 0
        retried(
            uri, lambda fs: self._read(fs, 1)
        )  # some file systems open a missing file without an error

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns the place of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Sets the place of the next byte, and returns it."""
        size = retried(self._uri, self._size) if whence == os.SEEK_END else 0
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._uri)
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Reads at most as many bytes as the buffer has room for; returns their number."""
        size = min(len(buffer), _READ)  # small reads, each of which is tried again if it fails
        data = retried(self._uri, lambda fs: self._read(fs, size))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self) -> bytes:
        """Reads to the end of the file, even if it has grown."""
        parts = []
        while part := self.read(_READ):
            parts.append(part)
        return b"".join(parts)

    def _size(self, fs: Any) -> int:
        return fs.stat(self._uri).length

    def _read(self, fs: Any, size: int) -> bytes:
        try:
            if self._file is None:
                self._file = fs.GFile(self._uri, "rb")
            self._file.seek(self._position)
            return self._file.read(size)
        except Exception:
            self._file = None
            raise


class Writer(io.FileIO):
    """A file on the local disk that replaces a remote file when it is closed."""

    def __init__(self, uri: str):
        descriptor, name = tempfile.mkstemp(prefix=PREFIX)
        os.unlink(name)
        super().__init__(descriptor, "w+b")
        self._uri = uri

    def close(self) -> None:
        """Writes the remote file."""
        if not self.closed:
            try:
                put(self._uri, self)
            finally:
                super().close()


def put(uri: str, source: BinaryIO) -> None:
    """Writes a remote file with the bytes of a stream, from its beginning.

    The file appears under its name when it is whole: an object store shows a file when it is
    closed; elsewhere it is written under a temporary name and renamed.
    """
    target = uri
    if not _appears_whole(uri):
        name = uri.rpartition("/")[2]
        folder = uri.removesuffix(name)
        target = f"{folder}{PREFIX}{name}-{uuid.uuid4().hex[:8]}"
        retried(folder, lambda fs: fs.makedirs(folder))
    tried, size = False, 0

    def write(fs: Any) -> None:
        nonlocal tried, size
        if tried and target != uri and fs.exists(target):
            fs.remove(target)  # `ram://` appends to an existing file
        tried = True
        if isinstance(fs, buckets.Bucket):
            size = fs.put(target, source)
            return
        source.seek(0)
        with fs.GFile(target, "wb") as file:
            file.write(source.read(_WRITE))  # makes the file, even if it is empty
            while data := source.read(_WRITE):
                file.write(data)
        size = source.tell()

    try:
        retried(uri, write)
    except FileNotFoundError as error:
        raise UserError(f"{uri}: there is no such bucket: make it, or name another") from error
    found = retried(target, lambda fs: fs.stat(target).length)
    if found != size:
        raise UserError(f"{uri}: {found:,} of {size:,} bytes were written: write it again")
    if target != uri:
        rename(target, uri)


def _appears_whole(uri: str) -> bool:
    """Returns whether a file is not seen before it is closed."""
    if (scheme := buckets.scheme(uri)) is not None:
        return scheme.whole
    return uri.partition("://")[0] in _OBJECT_STORES


def exists(uri: str) -> bool:
    """Returns whether there is a file or folder."""
    if by_fsspec(uri):
        return retried(uri, lambda fs: fs.exists(uri))
    invalid = _tensorflow(uri).errors.InvalidArgumentError

    def work(fs: Any) -> bool:
        try:
            return fs.exists(uri)
        except invalid:  # no file can have this name
            return False

    return retried(uri, work)


def children(uri: str) -> list[str]:
    """Returns the names in a remote folder."""
    if by_fsspec(uri):
        return retried(uri, lambda fs: fs.listdir(uri))
    errors_of_files = _tensorflow(uri).errors

    def work(fs: Any) -> list[str]:
        try:
            return fs.listdir(uri)
        except errors_of_files.NotFoundError:
            # `listdir` and `isdir` take a folder for missing after any error.
            if fs.stat(uri).is_directory:
                raise errors_of_files.UnavailableError(None, None, "no listing") from None
            raise

    return retried(uri, work)


def rename(source: str, target: str) -> None:
    """Gives a remote file another name; a file of this name is replaced."""
    _once(
        target,
        lambda fs: fs.rename(source, target, overwrite=True),
        done=lambda fs: not fs.exists(source) and fs.exists(target),
    )


def remove(uri: str) -> None:
    """Removes a remote file.

    Raises:
      FileNotFoundError: there is no such file.
    """
    _once(uri, lambda fs: fs.remove(uri), done=lambda fs: not fs.exists(uri))


def _once(uri: str, work: Callable[[Any], None], done: Callable[[Any], bool]) -> None:
    """Calls a function as `retried` does, but not again if a try failed after its work was done.

    Args:
      uri: see `retried`.
      work: takes `tf.io.gfile`, and cannot be called twice.
      done: takes `tf.io.gfile`, and returns whether the work was done.
    """
    tried = False

    def attempt(fs: Any) -> None:
        nonlocal tried
        finished, tried = tried and done(fs), True
        if not finished:
            work(fs)

    retried(uri, attempt)


@functools.cache
def _load_file_systems() -> ModuleType:
    """Returns TensorFlow, which has the file systems of the environment from now on."""
    import tensorflow as tf

    for name in filter(None, os.environ.get(VARIABLE, "").split(",")):
        try:
            if name.endswith(".so"):
                tf.experimental.register_filesystem_plugin(name)
            else:
                importlib.import_module(name)
        except (ImportError, OSError, RuntimeError, tf.errors.OpError) as error:
            raise UserError(f"{VARIABLE}: {name} cannot be loaded: {error}") from error
    return tf


def _tensorflow(uri: str) -> ModuleType:
    tf = _load_file_systems()
    scheme = uri.partition("://")[0]
    known = sorted(filter(None, tf.io.gfile.get_registered_schemes()))
    if scheme not in known:
        raise UserError(
            f"{uri}: no file system {scheme}:// is known here, only "
            f"{', '.join(f'{name}://' for name in [*known, *buckets.SCHEMES])}. {VARIABLE} may "
            "name a Python module or a library (.so) that adds it to TensorFlow"
        )
    return tf
