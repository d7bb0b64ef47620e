"""Paths of any file system: local ones as `pathlib.Path`, and URIs such as `gs://bucket/folder`.

`package:NAME` is a local path too: the model folder of a package of the Python index.

`path` is called wherever a path comes from the user. A `RemotePath` has the part of the interface
of `pathlib.Path` that the project uses. It may be of any file system that `tf.io.gfile` or fsspec
knows; see `official.utils.gfile`. Local paths import neither.

Remote file systems may have no locks, no renaming of folders and no appending, and a new file may
be missing in listings for a while. `official.utils.atomic` says how files and folders are written
there.
"""

import contextlib
import dataclasses
import errno
import fnmatch
import functools
import glob
import io
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, overload

from official.utils import gfile
from official.utils.errors import UserError

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")
_BROKEN_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/[^/]")  # `pathlib` joins slashes
_PACKAGE = "package:"
_BUFFER = 1 << 20  # bytes
# Of a file that is read into memory: the largest vocabularies and configs have a few MiB.
MAX_BYTES = 64 << 20


def path(name: str | os.PathLike) -> "AnyPath":
    """Returns a local path, or a `RemotePath` if the name is a URI.

    A `~` at the beginning is the home folder, as a shell has it. `package:NAME` is the model folder
    of a package, which is made if it is not there: see `official.utils.model_packages`.

    Raises:
      UserError: a `pathlib.Path` was made of a URI, the name is not UTF-8, or there is no such
        package.
    """
    if isinstance(name, RemotePath):
        return name
    text = os.fspath(name)
    try:
        text.encode()
    except UnicodeEncodeError:  # TensorFlow's file systems take UTF-8 alone
        raise UserError(f"{ascii(text)}: the name is not UTF-8: rename the file") from None
    if text.startswith(_PACKAGE):
        from official.utils import model_packages

        return model_packages.path(text)
    if found := _URI.match(text):
        if found[1] == "file":
            return Path(text.removeprefix("file://"))
        return RemotePath(text)
    if isinstance(name, Path) and _BROKEN_URI.match(text) and not name.exists():
        raise UserError(f"{name}: a pathlib.Path cannot be a URI: give it as text")
    return Path(name).expanduser() if text.startswith("~") else Path(name)


def is_remote(name: str | os.PathLike) -> bool:
    """Returns whether a path is a URI."""
    return isinstance(path(name), RemotePath)


@dataclasses.dataclass(frozen=True)
class Stat:
    """Facts about a remote file.

    Attributes:
      st_size: its bytes.
      st_mtime: when it was written, in seconds since 1970.
    """

    st_size: int
    st_mtime: float


