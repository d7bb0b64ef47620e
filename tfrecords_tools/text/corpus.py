"""The files of a corpus, and the chunks of text that are turned into examples one by one.

The ranges of the files (`file_ranges`) are put in groups, and any process can read any group.
Groups depend on the sizes of the files and on the seed, and not on the number of processes. A
packed file (.gz, .zst, .parquet) is a single unit of work, because its parts cannot be read alone.

The ranges of a group are joined to chunks of about a megabyte. A range with a part of a long
document is a chunk alone, so that it can begin and end as the document does there. Where second
segments come from other documents, all ranges of a group are one chunk. They are a random sample of
the corpus, and every text is as likely as any other to be such a segment. A large packed file
becomes several of these chunks.
"""

import csv
import dataclasses
import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags

from official.shards.text_filters import DEDUPLICATE, TextFilters
from official.utils import host_seeding, input_files, packed_files, paths
from official.utils.errors import UserError
from official.utils.input_files import InputFile
from official.utils.paths import AnyPath, RemotePath
from tfrecords_tools.text import documents, dropped, file_ranges
from tfrecords_tools.text.documents import Document, ReadCounts
from tfrecords_tools.text.file_ranges import FileRange, PlainFile

MIN_RANGE_BYTES, MAX_RANGE_BYTES = 64 << 10, 1 << 20
RANGES_IN_GROUP = 8
GROUPS = 16  # in a corpus that is large enough; a larger one has groups of the largest ranges
CHUNK_BYTES = 1 << 20
SHARED_CHUNK_BYTES = RANGES_IN_GROUP * MAX_RANGE_BYTES
_PACKED = -1
_OTHER_FORMATS = {".bz2", ".json", ".pdf", ".tar", ".tgz", ".xz", ".zip"}


class UnreadRange(NamedTuple):
    """A range of a file that is not read yet.

    Attributes:
      file: the number of the file in the corpus.
      source: the file, as it was when the work was planned.
      number: the number of the range; -1 = all ranges of a packed file.
    """

    file: int
    source: InputFile
    number: int

    def read(self, range_bytes: int, skip_long_lines: bool) -> Iterator[FileRange]:
        """Yields the text: one range, or all those of a packed file; none if it has no begin.

        Args:
          range_bytes: see `Corpus`.
          skip_long_lines: whether lines that are too long are left out; if not, they are an error.

        Raises:
          UserError: the file cannot be read, or has changed.
        """
        if self.number == _PACKED:
            yield from file_ranges.read_packed(self.source, range_bytes, skip_long_lines)
        elif text := PlainFile(self.source, range_bytes, skip_long_lines).read(self.number):
            yield text


