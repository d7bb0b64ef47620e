"""The outputs of teachers for the examples of a shard folder, as files.

A folder has a file of float32 [examples, teachers, outputs] for each split, and `teachers.json`
with the SHA-256 of the weights of each teacher and of each file, and the fingerprint of the
examples.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import numpy as np

from official.shards import stored_arrays
from official.utils import atomic, checksums, json_files, paths, strict
from official.utils.errors import UserError

FILE = "teachers.json"
_ADVICE = "make it again with official.commands.teacher_outputs"


@dataclasses.dataclass(frozen=True)
class Split:
    """The outputs for a split.

    Attributes:
      file: the name of the file.
      sha256: its checksum.
      fingerprint: that of the examples, as `official.data.ShardDataset` has it.
    """

    file: str
    sha256: str
    fingerprint: str


@dataclasses.dataclass(frozen=True)
class Record:
    """The content of `teachers.json`.

    Attributes:
      objective: the type of the objective that gave the outputs.
      teachers: the model folders.
      checksums: SHA-256 of the weights of each teacher.
      splits: the splits by name.
    """

    objective: str
    teachers: tuple[str, ...]
    checksums: tuple[str, ...]
    splits: Mapping[str, Split]


def write(
    folder: str | os.PathLike,
    objective: str,
    teachers: Mapping[str, str],
    outputs: Mapping[str, tuple[str, np.ndarray]],
) -> None:
    """Writes the outputs of teachers.

    Args:
      folder: the folder to create.
      objective: the type of the objective that gave them.
      teachers: SHA-256 of the weights of each teacher by its folder.
      outputs: of each split the fingerprint of its examples, and the outputs [examples, teachers,
        outputs].

    Raises:
      UserError: the folder exists, or cannot be written.
    """
    splits = {}
    with atomic.folder(folder, FILE) as temporary:
        for split, (fingerprint, array) in outputs.items():
            name = f"{split}.npy"
            np.save(temporary / name, np.asarray(array, np.float32), allow_pickle=False)
            splits[split] = Split(name, checksums.hash_file(temporary / name), fingerprint)
        record = Record(objective, tuple(teachers), tuple(teachers.values()), splits)
        with atomic.file(temporary / FILE) as stream:
            json_files.dump(strict.to_dict(record), stream)


def read_record(folder: str | os.PathLike) -> Record:
    """Reads `teachers.json`.

    Raises:
      UserError: there is no such file, or it has changed.
    """
    path = paths.path(folder) / FILE
    values = json_files.read(path, f"{folder} has no outputs of a teacher: {_ADVICE}")
    return strict.build(Record, json_files.checked(values, path), str(path))


def read(folder: str | os.PathLike, record: Record, split: str, fingerprint: str) -> np.ndarray:
    """Reads the outputs for a split: float32 [examples, teachers, outputs].

    Raises:
      UserError: they are of other examples, or the file has changed.
    """
    found = record.splits[split]
    if found.fingerprint != fingerprint:
        raise UserError(
            f"{folder}: these outputs of a teacher belong to other shards (fingerprint "
            f"{found.fingerprint[:16]}…) than the {split} split that is read "
            f"({fingerprint[:16]}…): name the shards that they were made of, or {_ADVICE}"
        )
    path = paths.path(folder) / PurePosixPath(found.file).name
    outputs = stored_arrays.load(path, found.sha256, f"copy the folder again, or {_ADVICE}")
    if (outputs.dtype, outputs.ndim) != (np.float32, 3):
        raise UserError(f"{path}: expected float32 [examples, teachers, outputs]: {_ADVICE}")
    return np.array(outputs)


def check_teachers(folder: str | os.PathLike, record: Record, wanted: Sequence[str]) -> None:
    """Checks that outputs are of the teachers with the checksums `wanted`; () = of any teachers.

    Raises:
      UserError: they are outputs of other teachers.
    """
    if wanted and tuple(wanted) != record.checksums:
        raise UserError(
            f"{folder}: these are the outputs of other teachers ({', '.join(record.teachers)}, "
            f"weights {', '.join(c[:16] for c in record.checksums)}…) than those of the config "
            f"({', '.join(c[:16] for c in wanted)}…): {_ADVICE}, or remove `cache`"
        )