@functools.total_ordering
class RemotePath(os.PathLike):
    """A file or folder of a remote file system. Methods do what those of `Path` do.

    `etils.epath` knows `gs`, `s3`, `az` and `hf` alone, and neither TensorFlow's `ram://` nor what
    `GARDEN_FILE_SYSTEMS` adds. It has no remote `**`, and lists a local folder in five times the
    time.
    """

    __slots__ = ("_uri",)

    def __init__(self, uri: str):
        scheme, mark, rest = uri.partition("://")
        self._uri = scheme + mark + rest.rstrip("/")

    def __str__(self) -> str:
        return self._uri

    def __fspath__(self) -> str:
        return self._uri

    def __repr__(self) -> str:
        return f"RemotePath({self._uri!r})"

    def __reduce__(self):
        return RemotePath, (self._uri,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self._uri == other._uri

    def __lt__(self, other: "RemotePath") -> bool:
        return self._uri < other._uri

    def __hash__(self) -> int:
        return hash(self._uri)

    def __truediv__(self, other: str | os.PathLike) -> "AnyPath":
        text = os.fspath(other)
        if _URI.match(text) or text.startswith("/"):
            return path(text)
        return self._inner(text)

    def _inner(self, name: str) -> "RemotePath":
        return RemotePath(f"{self._uri}{'' if self._uri.endswith('/') else '/'}{name}")

    def joinpath(self, *others: str | os.PathLike) -> "AnyPath":
        """Returns the path of something in this folder."""
        found: AnyPath = self
        for other in others:
            found = found / other
        return found

    @property
    def name(self) -> str:
        """The last name."""
        return self._uri.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The last name without its suffix."""
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        """The end of the last name, from its last dot."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> "RemotePath":
        """The folder; `gs://` is its own."""
        return RemotePath(self._uri.removesuffix(self.name))

    @property
    def parents(self) -> tuple["RemotePath", ...]:
        """All folders, the nearest one first."""
        return (self.parent, *self.parent.parents) if self.name else ()

    def with_name(self, name: str) -> "RemotePath":
        """Returns the path of a neighbor."""
        return self.parent._inner(name)

    def with_suffix(self, suffix: str) -> "RemotePath":
        """Returns the path with another suffix."""
        return self.with_name(self.stem + suffix)

    def is_absolute(self) -> bool:
        """Returns True."""
        return True

    def resolve(self) -> "RemotePath":
        """Returns the path itself."""
        return self

    def is_relative_to(self, other: str | os.PathLike) -> bool:
        """Returns whether the path is `other` or is in it."""
        other = str(path(other))
        return self._uri == other or self._uri.startswith(f"{other}/")

    @overload
    def open(self, mode: Literal["rb"]) -> io.BufferedReader: ...
    @overload
    def open(self, mode: Literal["wb"]) -> io.BufferedWriter: ...
    @overload
    def open(
        self, mode: str = "r", encoding: str | None = None, newline: str | None = None
    ) -> IO: ...

    def open(self, mode: str = "r", encoding: str | None = None, newline: str | None = None) -> Any:
        """Opens the file, `r` or `w`, binary or text (UTF-8 without `encoding`).

        A file that is written is on the local disk until it is closed. It then replaces the remote
        one; see `official.utils.gfile.put`.
        """
        kind = mode.replace("b", "").replace("t", "")
        if kind not in ("r", "w"):
            raise ValueError(f"{self}: mode {mode!r}: remote files are read or written as a whole")
        stream: io.BufferedReader | io.BufferedWriter
        if kind == "r":
            stream = io.BufferedReader(gfile.Reader(self._uri), _BUFFER)
        else:
            stream = io.BufferedWriter(gfile.Writer(self._uri), _BUFFER)
        if "b" in mode:
            return stream
        return io.TextIOWrapper(stream, encoding or "utf-8", newline=newline)

    def read_bytes(self) -> bytes:
        """Returns the content."""
        return gfile.Reader(self._uri).readall()

    def read_text(self, encoding: str = "utf-8") -> str:
        """Returns the content as text."""
        with self.open("r", encoding) as stream:
            return stream.read()

    def write_bytes(self, data: bytes) -> int:
        """Replaces the content."""
        gfile.put(self._uri, io.BytesIO(data))
        return len(data)

    def write_text(self, text: str, encoding: str = "utf-8") -> int:
        """Replaces the content by text."""
        self.write_bytes(text.encode(encoding))
        return len(text)

    def exists(self) -> bool:
        """Returns whether there is such a file or folder."""
        return gfile.exists(self._uri)

    def is_file(self) -> bool:
        """Returns whether it is a file."""
        return self._is_directory() is False

    def is_dir(self) -> bool:
        """Returns whether it is a folder, which some file systems know from listings only."""
        return self._is_directory() is True

    def _is_directory(self) -> bool | None:
        try:
            return gfile.retried(self._uri, lambda fs: fs.stat(self._uri)).is_directory
        except FileNotFoundError:
            return None

    def is_symlink(self) -> bool:
        """Returns False."""
        return False

    def stat(self) -> Stat:
        """Returns size and time of the file."""
        found = gfile.retried(self._uri, lambda fs: fs.stat(self._uri))
        return Stat(found.length, found.mtime_nsec / 1e9)

    def iterdir(self) -> Iterator["RemotePath"]:
        """Yields what the folder contains, sorted by name."""
        names = {name.rstrip("/") for name in gfile.children(self._uri)}
        yield from (self._inner(name) for name in sorted(names) if name)

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        """Yields what matches a pattern, sorted; `**` stands for folders at any depth."""
        return iter(sorted(set(self._matches(pattern))))

    def _matches(self, pattern: str) -> Iterator["RemotePath"]:
        first, _, rest = pattern.partition("/")
        if not glob.has_magic(first):
            inner = self._inner(first)
            if rest:
                yield from inner._matches(rest)
            elif inner.exists():
                yield inner
            return
        if not self.is_dir():
            return
        if first == "**":
            yield from self._matches(rest) if rest else (self,)
        for inner in self.iterdir():
            if first == "**" and inner.is_dir():
                yield from inner._matches(pattern)
            elif first != "**" and fnmatch.fnmatchcase(inner.name, first):
                yield from inner._matches(rest) if rest else (inner,)

    def rglob(self, pattern: str) -> Iterator["RemotePath"]:
        """Yields what matches in the folder and in those below it."""
        return self.glob(f"**/{pattern}")

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes the folder and those above it, which most remote file systems do not need."""
        del parents
        if not exist_ok and self.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._uri)
        gfile.retried(self._uri, lambda fs: fs.makedirs(self._uri))

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the file."""
        try:
            gfile.remove(self._uri)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target: str | os.PathLike) -> "AnyPath":
        """Gives the file another name in its file system; object stores copy it."""
        gfile.rename(self._uri, os.fspath(target))
        return path(target)


