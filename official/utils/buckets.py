"""Buckets and other file systems of fsspec, with the calls of `tf.io.gfile` that the project uses.

No other module knows fsspec. It is imported at the first call, with the package of the file system
(`SCHEMES`), which the user installs. The package finds the credentials by its own means, tries
failed requests again, and gives up after some tries.

Objects are read in blocks with a request for each, and appear whole: one request, or a multipart
upload that is completed at the end. No bucket is made here, and no listing is kept.
"""

import dataclasses
import errno
import functools
import io
import os
import re
import shutil
import tempfile
from datetime import datetime
from typing import Any, BinaryIO

from official.utils.errors import UserError

_BLOCK = 8 << 20  # bytes of a request
_CREDENTIALS = re.compile(r"[^/]*:[^/]*@")
_QUERY = re.compile(r"\?\S+")  # of an address that a message has, which may be signed


@dataclasses.dataclass(frozen=True)
class Scheme:
    """What a scheme of URIs needs.

    Attributes:
      package: what is told to `pip install`.
      whole: whether a file appears when it is whole.
      folders: whether there are folders, which are made and removed.
      renames: whether a file gets another name without being copied.
      written: whether files are written.
    """

    package: str
    whole: bool = True
    folders: bool = False
    renames: bool = False
    written: bool = True


SCHEMES = {
    "s3": Scheme("'encoder-garden[s3]'"),
    "gcs": Scheme("'encoder-garden[gcs]'"),
    "az": Scheme("'encoder-garden[azure]'"),
    "abfs": Scheme("'encoder-garden[azure]'"),
    "abfss": Scheme("'encoder-garden[azure]'"),
    "hdfs": Scheme("fsspec pyarrow", whole=False, folders=True, renames=True),
    # A file would be a commit, of which the Hub takes some hundred an hour.
    "hf": Scheme("huggingface_hub", written=False),
    "memory": Scheme("fsspec", whole=False, folders=True),  # of this process
}


def scheme(uri: str) -> Scheme | None:
    """Returns the scheme of a URI if it is one of fsspec."""
    return SCHEMES.get(uri.partition("://")[0])


@dataclasses.dataclass(frozen=True)
class Stat:
    """Facts about a file or folder; those of `tf.io.gfile.stat`."""

    length: int
    mtime_nsec: int
    is_directory: bool


