"""The files of a corpus, and the groups of their pieces that processes work on.

Any process can read any group. Groups depend on the sizes of the files and on the seed, and not on
the number of processes. A gzipped file is a single unit of work, because its parts cannot be read
alone.
"""

import csv
import dataclasses
import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from official.utils import host_seeding, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath, RemotePath
from tfrecords_tools.text import pieces
from tfrecords_tools.text.pieces import Piece, PlainFile

MIN_PIECE_BYTES, MAX_PIECE_BYTES = 64 << 10, 1 << 20
PIECES_IN_GROUP = 8
GROUPS = 16  # in a corpus that is large enough; a larger one has groups of the largest pieces
_PACKED = -1
_UNPACKED_RATIO = 4  # about the size of text over its gzipped size
_OTHER_FORMATS = {".bz2", ".json", ".parquet", ".pdf", ".tar", ".tgz", ".xz", ".zip", ".zst"}


class Place(NamedTuple):
    """The place of a piece of text.

    Attributes:
      file: the number of the file in the corpus.
      path: the file.
      size: the number of bytes of the file.
      number: the number of the piece; -1 = all pieces of a gzipped file.
    """

    file: int
    path: AnyPath
    size: int
    number: int


class Group(NamedTuple):
    """Some pieces of a corpus.

    Attributes:
      number: the number of the group.
      pieces: the places of the pieces.
      bytes: about the number of bytes of these on disk.
    """

    number: int
    pieces: tuple[Place, ...]
    bytes: int


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The files of a corpus.

    Attributes:
      paths: the files.
      sizes: the number of bytes of each.
    """

    paths: Sequence[AnyPath]
    sizes: Sequence[int]

    @classmethod
    def find(cls, globs: Sequence[str] | str) -> "Corpus":
        """Returns the files that match, each once; see `expand`."""
        found = expand(globs)
        return cls(found, [path.stat().st_size for path in found])

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(self.sizes)

    @property
    def piece_bytes(self) -> int:
        """The size of the ranges of pieces: smaller in a small corpus, so that it has groups."""
        size = self.bytes // (GROUPS * PIECES_IN_GROUP)
        return min(max(size, MIN_PIECE_BYTES), MAX_PIECE_BYTES)

    def groups(self, seed: int | None) -> list[Group]:
        """Returns all pieces in groups.

        Args:
          seed: the seed of the order of the pieces, so that a group is a random sample of the
            corpus; None = the order of the files.
        """
        size = self.piece_bytes
        counts = np.array(
            [
                1 if pieces.is_packed(path) else -(-length // size)
                for path, length in zip(self.paths, self.sizes, strict=True)
            ]
        )
        files = np.repeat(np.arange(len(counts)), counts)
        numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        lengths = np.minimum(np.array(self.sizes)[files] - numbers * size, size)
        packed = np.array([pieces.is_packed(path) for path in self.paths])[files]
        lengths[packed] = np.array(self.sizes)[files[packed]]
        numbers[packed] = _PACKED
        order = np.arange(len(files))
        if seed is not None:
            order = host_seeding.numpy_rng(seed).permutation(len(files))
        weights = lengths[order] * np.where(packed[order], _UNPACKED_RATIO, 1)
        total = int(weights.sum())
        count = max(1, total // (size * PIECES_IN_GROUP))
        # Groups of about equal size: each piece is in the group in which its first byte is.
        cuts = np.flatnonzero(np.diff((np.cumsum(weights) - weights) // (total / count))) + 1
        return [
            Group(
                number,
                tuple(self._place(int(files[i]), int(numbers[i])) for i in part),
                int(lengths[part].sum()),
            )
            for number, part in enumerate(np.split(order, cuts))
        ]

    def _place(self, file: int, number: int) -> Place:
        return Place(file, self.paths[file], self.sizes[file], number)


def read(group: Group, size: int, skip_long_lines: bool = False) -> Iterator[tuple[int, Piece]]:
    """Yields the pieces of a group, each with the number of its file.

    Args:
      group: the group.
      size: `Corpus.piece_bytes`.
      skip_long_lines: whether lines that are too long are left out; if not, they are an error.

    Raises:
      UserError: a file cannot be read.
    """
    for place in group.pieces:
        if place.number == _PACKED:
            for piece in pieces.unpack(place.path, size, skip_long_lines):
                yield place.file, piece
        elif piece := PlainFile(place.path, place.size, size, skip_long_lines).piece(place.number):
            yield place.file, piece


def expand(globs: Sequence[str] | str) -> list[AnyPath]:
    """Returns the files that match, each once, in the order of `globs` and sorted within a glob.

    A file that matches under several names (`a.txt`, `./a.txt`, a link to it) is read under the
    first one.

    Args:
      globs: paths or glob patterns (`**` matches folders at any depth), or lists of them with
        commas between, as CSV has them: a name that has a comma stands in double quotes. It needs
        none if it is alone and matches.

    Raises:
      UserError: a pattern matches no file, a file is missing, or all files together are empty.
    """
    given = [globs] if isinstance(globs, str) else globs
    patterns = [
        part
        for text in given
        for part in ([text] if "," in text and any(_matches(text)) else _listed(text))
    ]
    found: dict[AnyPath, AnyPath] = {}
    for pattern in filter(None, patterns):
        matches = list(_matches(pattern))
        files = [path for path in matches if not path.is_dir()]
        if not files:
            raise UserError(_no_file(pattern, bool(matches), ",".join(patterns)))
        for path in files:
            found.setdefault(path.resolve(), path)
    if not found:
        raise UserError("no input files named: give paths or globs, separated by commas")
    for path in found.values():
        if _suffix(path) in _OTHER_FORMATS:
            raise UserError(
                f"{path}: cannot read this format: unpack or convert it to text (one sentence a "
                "line, a blank line between documents) or .jsonl with a `text` field, plain or .gz"
            )
    if not any(path.stat().st_size for path in found.values()):
        raise UserError(f"the input is empty: {', '.join(map(str, found.values()))} hold no bytes")
    return list(found.values())


def _listed(text: str) -> list[str]:
    """Returns the values of a list with commas."""
    try:
        return [
            part.strip()
            for row in csv.reader([text], strict=True, skipinitialspace=True)
            for part in row
        ]
    except csv.Error as error:
        raise UserError(f'--input={text}: {error}: a name with a comma is "NAME"') from None


def _matches(pattern: str) -> Iterator[AnyPath]:
    """Yields what matches a pattern, sorted; a file with the name of the pattern comes alone."""
    path = paths.path(pattern)
    if path.exists():
        yield path
    elif isinstance(path, RemotePath):
        parents = [each for each in path.parents if not glob.has_magic(str(each))]
        yield from parents[0].glob(str(path).removeprefix(f"{parents[0]}").lstrip("/"))
    else:
        yield from map(Path, sorted(glob.glob(pattern, recursive=True)))


def _suffix(path: AnyPath) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _no_file(pattern: str, matched_folders: bool, given: str) -> str:
    if matched_folders:
        return f"{pattern} is a folder: name the files in it, for example {pattern}/*.txt"
    if given != pattern and paths.path(given).exists():
        return (
            f"{pattern}: no such file; a name with a comma stands in quotes: --input='\"{given}\"'"
        )
    if glob.has_magic(pattern):
        return f"no file matches {pattern!r}: check the pattern and the folder it starts from"
    return f"{pattern}: no such file"
