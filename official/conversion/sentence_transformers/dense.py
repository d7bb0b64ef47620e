"""The Dense of folders of sentence-transformers: a linear layer and its activation.

Shapes: I input and O output.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy

from official.config.sentence_embedding import Projection
from official.conversion.sentence_transformers import folder as folders
from official.conversion.weight_files import SAFETENSORS, Weights
from official.utils import json_files, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# Activations, and our names.
_TORCH = "torch.nn.modules."
_ACTIVATIONS = {
    f"{_TORCH}linear.Identity": None,
    f"{_TORCH}activation.Tanh": "tanh",
    f"{_TORCH}activation.GELU": "gelu",
    f"{_TORCH}activation.ReLU": "relu",
    f"{_TORCH}activation.SiLU": "silu",
}


def read(path: AnyPath) -> tuple[Projection, dict[str, np.ndarray]]:
    """Reads the folder of a Dense; returns its settings, and `kernel` [I, O] and perhaps `bias`.

    Raises:
      UserError: a file is missing or damaged, or a setting is not supported.
    """
    config, source = json_files.read(path / "config.json"), str(path / "config.json")
    name = config.get("activation_function", f"{_TORCH}activation.Tanh")
    if name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise UserError(f"{source}: activation_function: {name!r}: expected one of {known}")
    if config.get("use_residual"):
        raise UserError(f"{source}: use_residual: a layer with a residual is not supported")
    sizes = [
        strict.typed(int, config.get(key), key, source) for key in ("out_features", "in_features")
    ]
    bias = strict.typed(bool, config.get("bias", True), "bias", source)
    shapes = {"weight": tuple(sizes), **({"bias": (sizes[0],)} if bias else {})}
    with contextlib.closing(Weights(path)) as weights:
        tensors = {}
        for kind, shape in shapes.items():
            tensor = f"linear.{kind}"
            if tensor not in weights or weights[tensor].shape != shape:
                raise UserError(f"{weights.source}: {tensor}: missing, or not of the shape {shape}")
            tensors[kind] = weights[tensor].astype(np.float32)
    arrays = {"kernel": tensors["weight"].T}
    arrays |= {"bias": tensors["bias"]} if bias else {}
    return Projection(size=sizes[0], activation=_ACTIVATIONS[name], bias=bias), arrays


def write(
    path: AnyPath,
    activation: str | None,
    arrays: Mapping[str, np.ndarray],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Writes the files of a Dense.

    Args:
      path: its folder.
      activation: as in `Projection`.
      arrays: as `read` returns them.
      more: more settings.

    Raises:
      UserError: sentence-transformers has no such activation.
    """
    names = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
    if activation not in names:
        raise UserError(
            f"objectives: projection.activation: {activation}: sentence-transformers has no such "
            "activation"
        )
    weight = arrays["kernel"].T  # [O, I]
    tensors = {"linear.weight": np.ascontiguousarray(weight)}
    if "bias" in arrays:
        tensors["linear.bias"] = arrays["bias"]
    config = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": "bias" in arrays,
        "activation_function": names[activation],
        **(more or {}),
    }
    folders.write_json(path / "config.json", config)
    safetensors.numpy.save_file(tensors, path / SAFETENSORS, metadata={"format": "pt"})