class Group(NamedTuple):
    """Some ranges of a corpus.

    Attributes:
      number: the number of the group.
      ranges: the ranges.
      bytes: about the number of bytes of these on disk.
    """

    number: int
    ranges: tuple[UnreadRange, ...]
    bytes: int


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The files of a corpus.

    Attributes:
      files: the files, as they were when the work was planned.
    """

    files: Sequence[InputFile]

    @classmethod
    def find(cls, globs: Sequence[str] | str) -> "Corpus":
        """Returns the files that match, each once; see `expand`.

        Raises:
          UserError: see `expand`, or a file is a pipe or a device.
        """
        found = expand(globs)
        for path in found:
            paths.check_file(path, None, "text is read by several processes: write it to a file")
        return cls([input_files.seen(path) for path in found])

    def check(self) -> None:
        """Checks, when all is read, that the files are as they were.

        Raises:
          UserError: a file has changed.
        """
        input_files.check(self.files)

    @property
    def paths(self) -> list[AnyPath]:
        """The paths of the files."""
        return [file.path for file in self.files]

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.size for file in self.files)

    @property
    def range_bytes(self) -> int:
        """The size of the ranges: smaller in a small corpus, so that it has groups."""
        size = self.bytes // (GROUPS * RANGES_IN_GROUP)
        return min(max(size, MIN_RANGE_BYTES), MAX_RANGE_BYTES)

    def groups(self, seed: int | None) -> list[Group]:
        """Returns all ranges in groups.

        Args:
          seed: the seed of the order of the ranges, so that a group is a random sample of the
            corpus; None = the order of the files.
        """
        size = self.range_bytes
        sizes = np.array([file.size for file in self.files])
        whole = np.array([packed_files.is_packed(file.path) for file in self.files])
        counts = np.where(whole, 1, -(-sizes // size))
        files = np.repeat(np.arange(len(counts)), counts)
        numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        lengths = np.minimum(sizes[files] - numbers * size, size)
        packed = whole[files]
        lengths[packed] = sizes[files[packed]]
        numbers[packed] = _PACKED
        order = np.arange(len(files))
        if seed is not None:
            order = host_seeding.numpy_rng(seed).permutation(len(files))
        weights = lengths[order] * np.where(packed[order], packed_files.RATIO, 1)
        total = int(weights.sum())
        count = max(1, total // (size * RANGES_IN_GROUP))
        # Groups of about equal size: each range is in the group in which its first byte is.
        cuts = np.flatnonzero(np.diff((np.cumsum(weights) - weights) // (total / count))) + 1
        return [
            Group(
                number,
                tuple(self._range(int(files[i]), int(numbers[i])) for i in part),
                int(lengths[part].sum()),
            )
            for number, part in enumerate(np.split(order, cuts))
        ]

    def _range(self, file: int, number: int) -> UnreadRange:
        return UnreadRange(file, self.files[file], number)


def expand(globs: Sequence[str] | str) -> list[AnyPath]:
    """Returns the files that match, each once, in the order of `globs` and sorted within a glob.

    A file that matches under several names (`a.txt`, `./a.txt`, a link to it) is read under the
    first one.

    Args:
      globs: paths or glob patterns (`**` matches folders at any depth), or lists of them with
        commas between, as CSV has them: a name that has a comma is in double quotes. It needs
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
        raise UserError("no input files are given: name paths or globs, separated by commas")
    for path in found.values():
        if _is_other_format(path):
            raise UserError(
                f"{path}: cannot read this format: unpack or convert it to text (one sentence a "
                "line, a blank line between documents) or .jsonl with a `text` field, plain, .gz "
                "or .zst, or to .parquet with a `text` column"
            )
        packed_files.check(path)
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


def _is_other_format(path: AnyPath) -> bool:
    name = packed_files.content_name(path)
    suffix = Path(name).suffix.lower()
    # A Parquet file is compressed inside.
    return suffix in _OTHER_FORMATS or (suffix == packed_files.PARQUET and name != path.name)


def _no_file(pattern: str, matched_folders: bool, given: str) -> str:
    if matched_folders:
        return f"{pattern} is a folder: name the files in it, for example {pattern}/*.txt"
    if given != pattern and paths.path(given).exists():
        return f"{pattern}: no such file; put a name with a comma in quotes: --input='\"{given}\"'"
    if glob.has_magic(pattern):
        return f"no file matches {pattern!r}: check the pattern and the folder it starts from"
    return f"{pattern}: no such file"


class DocumentChunk(NamedTuple):
    """Documents that are turned into examples together.

    Attributes:
      group: the number of the group of ranges.
      number: the number of the chunk in the group.
      documents: the documents.
      read_counts: the counts of what was read for them.
    """

    group: int
    number: int
    documents: list[Document]
    read_counts: ReadCounts


@dataclasses.dataclass(frozen=True)
class Reading:
    """How the text of groups is read.

    Attributes:
      range_bytes: see `corpus.Corpus`.
      skip_bad_utf8: whether lines that are not UTF-8 are left out; if not, they are an error.
      skip_long_lines: the same for lines that are too long.
      dropped: the file of the documents that filters have left out (see `dropped`); "" = none.
    """

    range_bytes: int
    skip_bad_utf8: bool = False
    skip_long_lines: bool = False
    dropped: str = ""

    @classmethod
    def of(cls, files: Corpus, on_bad_utf8: str, on_long_line: str) -> "Reading":
        """Returns how a corpus is read: each option is 'error' or 'skip'."""
        return cls(files.range_bytes, on_bad_utf8 == "skip", on_long_line == "skip")


