"""Files that are read as a whole, because their parts cannot be read alone: .gz, .zst, .parquet.

`unpacked` has the bytes of the text or the JSON Lines in them. The column `text` of a Parquet file
is read as JSON Lines, a line for each row. Its values are strings of any kind, or bytes in UTF-8.
"""

import gzip
import importlib.util
import io
import json
import zlib
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from official.utils.errors import UserError
from official.utils.paths import AnyPath

if TYPE_CHECKING:
    import pyarrow

COMPRESSED = (".gz", ".zst")
PARQUET = ".parquet"
# The package that a kind of file needs, and its name for pip.
RATIO = 4  # about the size of text over its packed size
_PACKAGES = {".zst": "zstandard", PARQUET: "pyarrow"}
# A few bytes may unpack to thousands of times as many.
_READ_AT_ONCE = 4 << 10
_ROWS_AT_ONCE = 256
_BUFFER = 128 << 10
MAX_WINDOW = 128 << 20  # bytes, as the library has it by default


class Damaged(OSError):
    """A .zst or .parquet file is damaged."""


DAMAGE = (Damaged, gzip.BadGzipFile, zlib.error, EOFError)


def is_packed(path: AnyPath) -> bool:
    """Returns whether a file is compressed, or a Parquet file."""
    return path.name.endswith((*COMPRESSED, PARQUET))


def content_name(path: AnyPath) -> str:
    """Returns the name of a file without the suffix of its compression."""
    for suffix in COMPRESSED:
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    return path.name


def is_json(path: AnyPath) -> bool:
    """Returns whether a file has JSON Lines, or is read as such."""
    return content_name(path).lower().endswith((".jsonl", PARQUET))


def check(path: AnyPath) -> None:
    """Checks that the package is installed that a file is read with.

    Raises:
      UserError: it is not.
    """
    for suffix, package in _PACKAGES.items():
        if path.name.endswith(suffix) and importlib.util.find_spec(package) is None:
            raise UserError(
                f"{path}: {package} is not installed, which reads {suffix} files: pip install "
                "'encoder-garden[text]'"
            )


def unpacked(file: IO[bytes], path: AnyPath) -> io.BufferedIOBase:
    """Returns the content of a file that is packed, with the methods `read`, `readline` and `tell`.

    Reading it raises one of `DAMAGE` where the file is damaged.

    Args:
      file: the open file.
      path: its path.

    Raises:
      UserError: a Parquet file has no column `text`, or is none.
    """
    if path.name.endswith(".gz"):
        return gzip.GzipFile(fileobj=file)
    pieces = _zstd(file, path) if path.name.endswith(".zst") else _parquet(file, path)
    return io.BufferedReader(_Pieces(pieces), _BUFFER)


class _Pieces(io.RawIOBase):
    """A stream of pieces of bytes."""

    def __init__(self, pieces: Iterator[bytes]):
        super().__init__()
        self._pieces, self._left, self._position = pieces, memoryview(b""), 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        self._position += count
        return count


def _zstd(file: IO[bytes], path: AnyPath) -> Iterator[bytes]:
    """Yields the content of a file of one or more frames."""
    import zstandard

    frame: zstandard.ZstdDecompressionObj | None = None
    data = begin = b""
    try:
        while data or (data := file.read(_READ_AT_ONCE)):
            if frame is None:
                frame, begin = zstandard.ZstdDecompressor().decompressobj(), data
            yield frame.decompress(data)
            data = frame.unused_data if frame.eof else b""
            if frame.eof:
                frame = None
    except zstandard.ZstdError as error:
        if (window := _window(begin)) > MAX_WINDOW:
            raise UserError(
                f"{path}: it was packed with a window of {window >> 20:,} MiB (zstd --long), and "
                f"at most {MAX_WINDOW >> 20} MiB are unpacked here: unpack it before, with "
                f"`zstd -d --long=31 {path}`, or pack it without --long"
            ) from error
        raise Damaged(str(error)) from error
    if frame is not None:
        raise EOFError("Compressed file ended before the end of the last frame")


def _window(begin: bytes) -> int:
    """Returns the bytes of memory that a frame needs to be unpacked; 0 = unknown.

    Args:
      begin: the first bytes of the frame.
    """
    import zstandard

    try:
        return zstandard.get_frame_parameters(begin).window_size
    except zstandard.ZstdError:
        return 0


def _parquet(file: IO[bytes], path: AnyPath) -> Iterator[bytes]:
    """Yields the rows of a Parquet file as JSON Lines."""
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(file, buffer_size=1 << 20)
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a Parquet file: {error}") from error
    kinds = {field.name: field.type for field in table.schema_arrow}
    if "text" not in kinds or not _is_text(kinds["text"]):
        columns = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise UserError(f"{path}: no column `text` of strings; it has: {columns[:200]}")
    try:
        for batch in table.iter_batches(_ROWS_AT_ONCE, columns=["text"], use_threads=False):
            column = batch.column(0)
            if pyarrow.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            # pyarrow casts no view to large_binary. Binary values need not be UTF-8.
            views = {"string_view": pyarrow.string(), "binary_view": pyarrow.binary()}
            column = column.cast(views.get(str(column.type), column.type))
            yield b"".join(map(_json_line, column.cast(pyarrow.large_binary()).to_pylist()))
    except (pyarrow.ArrowException, OSError) as error:
        if getattr(error, "errno", None):  # of the disk
            raise
        raise Damaged(str(error)) from error


def _is_text(kind: "pyarrow.DataType") -> bool:
    """Returns whether a column has texts: strings of any kind, or bytes, as Spark writes texts."""
    import pyarrow

    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return str(kind) in (
        *("string", "large_string", "string_view"),
        *("binary", "large_binary", "binary_view"),
    )


def _json_line(text: bytes | None) -> bytes:
    """Returns a text as a line of JSON Lines; bytes that are not UTF-8 stay as they are."""
    if text is None:
        return b'{"text": null}\n'
    try:
        return json.dumps({"text": text.decode()}, ensure_ascii=False).encode() + b"\n"
    except UnicodeDecodeError:
        return text.replace(b"\n", b" ") + b"\n"
