"""The files of records that have keys and are not in order yet.

Shapes: N records.
"""

import bisect
import dataclasses
import json
from pathlib import Path
from typing import IO

import numpy as np

from official.utils.errors import UserError
from tfrecords_tools.writing.shuffle import Counts

KINDS = ("records", "keys", "ends", "runs")


@dataclasses.dataclass(frozen=True)
class Spill:
    """The records of an item, in runs that are in the order of their keys.

    The files are `records`, as in a TFRecord file; `keys`, uint64 [N]; `ends`, the position behind
    each record, int64 [N]; `runs`, the row splits of the runs among the records, int64; and
    `counts`, which is written when the others are on the disk. Its first line has the number of
    bytes of each.
    """

    folder: Path
    number: int

    def path(self, kind: str) -> Path:
        """Returns the path of a file."""
        return self.folder / f"{self.number:06d}.{kind}"

    @property
    def done(self) -> bool:
        """Whether the files are complete."""
        try:
            with open(self.path("counts"), "rb") as stream:
                return self.read_file_bytes(stream) == self.file_bytes()
        except (OSError, ValueError):  # A file is missing, or its first line is another.
            return False

    def file_bytes(self) -> dict[str, int]:
        """Returns the number of bytes of each of `KINDS`."""
        return {kind: self.path(kind).stat().st_size for kind in KINDS}

    @staticmethod
    def read_file_bytes(stream: IO[bytes]) -> dict[str, int]:
        """Reads the first line of `counts`.

        Raises:
          ValueError: there is no such line.
        """
        return json.loads(stream.readline(1 << 10))

    def read_counts(self, counts: type[Counts]) -> Counts:
        """Returns the counts of the item."""
        with open(self.path("counts"), "rb") as stream:
            self.read_file_bytes(stream)
            return counts.load(stream)

    def sizes(self) -> tuple[int, int]:
        """Returns N, and the number of bytes of the records."""
        return self.path("keys").stat().st_size // 8, self.path("records").stat().st_size

    def read(self, first: int, end: int) -> tuple[np.ndarray, list[bytes]]:
        """Returns the keys from `first` to `end`, uint64, and their records.

        Raises:
          UserError: a file has become shorter.
        """
        if not self.sizes()[0]:
            return np.zeros(0, np.uint64), []
        all_keys = np.memmap(self.path("keys"), np.uint64, mode="r")
        all_ends = np.memmap(self.path("ends"), np.int64, mode="r")
        runs = np.fromfile(self.path("runs"), np.int64).tolist()
        keys: list[np.ndarray] = []
        records: list[bytes] = []
        with open(self.path("records"), "rb") as stream:
            for start, stop in zip(runs[:-1], runs[1:], strict=True):
                begin = bisect.bisect_left(all_keys, first, start, stop)
                last = bisect.bisect_left(all_keys, end, begin, stop)
                ends = all_ends[begin:last]
                if not len(ends):
                    continue
                position = int(all_ends[begin - 1]) if begin else 0
                stream.seek(position)
                data = stream.read(int(ends[-1]) - position)
                if len(data) != ends[-1] - position:
                    raise UserError(f"{stream.name} was cut while it was in use: run again")
                bounds = [0, *(ends - position).tolist()]
                records += [data[a:b] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
                keys.append(np.array(all_keys[begin:last]))
        return np.concatenate([*keys, np.zeros(0, np.uint64)]), records