def read_chunks(group: Group, reading: Reading, shared: bool) -> Iterator[DocumentChunk]:
    """Reads the chunks of a group.

    Args:
      group: the group.
      reading: how its text is read.
      shared: whether second segments come from other documents.

    Raises:
      UserError: something cannot be read; the message names the file and the line.
    """
    parsed = _parsed(group, reading)
    for number, parts in enumerate(_shared(parsed) if shared else _separate(parsed)):
        found, read_counts = [], ReadCounts()
        for part in parts:
            found += part.documents
            read_counts.add(part.read_counts)
        yield DocumentChunk(group.number, number, found, read_counts)


class _Parsed(NamedTuple):
    size: int  # in bytes
    whole: bool  # whether it has no part of a long document
    documents: list[Document]
    read_counts: ReadCounts


def _parsed(group: Group, reading: Reading) -> Iterator[_Parsed]:
    """Yields the parsed ranges of a group."""
    for unread in group.ranges:
        for each in unread.read(reading.range_bytes, reading.skip_long_lines):
            whole = each.begins_in == each.number and not each.unfinished
            found, read_counts = documents.parse(each, unread.file, reading.skip_bad_utf8)
            if reading.dropped:
                found = dropped.leave_out(reading.dropped, found, read_counts)
            yield _Parsed(len(each.data), whole, found, read_counts)


def _separate(parsed: Iterator[_Parsed]) -> Iterator[list[_Parsed]]:
    """Yields the ranges of each chunk, if documents have nothing to do with one another."""
    chunk: list[_Parsed] = []
    for part in parsed:
        if not part.whole:
            yield from filter(None, (chunk, [part]))
            chunk = []
            continue
        chunk.append(part)
        if sum(each.size for each in chunk) >= CHUNK_BYTES:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _shared(parsed: Iterator[_Parsed]) -> Iterator[list[_Parsed]]:
    """Yields the ranges of each chunk, if second segments come from its other documents."""
    ready: list[_Parsed] = []
    chunk: list[_Parsed] = []
    for part in parsed:
        chunk.append(part)
        if sum(each.size for each in chunk) >= SHARED_CHUNK_BYTES:
            if ready:
                yield ready
            ready, chunk = chunk, []
    if sum(each.size for each in chunk) < SHARED_CHUNK_BYTES // 2:
        # A small remainder has few documents to take segments from.
        ready, chunk = ready + chunk, []
    yield from filter(None, (ready, chunk))


def define_flags(output: str, values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines `--input`, `--output` and the flags for what is left out of the text.

    Args:
      output: the kind of output, for the help text.
      values: where the flags are defined.
    """
    flags.DEFINE_list(
        "input",
        None,
        "text or .jsonl files, plain, .gz or .zst; .parquet files with a column `text`; globs; put "
        "a name with a comma in double quotes",
        flag_values=values,
    )
    flags.DEFINE_string("output", None, f"{output} to create", flag_values=values)
    choices = ["error", "skip"]
    action = "stop at a line that is {}, or leave it out and count it"
    for name, kind in (("on_bad_utf8", "not UTF-8"), ("on_long_line", "too long")):
        flags.DEFINE_enum(name, "error", choices, action.format(kind), flag_values=values)
    flags.DEFINE_integer(
        "min_words",
        None,
        "leave out documents of fewer words. A word is a run of letters, digits and accents. Where "
        "words have no blanks between them, each letter is a word: in Chinese, Japanese, Thai, "
        "Lao, Burmese and Khmer",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_float(
        "max_symbol_share",
        None,
        "leave out documents of which a larger share of the characters, without white space, are "
        "no letters, digits or accents of any script; 0 to 1, prose has 0.02 to 0.08",
        lower_bound=0.0,
        upper_bound=1.0,
        flag_values=values,
    )
    flags.DEFINE_enum(
        "deduplicate",
        None,
        DEDUPLICATE,
        "leave out documents that repeat an earlier one. exact: the same text but for white space; "
        "near: also those that share about two thirds of all runs of three words, whatever their "
        "case and punctuation",
        flag_values=values,
    )


def filters_of(values: flags.FlagValues) -> TextFilters | None:
    """Returns the filters of the flags that `define_flags` has defined; None = there are none."""
    filters = TextFilters(values.min_words, values.max_symbol_share, values.deduplicate)
    return None if filters == TextFilters() else filters