AnyPath = Path | RemotePath


def join(folder: str | os.PathLike, name: str | os.PathLike) -> AnyPath:
    """Returns the path of something in a folder; an absolute path or a URI is itself."""
    return path(name) if is_remote(name) else path(folder) / name


def copy(source: str | os.PathLike, target: str | os.PathLike) -> None:
    """Copies a file between any two file systems, in parts.

    A remote `target` appears when it is whole. See `official.utils.atomic.replacing` for a local
    one.
    """
    source, target = path(source), path(target)
    with source.open("rb") as stream:
        if isinstance(target, RemotePath):
            gfile.put(str(target), stream)
        else:
            with target.open("wb") as out:
                shutil.copyfileobj(stream, out, _BUFFER)


@contextlib.contextmanager
def local_copy(name: str | os.PathLike) -> Iterator[Path]:
    """Yields a local file with the content of a file: of a local one, itself.

    The copy of a remote file has the same name. It is removed at the end of the block; a mapping
    of it into memory remains valid.
    """
    name = path(name)
    if isinstance(name, Path):
        yield name
        return
    with tempfile.TemporaryDirectory(prefix=gfile.PREFIX) as folder:
        copied = Path(folder, name.name)
        copy(name, copied)
        yield copied


@contextlib.contextmanager
def opened_folder(folder: str | os.PathLike) -> Iterator["AnyPath"]:
    """Yields a folder that TensorFlow can open: the folder itself, or a local copy in the block."""
    folder = path(folder)
    if isinstance(folder, Path) or not gfile.by_fsspec(str(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix=gfile.PREFIX) as copied:
        for file in folder.rglob("*"):
            if file.is_file():
                target = Path(copied, str(file).removeprefix(f"{folder}/"))
                target.parent.mkdir(parents=True, exist_ok=True)
                copy(file, target)
        yield Path(copied)


def remove_tree(folder: str | os.PathLike) -> None:
    """Removes a folder with all that it contains, if it exists."""
    folder = path(folder)
    if isinstance(folder, Path):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
        return
    with contextlib.suppress(FileNotFoundError):
        gfile.retried(str(folder), lambda fs: fs.rmtree(str(folder)))


def split_folders(names: str) -> list[str]:
    """Splits the value of --model_dir at commas.

    The name of a folder may contain commas: a sweep makes `seed=0,epochs=3`.

    Raises:
      UserError: a name is not that of a folder, or is given twice.
    """
    parts = names.split(",")
    folders = []
    while parts:
        candidates = (",".join(parts[:count]) for count in range(1, len(parts) + 1))
        name = next((name for name in candidates if name and path(name).is_dir()), None)
        if name is None:
            raise UserError(f"--model_dir: {parts[0]!r} is not a folder")
        if name in folders:
            raise UserError(f"--model_dir: {name!r} is given twice")
        folders.append(name)
        parts = parts[name.count(",") + 1 :]
    return folders


def check_suffix(file: str | os.PathLike, what: str, suffixes: Sequence[str]) -> None:
    """Raises UserError if a file that `what` is written to does not have one of the suffixes."""
    if path(file).suffix not in suffixes:
        raise UserError(f"{file}: {what} are written as {' or '.join(suffixes)}: name such a file")


def check_file(
    file: str | os.PathLike, max_bytes: int | None = MAX_BYTES, advice: str = ""
) -> None:
    """Checks that a path is a regular file of a limited size.

    Args:
      file: the file, or a link to it.
      max_bytes: the largest size; None = no limit.
      advice: what the user can do, for the message.

    Raises:
      UserError: the file is missing, is a folder, a pipe or a device, or is too large.
    """
    file = path(file)
    try:
        if not file.is_file():
            what = "is not a regular file" if file.exists() else "is missing"
            raise UserError(f"{file} {what}{': ' if advice else ''}{advice}")
        if max_bytes is not None and (size := file.stat().st_size) > max_bytes:
            raise UserError(f"{file} has {size:,} bytes, where at most {max_bytes:,} are expected")
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error


def read_bytes(file: str | os.PathLike, max_bytes: int = MAX_BYTES, advice: str = "") -> bytes:
    """Reads a file of a limited size; arguments and errors are those of `check_file`."""
    check_file(file, max_bytes, advice)
    try:
        return path(file).read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
