"""Finds and opens the weights of a folder that transformers has saved, in any of its formats.

These are, in the order of preference: safetensors (named by PyTorch's or by TensorFlow's classes),
torch's `pytorch_model.bin`, Keras' `tf_model.h5`, each in one file or in several with an index, and
else the only file of torch. None of them can run code here.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

import numpy as np
import safetensors

from official.convert import hdf5
from official.convert.mapping import LazyTensors
from official.convert.torch_files import TorchFile
from official.utils import files, json_files, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

SAFETENSORS = "model.safetensors"
TORCH = "pytorch_model.bin"
KERAS = "tf_model.h5"
_TORCH_FILES = ("*.bin", "*.pth", "*.pt", "*.ckpt")
# Files of torch that a training run leaves beside the weights.
_OTHERS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state")


class _Safetensors(LazyTensors):
    """The tensors of a safetensors file."""

    def __init__(self, path: AnyPath):
        self._path = path
        files.check(path, max_bytes=None)
        try:
            with paths.local_copy(path) as file:  # which may be removed when it is open
                self._handle = safetensors.safe_open(file, framework="np").__enter__()
                self._index = dict.fromkeys(self._handle.keys())
                self.by_tf = (self._handle.metadata() or {}).get("format") == "tf"
        except (OSError, MemoryError, safetensors.SafetensorError) as error:
            raise UserError(f"{path} is broken ({error}): copy or download it again") from None

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._handle.get_tensor(name)
        except (AttributeError, TypeError, ValueError, safetensors.SafetensorError) as error:
            raise UserError(f"{self._path}: tensor {name} cannot be read: {error}") from None

    def close(self) -> None:
        self._handle = None


class _Keras(LazyTensors):
    """The data sets of an HDF5 file. All are checked and read when it is opened."""

    by_tf = True

    def __init__(self, path: AnyPath):
        shapes = hdf5.shapes(path)
        if not shapes:
            raise UserError(f"{path} has no weights in it: copy or download it again")
        self._index = hdf5.read(path, shapes, "a file of weights", others=True)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._index[name]

    def close(self) -> None:
        self._index = {}


class _Torch(TorchFile):
    """The tensors of a file of torch."""

    by_tf = False


# Files in the order of preference, and what reads them.
_READERS: dict[str, Callable[[AnyPath], Mapping[str, np.ndarray]]] = {
    SAFETENSORS: _Safetensors,
    TORCH: _Torch,
    KERAS: _Keras,
}


class Weights(LazyTensors):
    """The tensors of a folder by the names that they have in its files, read when accessed.

    Attributes:
      source: the file, or the index of several, for messages.
      by_tf: whether classes of TensorFlow have written them.
    """

    def __init__(self, folder: AnyPath):
        """Opens the file or, if `save_pretrained` has split it, the files.

        Raises:
          UserError: there are none, or one is missing or broken.
        """
        self.source, parts, reader = _find(folder)
        self._parts: list[Mapping[str, np.ndarray]] = []
        try:
            for path in parts:
                advice = "" if path == self.source else f"{self.source.name} names it"
                files.check(path, max_bytes=None, advice=advice)
                self._parts.append(reader(path))
        except BaseException:
            self.close()
            raise
        self._index = {name: part for part in self._parts for name in part}
        self.by_tf = any(part.by_tf for part in self._parts)

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads a tensor."""
        return self._index[name][name]

    def close(self) -> None:
        """Closes the files."""
        self._index = {}
        for part in self._parts:
            part.close()
        self._parts = []


def _find(
    folder: AnyPath,
) -> tuple[AnyPath, Sequence[AnyPath], Callable[[AnyPath], Mapping[str, np.ndarray]]]:
    """Returns the file or index of the weights, all their files, and what reads one."""
    for name, reader in _READERS.items():
        path = folder / name
        if path.exists():
            return path, [path], reader
        if (index := folder / f"{name}.index.json").exists():
            return index, _split_files(index), reader
    found = sorted(
        path
        for pattern in _TORCH_FILES
        for path in folder.glob(pattern)
        if not path.name.startswith(_OTHERS)
    )
    if len(found) == 1:
        return found[0], found, _Torch
    if found:
        raise UserError(
            f"{folder} has several files of weights ({', '.join(path.name for path in found)}): "
            f"name the one to read {TORCH}"
        )
    raise UserError(
        f"{folder / SAFETENSORS} is missing, and so are {TORCH} and {KERAS}: is this the folder of "
        "a Hugging Face model?"
    )


def _split_files(index: AnyPath) -> list[AnyPath]:
    """Returns the files that an index names. They are always in the folder of the index."""
    files_by_tensor = json_files.read(index).get("weight_map")
    names = list(files_by_tensor.values()) if isinstance(files_by_tensor, dict) else [None]
    if not all(isinstance(name, str) for name in names):
        raise UserError(f"{index}: weight_map: the name of a file is wanted for each tensor")
    return [index.with_name(PurePosixPath(name).name) for name in sorted(set(names))]
