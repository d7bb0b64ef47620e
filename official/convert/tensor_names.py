"""The tensors of a folder under the names of transformers' current PyTorch classes.

Old names (`LayerNorm.gamma`), a missing prefix `bert.`, a prefix of a training script (`module.`)
and a second copy of the tied output layer are corrected. Constants in old files are left out.

TensorFlow's classes have names of their own: `bert/encoder/layer_._0/output/dense/kernel:0` is
`bert.encoder.layer.0.output.dense.weight`, transposed. `tf_model.h5` has the name of the Keras
layer, and in old files that of the model, before it. Safetensors of some versions lack the first
part.
"""

import fnmatch
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from official.convert.mapping import LazyTensors
from official.convert.system import System
from official.convert.weight_files import Weights
from official.utils.errors import UserError

_COMPILED = "_orig_mod."  # torch.compile puts it before the names of a module
# Tensors of TensorFlow's classes and those that they have as well and do not read (ALBERT's).
_READ = {"predictions.decoder.bias": "predictions.bias"}
# Matrices that PyTorch's classes have transposed; the others are those of an adaptive embedding.
_KERNEL = re.compile(r"(^|/)(kernel|emb_projs_\._\d+)(:\d+)?$")
_KINDS = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}


class Tensors(LazyTensors):
    """The tensors by their current names. Each is read when it is accessed.

    Attributes:
      source: the file for messages.
      notes: sentences about what was left out of the names.
    """

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
          aliases: tensors that repeat another one, and that other one.
          encoder: the names of the encoder's tensors in the table; the first is always there.
          heads: those of the heads of the class that config.json names, or of all heads.

        Raises:
          UserError: it is not clear which tensor is which, or a copy differs.
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
            _current_name(name, system): actual
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
        """Leaves out what stands before the names of the table, such as `module.`."""
        bare = first.removeprefix(system.prefix)
        if first in names or bare in names:
            return names
        for wanted in dict.fromkeys((first, bare)):
            found = sorted(
                {name.removesuffix(wanted) for name in names if name.endswith(f".{wanted}")}
            )
            if len(found) > 1:
                raise UserError(
                    f"{self.source} has {len(found)} encoders, under {', '.join(found)}: save a "
                    "file with the tensors of one"
                )
            if found:
                self.notes.append(f"{found[0]} at the beginning of names of tensors is left out")
                return {name.removeprefix(found[0]): actual for name, actual in names.items()}
        return names

    def _of_tf(self, wanted: Sequence[str], prefix: str) -> dict[str, str]:
        """Returns the names in files of TensorFlow's classes by those of the table."""
        whole = {tuple(name.split(".")): name for name in wanted}
        shorter: dict[tuple[str, ...], set[str]] = {}
        for path, name in whole.items():
            shorter.setdefault(path[1:], set()).add(name)
        result: dict[str, str] = {}
        for stored in self._weights:
            path = _tf_path(stored)
            ends = (whole.get(path[start:]) for start in range(len(path)))
            name = next(filter(None, ends), None)
            candidates = [name] if name else sorted(shorter.get(path, ()))
            if len(candidates) > 1:
                raise UserError(
                    f"{self.source}: {stored} is one tensor, and it may be {candidates[0]} or "
                    f"{candidates[1]}: the version of transformers that has saved it gave both the "
                    "same name and kept one alone. Load the model where it was trained, and save "
                    "it with save_pretrained(FOLDER, safe_serialization=False)"
                )
            name = candidates[0] if candidates else ".".join(path[_last(path, prefix) :])
            other = result.setdefault(name, stored)
            if other != stored and not np.array_equal(self._weights[other], self._weights[stored]):
                raise UserError(f"{self.source}: {other} and {stored} differ, and are one tensor")
        for name, unread in _READ.items():
            if name in result:
                result[unread] = result.pop(name)
        return result

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads a tensor, as PyTorch's classes have it."""
        stored = self._index[name]
        tensor = self._weights[stored]
        if not self._weights.by_tf or tensor.ndim != 2:
            return tensor
        if _KERNEL.search(stored):
            return tensor.T
        return tensor[0] if name.endswith(".bias") and len(tensor) == 1 else tensor


def _current_name(name: str, system: System) -> str:
    stem, dot, kind = name.rpartition(".")
    name = stem + dot + {"gamma": "weight", "beta": "bias"}.get(kind, kind)
    return system.prefix + name if name.startswith(system.bare) else name


def _last(path: tuple[str, ...], part: str) -> int:
    """Returns where a part stands for the last time, or 0."""
    return max((i for i, other in enumerate(path) if other == part), default=0)


def _tf_path(name: str) -> tuple[str, ...]:
    """Returns the parts of a name of TensorFlow's classes as PyTorch's classes call them."""
    parts = name.partition(":")[0].replace("_._", "/").split("/")
    parts = [part.rpartition("___")[2] for part in parts if part]
    return (*parts[:-1], _KINDS.get(parts[-1], parts[-1])) if parts else (name,)
