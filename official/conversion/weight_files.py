"""Reads the tensors of a folder of transformers, in any of its formats.

`Weights` finds and opens the files. These are, in order of preference: safetensors (of PyTorch's or
TensorFlow's classes), torch's `pytorch_model.bin`, Keras' `tf_model.h5`, each as one file or
several with an index; otherwise the only torch file of the folder. None of them can run code.

`Tensors` has them under the names of transformers' current PyTorch classes. It corrects old names
(`LayerNorm.gamma`), a missing prefix `bert.`, a prefix of a training script (`module.`) and copies
of a tied output layer, and drops constants of old files.

TensorFlow's classes have other names: `bert/encoder/layer_._0/output/dense/kernel:0` is
`bert.encoder.layer.0.output.dense.weight`, transposed. In `tf_model.h5` the name of the Keras layer
comes first, in old files after the name of the model. Safetensors of some versions lack the first
part.
"""

import contextlib
import fnmatch
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from safetensors import SafetensorError

from official.conversion import hdf5
from official.conversion.mapping import LazyTensors
from official.conversion.system import System
from official.conversion.torch_files import SHORT_FLOATS, TorchFile
from official.utils import json_files, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.safetensors_file import SafetensorsFile

SAFETENSORS = "model.safetensors"
TORCH = "pytorch_model.bin"
KERAS = "tf_model.h5"
_TORCH_FILES = ("*.bin", "*.pth", "*.pt", "*.ckpt")
# Torch files of a training run that are not weights.
_OTHERS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state")
# Prefixes of the types of floats below 16 bits in safetensors.
_SHORT = ("F8_", "F6_", "F4")
_COMPILED = "_orig_mod."  # torch.compile puts it before the names of tensors
# {unused tensor of TensorFlow's classes: the tensor that they read} (ALBERT).
_READ = {"predictions.decoder.bias": "predictions.bias"}
# Matrices that PyTorch's classes store transposed: kernels, and the projections of adaptive
# embeddings.
_KERNEL = re.compile(r"(^|/)(kernel|emb_projs_\._\d+)(:\d+)?$")
_KINDS = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}


class _Safetensors(LazyTensors):
    """The tensors of a safetensors file, read when accessed."""

    def __init__(self, path: AnyPath):
        self.source = path
        paths.check_file(path, max_bytes=None)
        self._copy = contextlib.ExitStack()
        try:
            self._file = SafetensorsFile(self._copy.enter_context(paths.local_copy(path)))
            self._index = dict.fromkeys(self._file.names)
            self.by_tf = self._file.metadata.get("format") == "tf"
        except (OSError, MemoryError, SafetensorError) as error:
            raise UserError(f"{path} is broken ({error}): copy or download it again") from None

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            stored = self._file.stored_type(name)
            if not stored.startswith(_SHORT):
                return self._file.tensor(name)
        except (AttributeError, OSError, TypeError, ValueError, SafetensorError) as error:
            raise UserError(f"{self.source}: tensor {name} cannot be read: {error}") from None
        raise UserError(
            f"{self.source}: tensor {name} cannot be read: it is stored as {stored}: {SHORT_FLOATS}"
        )

    def close(self) -> None:
        self._file.close()
        self._copy.close()


class _Keras(LazyTensors):
    """The data sets of an HDF5 file. All are checked and read when it is opened."""

    by_tf = True
    _index: Mapping[str, np.ndarray]

    def __init__(self, path: AnyPath):
        self.source = path
        shapes = hdf5.shapes(path)
        if not shapes:
            raise UserError(f"{path} contains no weights: copy or download it again")
        self._index = hdf5.read(path, shapes, "a file of weights", others=True)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._index[name]

    def close(self) -> None:
        self._index = {}


class _Torch(TorchFile):
    """The tensors of a file of torch."""

    by_tf = False


_File = _Safetensors | _Torch | _Keras
# Files in the order of preference, and what reads them.
_READERS: dict[str, Callable[[AnyPath], _File]] = {
    SAFETENSORS: _Safetensors,
    TORCH: _Torch,
    KERAS: _Keras,
}