class Bucket:
    """The file system of a URI. Methods do what those of `tf.io.gfile` do.

    They raise `FileNotFoundError`, `FileExistsError`, and whatever the package raises.

    Raises:
      UserError: the package is missing, or the URI has a password.
    """

    def __init__(self, uri: str):
        name, _, rest = uri.partition("://")
        if _CREDENTIALS.match(rest):
            raise UserError(
                f"{name}://…@{rest.rpartition('@')[2]}: the path has a password: remove it, and "
                "give it by the environment variables or files of what opens the path"
            )
        self._scheme = SCHEMES[name]
        self._fs = _connected(os.getpid(), name, rest.partition("/")[0])

    def _path(self, uri: str) -> str:
        return self._fs._strip_protocol(uri)

    def exists(self, uri: str) -> bool:
        """Returns whether there is a file or folder."""
        try:
            self._fs.info(self._path(uri))
        except FileNotFoundError:
            return False
        return True

    def stat(self, uri: str) -> Stat:
        """Returns facts about a file or folder."""
        found = self._fs.info(self._path(uri))
        return Stat(found.get("size") or 0, _written_at(found), found["type"] == "directory")

    def listdir(self, uri: str) -> list[str]:
        """Returns the names in a folder."""
        path = self._path(uri).rstrip("/")
        found = [name.rstrip("/") for name in self._fs.ls(path, detail=False)]
        return [name.rpartition("/")[2] for name in found if name != path]

    def makedirs(self, uri: str) -> None:
        """Makes a folder where there are any; a bucket is not made."""
        self._check_written(uri)
        if self._scheme.folders:
            self._fs.makedirs(self._path(uri), exist_ok=True)

    def remove(self, uri: str) -> None:
        """Removes a file."""
        self._check_written(uri)
        self._fs.info(self._path(uri))  # S3 says nothing if there is none
        self._fs.rm_file(self._path(uri))

    def rmtree(self, uri: str) -> None:
        """Removes all files in a folder, and the folder where there are any."""
        self._check_written(uri)
        path = self._path(uri)
        self._fs.info(path)
        for name in self._fs.find(path):
            self._fs.rm_file(name)
        if self._scheme.folders:
            self._fs.rm(path, recursive=True)

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        """Gives a file another name: copies it and removes it where there is no other way."""
        self._check_written(target)
        assert overwrite
        if self._scheme.renames:
            self._fs.mv(self._path(source), self._path(target))
        else:
            self._fs.cp_file(self._path(source), self._path(target))
            self._fs.rm_file(self._path(source))

    def GFile(self, uri: str, mode: str) -> "_Reading":
        """Opens a file for reading."""
        assert mode == "rb"
        # That of Hadoop refuses ranges from byte 0 on without this.
        options = {"seekable": True} if self._scheme.renames else {}
        return _Reading(self._fs, self._path(uri), options)

    def put(self, uri: str, source: BinaryIO) -> int:
        """Writes a file with the bytes of a stream, from its beginning; returns their number."""
        self._check_written(uri)
        source.seek(0)
        try:
            descriptor = source.fileno()
        except io.UnsupportedOperation:
            with tempfile.TemporaryFile() as local:
                shutil.copyfileobj(source, local, _BLOCK)
                local.flush()
                return self._put(uri, local.fileno())
        return self._put(uri, descriptor)

    def _put(self, uri: str, descriptor: int) -> int:
        # Packages take the name of a file; the one of the stream may have none.
        self._fs.put_file(f"/dev/fd/{descriptor}", self._path(uri))
        return os.fstat(descriptor).st_size

    def _check_written(self, uri: str) -> None:
        if not self._scheme.written:
            name = uri.partition("://")[0]
            raise UserError(f"{uri}: {name}:// is read only: name another output")


class _Reading:
    """A file that is read, in blocks of which one is kept."""

    def __init__(self, fs: Any, path: str, options: dict[str, Any]):
        self._fs, self._path, self._options = fs, path, options
        found = fs.info(path)
        if found["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._size = found["size"]
        self._position = self._begin = 0  # the place of the next byte, and of the block
        self._block = b""

    def seek(self, position: int) -> None:
        """Sets the place of the next byte."""
        self._position = position

    def read(self, size: int) -> bytes:
        """Returns at most so many bytes; none at the end."""
        position = self._position
        if not self._begin <= position < self._begin + len(self._block):
            end = min(position + max(size, _BLOCK), self._size)
            if position >= end:
                return b""
            block = self._fs.cat_file(self._path, start=position, end=end, **self._options)
            if len(block) != end - position:
                raise OSError(f"{len(block):,} of {end - position:,} bytes came")
            self._begin, self._block = position, block
        data = self._block[position - self._begin :][:size]
        self._position += len(data)
        return data


def words(error: Exception) -> str:
    """Returns the kind and the first line of an error, without parts of addresses that may sign."""
    lines = str(error).strip().splitlines()
    line = _QUERY.sub("?…", lines[0])[:300] if lines else ""
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


@functools.cache
def _connected(process: int, name: str, authority: str) -> Any:
    """Returns a file system of fsspec.

    Args:
      process: the id of this process; connections of another one cannot be used.
      name: the scheme.
      authority: what follows it: a bucket, a container or a host.
    """
    del process
    try:
        from fsspec.core import url_to_fs

        return url_to_fs(
            f"{name}://{authority}", use_listings_cache=False, skip_instance_cache=True
        )[0]
    except ImportError as error:
        raise UserError(
            f"{name}://{authority}: what opens it is not installed ({error}): pip install "
            f"{SCHEMES[name].package}"
        ) from error


def _written_at(found: dict[str, Any]) -> int:
    """Returns when a file was written, in ns since 1970, or 0; each package has its own name."""
    for name in ("LastModified", "last_modified", "mtime", "updated", "created"):
        value = found.get(name)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1e9)
        if isinstance(value, int | float):
            return int(value * 1e9)
    return 0
