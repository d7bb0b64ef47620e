"""The states of all layers of an encoder for the examples of a shard folder, as files.

A folder has two arrays for each split: the states of all tokens, one example after the other, and
the number of tokens of each example. `layer_states.json` has the checksums of these files, of the
examples, and of the weights of the encoder.

Shapes: B batch, T length, N examples, W tokens of all examples, K layers with the token layer,
D hidden.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

import numpy as np

from official.shards import stored_arrays
from official.utils import atomic, checksums, json_files, paths, strict
from official.utils.errors import UserError

FILE = "layer_states.json"
FIELD = "layer_states"  # of a batch: [B, T, K, D]
_ADVICE = "make it again with official.main --mode=embed --layers=all --data=SHARDS"


@dataclasses.dataclass(frozen=True)
class Split:
    """The states of a split.

    Attributes:
      states: the name of the file of float32 [W, K, D].
      lengths: the name of the file of int32 [N].
      sha256: the checksum of `states`.
      lengths_sha256: the checksum of `lengths`.
      fingerprint: that of the examples, as `official.data.ShardDataset` has it.
    """

    states: str
    lengths: str
    sha256: str
    lengths_sha256: str
    fingerprint: str


@dataclasses.dataclass(frozen=True)
class Record:
    """The content of `layer_states.json`.

    Attributes:
      model: the model folder.
      encoder: the checksum of the encoder's weights.
      splits: the splits by name.
    """

    model: str
    encoder: str
    splits: Mapping[str, Split]


class Writer:
    """Writes the states of splits to a folder.

    Args:
      folder: the folder, which exists. It is a local one.
      model: as in `Record`.
      encoder: as in `Record`.
    """

    def __init__(self, folder: Path, model: str, encoder: str):
        self._folder = folder
        self._splits: dict[str, Split] = {}
        self._record = Record(model, encoder, self._splits)

    def write(
        self,
        split: str,
        fingerprint: str,
        lengths: np.ndarray,
        shape: tuple[int, int],
        batches: Iterable[tuple[np.ndarray, np.ndarray]],
    ) -> None:
        """Writes the states of a split.

        Args:
          split: its name.
          fingerprint: that of its examples.
          lengths: int [N].
          shape: K and D.
          batches: pairs of the numbers of examples [B], and the states of their tokens one after
            the other [tokens, K, D].

        Raises:
          UserError: there are fewer examples.
        """
        lengths = np.asarray(lengths, np.int32)
        starts = _starts(lengths)
        states_file = self._folder / f"{split}.npy"
        lengths_file = self._folder / f"{split}-lengths.npy"
        states = np.lib.format.open_memmap(states_file, "w+", np.float32, (int(starts[-1]), *shape))
        left = len(lengths)
        for numbers, rows in batches:
            left -= len(numbers)
            ends = np.cumsum(lengths[numbers])[:-1]
            for number, row in zip(numbers, np.split(rows, ends), strict=True):
                states[starts[number] : starts[number + 1]] = row
        if left:
            raise UserError(f"{left:,} of {len(lengths):,} {split} examples are missing: {_ADVICE}")
        states.flush()
        del states
        np.save(lengths_file, lengths, allow_pickle=False)
        self._splits[split] = Split(
            states=states_file.name,
            lengths=lengths_file.name,
            sha256=checksums.hash_file(states_file),
            lengths_sha256=checksums.hash_file(lengths_file),
            fingerprint=fingerprint,
        )

    def finish(self) -> None:
        """Writes `layer_states.json`."""
        with atomic.file(self._folder / FILE) as stream:
            json_files.dump(strict.to_dict(self._record), stream)


class States:
    """The states of a split, which are read from disk on demand.

    Attributes:
      folder: the folder.
      encoder: the checksum of the encoder's weights.
      shape: K and D.
    """

    def __init__(self, folder: str | os.PathLike, record: Record, split: Split):
        """Opens the files and compares their checksums.

        Raises:
          UserError: a file is missing or has changed.
        """
        self.folder = folder
        self.encoder = record.encoder
        advice = f"copy the folder again, or {_ADVICE}"
        arrays = {}
        for name, sha256 in ((split.states, split.sha256), (split.lengths, split.lengths_sha256)):
            path = paths.path(folder) / PurePosixPath(name).name
            arrays[name] = stored_arrays.load(path, sha256, advice)
        self._states = arrays[split.states]
        self.lengths = np.array(arrays[split.lengths])
        self._starts = _starts(self.lengths)
        found = (self._states.dtype, self._states.ndim, self.lengths.dtype, self.lengths.ndim)
        whole = found == (np.float32, 3, np.int32, 1) and not (self.lengths < 0).any()
        if not whole or len(self._states) != self._starts[-1]:
            raise UserError(
                f"{folder}: the states are not float32 [tokens, layers, size], or not those of the "
                f"lengths: {advice}"
            )
        self.shape = self._states.shape[1:]

    def check(self, count: int, size: int) -> None:
        """Checks that the states are those of `count` layers of a size.

        Raises:
          UserError: they are not.
        """
        if self.shape != (count, size):
            raise UserError(
                f"{self.folder}: has {self.shape[0]} layers of size {self.shape[1]}, and the "
                f"encoder has {count} of size {size} with the token layer: {_ADVICE}"
            )

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the states of the tokens of examples, one after the other: [tokens, K, D]."""
        parts = [self._states[self._starts[i] : self._starts[i + 1]] for i in numbers]
        return np.concatenate(parts)


def _starts(lengths: np.ndarray) -> np.ndarray:
    """Returns the first token of each example, and the number of all tokens: int64 [N + 1]."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def read(folder: str | os.PathLike, split: str, fingerprint: str, required: bool) -> States | None:
    """Opens the states of a split.

    Args:
      folder: the folder.
      split: the name of the split.
      fingerprint: that of its examples.
      required: whether the states are needed.

    Returns:
      None if they are not needed and the folder has none of these examples.

    Raises:
      UserError: the states are needed and there are none of these examples, or a file has changed.
    """
    path = paths.path(folder) / FILE
    if not required and not path.exists():
        return None
    values = json_files.read(path, f"{folder} has no states of an encoder: {_ADVICE}")
    record = strict.build(Record, json_files.checked(values, path), str(path))
    found = record.splits.get(split)
    if found is not None and found.fingerprint == fingerprint:
        return States(folder, record, found)
    if not required:
        return None
    if found is None:
        raise UserError(f"{folder}: has states of {', '.join(record.splits)}, not of {split}")
    raise UserError(
        f"{folder}: these states belong to other shards (fingerprint {found.fingerprint[:16]}…) "
        f"than the {split} split that is read ({fingerprint[:16]}…): name the shards that they "
        f"were made of, or {_ADVICE}"
    )