class Weights(LazyTensors):
    """The tensors of a folder by the names that they have in its files, read when accessed.

    Attributes:
      source: the file, or the index of several.
      by_tf: whether TensorFlow's classes have written them.
    """

    source: AnyPath
    _index: Mapping[str, _File]

    def __init__(self, folder: AnyPath, file: AnyPath | None = None):
        """Opens the file or, if `save_pretrained` has split it, the files.

        Args:
          folder: the folder.
          file: a safetensors or torch file in the folder; None = the weights of the model.

        Raises:
          UserError: there are no weights, or a file is missing or damaged.
        """
        if file is None:
            self.source, parts, reader = _find(folder)
        else:
            whole = file.suffix == paths.path(SAFETENSORS).suffix
            self.source, parts, reader = file, [file], _Safetensors if whole else _Torch
        self._parts: list[_File] = []
        try:
            for path in parts:
                advice = "" if path == self.source else f"{self.source.name} names it"
                paths.check_file(path, max_bytes=None, advice=advice)
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


def _find(folder: AnyPath) -> tuple[AnyPath, Sequence[AnyPath], Callable[[AnyPath], _File]]:
    """Returns the file or index of the weights, all their files, and the reader of one file."""
    for name, reader in _READERS.items():
        path = folder / name
        if path.exists():
            return path, [path], reader
        if (index := folder / f"{name}.index.json").exists():
            return index, _split_files(index), reader
    candidates: list[AnyPath] = sorted(
        path
        for pattern in _TORCH_FILES
        for path in folder.glob(pattern)
        if not path.name.startswith(_OTHERS)
    )
    if len(candidates) == 1:
        return candidates[0], candidates, _Torch
    if candidates:
        raise UserError(
            f"{folder} has several files of weights "
            f"({', '.join(path.name for path in candidates)}): rename the one to read to {TORCH}"
        )
    raise UserError(
        f"{folder / SAFETENSORS} is missing, and so are {TORCH} and {KERAS}: is this the folder of "
        "a Hugging Face model?"
    )


def _split_files(index: AnyPath) -> list[AnyPath]:
    """Returns the files that an index names, all of them in the folder of the index."""
    files_by_tensor = json_files.read(index).get("weight_map")
    names: list[Any] = [None]
    if isinstance(files_by_tensor, dict):
        names = list(files_by_tensor.values())
    if not all(isinstance(name, str) for name in names):
        raise UserError(f"{index}: weight_map: expected the name of a file for each tensor")
    return [index.with_name(PurePosixPath(name).name) for name in sorted(set(names))]


