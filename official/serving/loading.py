"""Loads a model folder for use from Python: `official.load(DIR)`.

TensorFlow is imported when something needs it.
"""

import functools
import os
from typing import TYPE_CHECKING, Union

from official.saving import checkpoints
from official.serving import RUNTIMES
from official.serving.light import folder as light
from official.serving.light.embedder import LightEmbedder
from official.serving.light.folder import PRECISIONS
from official.serving.light_model import LightModel
from official.utils import atomic, errors, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

if TYPE_CHECKING:
    from official.serving.loaded_model import LoadedModel

_CONFIG = "config.yaml"  # of a model folder


def load(
    model_dir: str | os.PathLike,
    checkpoint: str = "best",
    precision: str = "float32",
    runtime: str = "tensorflow",
) -> Union["LoadedModel", LightModel]:
    """Loads a model folder.

    Example:
    ```python
    vectors = official.load("run/pretrained").encode(["raw text"])
    ```

    Args:
      model_dir: a model folder of a training run or of `official.convert`; or a folder of
        transformers or sentence-transformers, which is converted in memory each time; or what
        `official.export --format=litert` has written of an encoder.
      checkpoint: `best` (the last one if there was no evaluation), `last`, a step or a path.
      precision: `float32`, `bfloat16` or `int8`, as an export computes
        (`official.serving.compute.precision`). For `float32` the process computes without TF32.
      runtime: `litert` computes vectors (`encode`, `tokens`, `search`, `for_mteb`) with LiteRT, on
        CPUs alone, in float32 or int8, and everything else in float32 with TensorFlow. What was
        converted is kept in the folder `litert` of a model folder: with the packages
        `ai-edge-litert` and `tokenizers`, the next process has its vectors without TensorFlow.

    Returns:
      The model; of an export, or with `litert` where its vectors need nothing else, a `LightModel`.

    Raises:
      UserError: it is not a model folder, or its parts do not belong together; `precision` or
        `runtime` is none of these, or not supported for the model; an export is given a checkpoint
        or a precision.
    """
    path = paths.path(model_dir)
    if light.is_light(path):
        if (checkpoint, precision) != ("best", "float32") or runtime not in RUNTIMES:
            raise UserError(
                f"{path} is an export for LiteRT, which has its own weights and precision: leave "
                "checkpoint, precision and runtime out"
            )
        return LightModel(LightEmbedder(path))
    whole = functools.partial(_whole, model_dir, checkpoint, precision, runtime)
    keeps = not paths.is_remote(path) and (path / _CONFIG).exists()
    if runtime != "litert" or precision not in PRECISIONS or not keeps or light.missing_packages():
        return whole()
    cached = light.cached(path, checkpoints.digest(path, checkpoint), precision)
    if light.is_light(cached):
        return LightModel(LightEmbedder(cached), whole)
    return _converted(whole(), cached)


def _whole(
    model_dir: str | os.PathLike, checkpoint: str, precision: str, runtime: str
) -> "LoadedModel":
    from official.serving import loaded_model

    return loaded_model.load(model_dir, checkpoint, precision, runtime)


def _converted(loaded: "LoadedModel", cached: AnyPath) -> Union["LoadedModel", LightModel]:
    """Keeps what computes the vectors of a model; returns the model itself if that cannot be."""
    try:
        with atomic.folder(cached) as folder:
            if (reason := loaded.embedder.save_light(folder)) is not None:
                raise _Unsuited(reason)
            LightEmbedder(folder)  # is checked
    except _Unsuited:
        return loaded
    except UserError as error:
        errors.warn(f"what LiteRT computes with is not kept: {error}")
        return loaded
    return LightModel(LightEmbedder(cached), lambda: loaded)


class _Unsuited(Exception):
    """The vectors of a model need more than LiteRT."""
