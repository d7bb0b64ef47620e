"""Reads weights from untrusted HDF5 files.

`read` takes the expected names and shapes. If they are not known in advance, `shapes` lists those
of the file.

An HDF5 file may be unsafe to read: a data set may lie in any file that its header names, be a view
of other files, or be a few bytes that decompress to any size. So the header is checked before any
number is read: the file has exactly the expected names, each is a data set of this file, of the
expected shape and of floating-point numbers, and the file is large enough to hold them.
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import PurePosixPath

import h5py
import numpy as np
from h5py import h5d, h5g, h5l, h5o, h5s, h5t, h5z

from official.utils import paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

Shape = tuple[int, ...]

# The compression filters of the HDF5 library that need no plugins.
_FILTERS = {
    h5z.FILTER_DEFLATE: "gzip",
    h5z.FILTER_SHUFFLE: "shuffle",
    h5z.FILTER_FLETCHER32: "fletcher32",
    h5z.FILTER_LZF: "lzf",
}
_FLOATS = (
    *(h5t.IEEE_F16LE, h5t.IEEE_F32LE, h5t.IEEE_F64LE),
    *(h5t.IEEE_F16BE, h5t.IEEE_F32BE, h5t.IEEE_F64BE),
)
# the largest ratio of the bytes of all data sets to those of the file; weights hardly compress
_MAX_GROWTH = 64
_MAX_CHUNKS = 1 << 17  # the largest number of chunks of a data set
_MIN_CHUNK = 1 << 20  # the bytes that a chunk may have even if its data set is smaller
_MAX_MEMBERS = 100_000  # of all groups of a file, for `shapes`
_MAX_DEPTH = 32  # of nested groups
_SHOWN = 20  # the largest number of problems in a message
_ERRORS = (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError)


def read(
    path: AnyPath, shapes: Mapping[str, Shape], advice: str, others: bool = False
) -> dict[str, np.ndarray]:
    """Reads the data sets of a file.

    Args:
      path: the file.
      shapes: the shape of each data set by its name, such as `group/name`. All must be in the file.
      advice: the source of the shapes, for messages, such as "these options".
      others: whether the file may have other groups and data sets, which are not read.

    Returns:
      The values by name, float32.

    Raises:
      UserError: the file cannot be read, or its data sets differ from the expected ones; all
        differences are named.
    """
    paths.check_file(path, max_bytes=None)
    try:
        with paths.local_copy(path) as local, h5py.File(local, "r") as file:
            check = _Check(shapes, local.stat().st_size, others)
            data = check.of_groups(file)
            if check.problems:
                more = len(check.problems) - _SHOWN
                rest = [f"and {more:,} more"] if more > 0 else []
                shown = [*sorted(check.problems)[:_SHOWN], *rest]
                raise UserError("\n".join([f"{path}: does not belong to {advice}:", *shown]))
            return {name: _values(data[name], shapes[name], name, path) for name in shapes}
    except UserError:
        raise
    except _ERRORS as error:
        raise UserError(f"{path}: not an HDF5 file that can be read ({error})") from None


def shapes(path: AnyPath) -> dict[str, Shape]:
    """Returns the shapes of all data sets of a file by name, without reading their values.

    Links to other files or groups are skipped.

    Raises:
      UserError: the file cannot be read, or has more than a hundred thousand members.
    """
    paths.check_file(path, max_bytes=None)
    result: dict[str, Shape] = {}
    try:
        with paths.local_copy(path) as local, h5py.File(local, "r") as file:
            waiting, seen = [("", file["/"].id)], 0
            while waiting:
                above, group = waiting.pop()
                names: list[bytes] = []
                group.links.iterate(lambda name, names=names: names.append(name))
                seen += len(names)
                if seen > _MAX_MEMBERS or above.count("/") > _MAX_DEPTH:
                    raise UserError(f"{path}: too many groups: is this a file of weights?")
                for name in names:
                    if group.links.get_info(name).type != h5l.TYPE_HARD:
                        continue
                    item, place = h5o.open(group, name), above + name.decode("utf-8", "replace")
                    if isinstance(item, h5g.GroupID):
                        waiting.append((f"{place}/", item))
                    elif isinstance(item, h5d.DatasetID):
                        virtual = item.get_create_plist().get_layout() == h5d.VIRTUAL
                        result[place] = () if virtual else item.shape
    except UserError:
        raise
    except _ERRORS as error:
        raise UserError(f"{path}: not an HDF5 file that can be read ({error})") from None
    return result


@dataclasses.dataclass
class _Check:
    """Compares the header of a file with the expected data sets; reads no values.

    Attributes:
      shapes: the expected shapes by name.
      size: the bytes of the file.
      others: whether more names are allowed.
      problems: a sentence for each name that differs.
    """

    shapes: Mapping[str, Shape]
    size: int
    others: bool = False
    problems: list[str] = dataclasses.field(default_factory=list)

    def of_groups(self, file: h5py.File) -> dict[str, h5d.DatasetID]:
        """Opens the expected groups and data sets."""
        children: dict[str, set[str]] = {}
        for name in self.shapes:
            for inner in (PurePosixPath(name), *PurePosixPath(name).parents):
                if str(inner) != ".":
                    children.setdefault(str(inner.parent), set()).add(inner.name)
        opened: dict[str, h5g.GroupID | h5d.DatasetID] = {".": file["/"].id}
        for group in sorted(children, key=lambda name: PurePosixPath(name).parts):
            if group in opened:
                opened |= self._members(opened[group], group, children)
        data = {name: opened[name] for name in self.shapes if name in opened}
        self.problems += [f"{name}: missing" for name in self._missing(opened)]
        if not self.problems:
            self._sizes(data)
        return data

    def _missing(self, opened: Mapping[str, object]) -> list[str]:
        """Returns the expected names that are missing and have no other problem."""
        said = {problem.partition(": ")[0] for problem in self.problems}
        return [
            name
            for name in self.shapes
            if name not in opened
            and not said & {name, *(str(above) for above in PurePosixPath(name).parents)}
        ]

    def _members(
        self, group: h5g.GroupID, path: str, children: Mapping[str, set[str]]
    ) -> dict[str, h5g.GroupID | h5d.DatasetID]:
        """Opens the expected members of a group; returns them by their full names."""
        opened, expected = {}, children[path]

        def name_of(member: str) -> str:
            return member if path == "." else f"{path}/{member}"

        def unexpected(member: bytes) -> bool | None:
            text = member.decode("utf-8", "replace")
            if text not in expected and not self.others:
                self.problems.append(f"{name_of(text)[:200]}: not expected")
            return len(self.problems) > 10 * _SHOWN or None  # a true value ends the iteration

        group.links.iterate(unexpected)
        for member in sorted(expected):
            name, key = name_of(member), member.encode()
            if not group.links.exists(key):
                continue
            if group.links.get_info(key).type != h5l.TYPE_HARD:
                self.problems.append(f"{name}: a link to another file or group, expected values")
                continue
            item = h5o.open(group, key)
            problem = None
            if name in children:
                if not isinstance(item, h5g.GroupID):
                    problem = "not a group"
            elif not isinstance(item, h5d.DatasetID):
                problem = "not a data set"
            else:
                problem = self._problem(item, self.shapes[name])
            if problem:
                self.problems.append(f"{name}: {problem}")
            else:
                opened[name] = item
        return opened

    def _problem(self, data: h5d.DatasetID, expected: Shape) -> str | None:
        """Describes the problem of a single data set; None = there is none."""
        made = data.get_create_plist()
        layout = made.get_layout()
        # Reading the shape of a virtual data set may open the files that it consists of.
        if layout == h5d.VIRTUAL or made.get_external_count():
            return "its values are in another file"
        if layout not in (h5d.COMPACT, h5d.CONTIGUOUS, h5d.CHUNKED):
            return f"stored in an unknown layout ({layout})"
        kind = data.get_type()
        if not any(kind.equal(known) for known in _FLOATS):
            return "expected floating-point numbers of 2, 4 or 8 bytes"
        shape = data.shape
        if shape != expected:
            return f"shape {list(shape)}, expected {list(expected)}"
        size = math.prod(shape) * kind.get_size()
        filters = [made.get_filter(i)[0] for i in range(made.get_nfilters())]
        if unknown := [number for number in filters if number not in _FILTERS]:
            known = ", ".join(_FILTERS.values())
            return f"packed with filter {unknown[0]}, expected one of {known}"
        if layout == h5d.CHUNKED:
            chunk = made.get_chunk()
            chunks = math.prod(-(-n // part) for n, part in zip(shape, chunk, strict=True))
            bytes_of_chunk = math.prod(chunk) * kind.get_size()
            if bytes_of_chunk > max(size, _MIN_CHUNK) or chunks > _MAX_CHUNKS:
                return f"{chunks:,} chunks of {bytes_of_chunk:,} bytes for {size:,} bytes"
        stored = data.get_storage_size()
        if stored > self.size or (stored < size and not filters) or not stored:
            return f"{size:,} bytes, but the file holds {min(stored, self.size):,}"
        return None

    def _sizes(self, opened: Mapping[str, h5d.DatasetID]) -> None:
        """Compares the sizes of all data sets together with that of the file."""
        stored = sum(data.get_storage_size() for data in opened.values())
        size = sum(math.prod(data.shape) * data.get_type().get_size() for data in opened.values())
        if stored > self.size or size > _MAX_GROWTH * self.size:
            self.problems.append(
                f"all data sets: {size:,} bytes, stored in {stored:,}, but the file has "
                f"{self.size:,} bytes"
            )


def _values(data: h5d.DatasetID, shape: Shape, name: str, path: AnyPath) -> np.ndarray:
    """Reads a data set that was checked, as float32."""
    values = np.zeros(shape, np.float32)
    data.read(h5s.ALL, h5s.ALL, values)
    if not np.isfinite(values).all():
        raise UserError(
            f"{path}: {name} contains NaN or infinity: the file is damaged, or the training that "
            "made it has diverged"
        )
    return values