class Tensors(LazyTensors):
    """The tensors by their current names, read when accessed.

    Attributes:
      notes: sentences about prefixes that were removed from names.
    """

    _index: dict[str, str]

    def __init__(
        self,
        weights: Weights,
        system: System,
        aliases: Mapping[str, str],
        encoder: Sequence[str],
        heads: Collection[str] = (),
    ):
        """Finds the current name of each tensor.

        Args:
          weights: the tensors by the names in their files.
          system: the table of the system.
          aliases: {copy: original} for tensors that repeat another one.
          encoder: the names of the encoder's tensors in the table; files always have the first.
          heads: the names of the tensors of the heads that config.json names, or of all heads.

        Raises:
          UserError: the name of a tensor is ambiguous, or a copy differs from its original.
        """
        self.source, self._weights = weights.source, weights
        self.notes: list[str] = []
        if weights.by_tf:
            present = {name.partition(".")[0] for name in heads}
            copies = [name for name in aliases if name.partition(".")[0] in present]
            stored = self._of_tf([*encoder, *heads, *copies], system.prefix.rstrip("."))
        else:
            stored = {name.replace(_COMPILED, ""): name for name in weights}
            if any(_COMPILED in name for name in weights):
                self.notes.append(f"{_COMPILED} in the names of tensors is left out")
        self._index = {
            current_name(name, system): actual
            for name, actual in self._without_prefix(stored, system, encoder[0]).items()
        }
        for buffer in system.buffers:
            for name in fnmatch.filter(self._index, buffer):
                del self._index[name]
        for alias, name in aliases.items():
            if alias not in self._index:
                continue
            if name in self._index and not np.array_equal(self[alias], self[name]):
                raise UserError(
                    f"{self.source}: {alias} differs from {name}: an output layer that is not "
                    "tied to the embedding is not supported"
                )
            self._index.setdefault(name, self._index[alias])
            del self._index[alias]

    def _without_prefix(
        self, names: Mapping[str, str], system: System, first: str
    ) -> Mapping[str, str]:
        """Removes a prefix before the names of the table, such as `module.`."""
        bare = first.removeprefix(system.prefix)
        if first in names or bare in names:
            return names
        for wanted in dict.fromkeys((first, bare)):
            prefixes = sorted(
                {name.removesuffix(wanted) for name in names if name.endswith(f".{wanted}")}
            )
            if len(prefixes) > 1:
                raise UserError(
                    f"{self.source} has {len(prefixes)} encoders, under {', '.join(prefixes)}: "
                    "save a file with the tensors of one encoder"
                )
            if prefixes:
                prefix = prefixes[0]
                self.notes.append(f"{prefix} at the beginning of tensor names is removed")
                return {name.removeprefix(prefix): actual for name, actual in names.items()}
        return names

    def _of_tf(self, wanted: Sequence[str], prefix: str) -> dict[str, str]:
        """Returns {name of the table: name in a file of TensorFlow's classes}."""
        whole = {tuple(name.split(".")): name for name in wanted}
        shorter: dict[tuple[str, ...], set[str]] = {}
        for path, name in whole.items():
            shorter.setdefault(path[1:], set()).add(name)
        result: dict[str, str] = {}
        for stored in self._weights:
            path = _tf_path(stored)
            ends = (whole.get(path[start:]) for start in range(len(path)))
            known = next(filter(None, ends), None)
            candidates = [known] if known else sorted(shorter.get(path, ()))
            if len(candidates) > 1:
                raise UserError(
                    f"{self.source}: {stored} may be {candidates[0]} or {candidates[1]}: the "
                    "version of transformers that saved it gave both tensors the same name and "
                    "kept only one. Load the model where it was trained, and save it with "
                    "save_pretrained(FOLDER, safe_serialization=False)"
                )
            name = candidates[0] if candidates else ".".join(path[_last(path, prefix) :])
            other = result.setdefault(name, stored)
            if other != stored and not np.array_equal(self._weights[other], self._weights[stored]):
                raise UserError(
                    f"{self.source}: {other} and {stored} are copies of one tensor, but differ"
                )
        for name, unread in _READ.items():
            if name in result:
                result[unread] = result.pop(name)
        return result

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads a tensor in the layout of PyTorch's classes."""
        stored = self._index[name]
        tensor = self._weights[stored]
        if not self._weights.by_tf or tensor.ndim != 2:
            return tensor
        if _KERNEL.search(stored):
            return tensor.T
        return tensor[0] if name.endswith(".bias") and len(tensor) == 1 else tensor


def current_name(name: str, system: System) -> str:
    """Returns the name of a tensor in the current class with a head, from that in another one."""
    stem, dot, kind = name.rpartition(".")
    name = stem + dot + {"gamma": "weight", "beta": "bias"}.get(kind, kind)
    return system.prefix + name if name.startswith(system.bare) else name


def _last(path: tuple[str, ...], part: str) -> int:
    """Returns the last index of a part in a path, or 0."""
    return max((i for i, other in enumerate(path) if other == part), default=0)


def _tf_path(name: str) -> tuple[str, ...]:
    """Returns the parts of a name of TensorFlow's classes, renamed as in PyTorch's classes."""
    parts = name.partition(":")[0].replace("_._", "/").split("/")
    parts = [part.rpartition("___")[2] for part in parts if part]
    return (*parts[:-1], _KINDS.get(parts[-1], parts[-1])) if parts else (name,)
