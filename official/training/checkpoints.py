"""Checkpoints: every variable under its path in one safetensors file, whole or not there at all.

A checkpoint is the folder `checkpoints/step-00000500` with `variables.safetensors` (path → array:
the model's variables, the optimizer's under `optimizer/` and what the rows of a stream remember
under `memory/`) and `state.json` (step, seed,
metrics, SHA-256 of the variables). Nothing else is needed to go on exactly: the place in the
data and every random draw are functions of the step. When one is written:

1. The folder is filled under a temporary name, synced and renamed; a kill at any moment leaves
   either no new checkpoint or a whole one. Left-overs are swept at the next start.
2. `best.json` names the best step so far, by the evaluation; it is written after its checkpoint.
3. Old checkpoints are removed last: the newest `keep` stay, and the best.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import safetensors
import safetensors.numpy

from official import atomic
from official.errors import UserError
from official.training import memory

_FOLDER = "checkpoints"
_NAME = re.compile(r"step-(\d{8,})$")
_VARIABLES = "variables.safetensors"
_STATE = "state.json"
_BEST = "best.json"
OPTIMIZER = "optimizer/"
_STATE_OF_RUN = (OPTIMIZER, memory.PREFIX)


def save(
    model_dir: str | os.PathLike,
    step: int,
    variables: Mapping[str, np.ndarray],
    state: Mapping[str, Any],
    keep: int = 2,
) -> Path:
    """Writes the checkpoint of a step and removes those that are no longer kept.

    Args:
      model_dir: the model folder.
      step: how many updates the variables have seen.
      variables: arrays by path.
      state: goes into `state.json` as it is, with the step and the checksum.
      keep: how many of the newest stay, beside the best.

    Raises:
      UserError: the disk is full; what was there before is untouched.
    """
    parent = Path(model_dir) / _FOLDER
    path = parent / f"step-{step:08d}"
    with atomic.folder(path, replace=True) as folder:
        arrays = {name: np.asarray(array, order="C") for name, array in variables.items()}
        safetensors.numpy.save_file(arrays, folder / _VARIABLES)
        record = {"step": step, "sha256": _sha256(folder / _VARIABLES), **state}
        (folder / _STATE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    kept = {best_step(model_dir), *sorted(_steps(model_dir))[-keep:]}
    for old in set(_steps(model_dir)) - kept:
        # Renamed first: a kill in the middle of the removal must not leave half a checkpoint.
        retired = parent / f"{atomic.PREFIX}old-{old}"
        os.rename(parent / f"step-{old:08d}", retired)
        shutil.rmtree(retired)
    return path


def mark_best(model_dir: str | os.PathLike, step: int, metric: str, value: float) -> None:
    """Names the best checkpoint so far."""
    with atomic.file(Path(model_dir) / _FOLDER / _BEST) as stream:
        json.dump({"step": step, "metric": metric, "value": value}, stream)


def best(model_dir: str | os.PathLike) -> dict[str, Any] | None:
    """What `mark_best` wrote last: step, metric and value; None if nothing."""
    path = Path(model_dir) / _FOLDER / _BEST
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def best_step(model_dir: str | os.PathLike) -> int | None:
    """The step that `best` names."""
    found = best(model_dir)
    return found["step"] if found else None


def last_step(model_dir: str | os.PathLike) -> int | None:
    """The newest step that has a checkpoint; None if there is none."""
    return max(_steps(model_dir), default=None)


def sweep(model_dir: str | os.PathLike) -> None:
    """Removes what a killed process left half-written."""
    if (parent := Path(model_dir) / _FOLDER).is_dir():
        atomic.sweep(parent)


def find(model_dir: str | os.PathLike, which: str = "best") -> Path:
    """The folder of a checkpoint.

    Args:
      model_dir: the model folder.
      which: `best` (the last, where no evaluation named one), `last`, a step, or a path.

    Raises:
      UserError: there is no such checkpoint.
    """
    model_dir = Path(model_dir)
    if which in ("best", "last"):
        step = best_step(model_dir) if which == "best" else None
        step = last_step(model_dir) if step is None else step
        if step is None:
            raise UserError(f"{model_dir}: no checkpoint in it: it is not a trained model folder")
        return model_dir / _FOLDER / f"step-{step:08d}"
    path = model_dir / _FOLDER / f"step-{int(which):08d}" if which.isdigit() else Path(which)
    if not (path / _VARIABLES).is_file():
        have = ", ".join(map(str, sorted(_steps(model_dir)))) or "none"
        raise UserError(f"{path}: no such checkpoint (steps in {model_dir}: {have})")
    return path


def load_state(path: str | os.PathLike) -> dict[str, Any]:
    """The `state.json` of a checkpoint folder."""
    return json.loads((Path(path) / _STATE).read_text(encoding="utf-8"))


def load_variables(
    model_dir: str | os.PathLike, which: str = "best", optimizer: bool = False
) -> dict[str, np.ndarray]:
    """Arrays by path, after the checksum held.

    Args:
      model_dir: the model folder.
      which: as in `find`.
      optimizer: what else a run needs to go on, too: the optimizer's variables, the memory.

    Raises:
      UserError: no such checkpoint, or its bytes are not those that were written.
    """
    path = find(model_dir, which)
    file = path / _VARIABLES
    if _sha256(file) != load_state(path)["sha256"]:
        raise UserError(
            f"{file}: damaged (its SHA-256 is not the one in {_STATE}): remove {path}, "
            "so that the run goes on from the checkpoint before"
        )
    with safetensors.safe_open(file, framework="numpy") as stream:
        names = [n for n in stream.keys() if optimizer or not n.startswith(_STATE_OF_RUN)]  # noqa: SIM118
        return {name: stream.get_tensor(name) for name in names}


def values(variables: Mapping[str, keras.Variable]) -> dict[str, np.ndarray]:
    """Copies variables to the host."""
    return {path: np.array(variable.numpy()) for path, variable in variables.items()}


def assign(
    variables: Mapping[str, keras.Variable], arrays: Mapping[str, np.ndarray], source: str
) -> None:
    """Puts arrays into the variables of the same paths; each variable must find its array.

    Raises:
      UserError: an array is missing or has another shape; `source` says where they came from.
    """
    check({path: tuple(variable.shape) for path, variable in variables.items()}, arrays, source)
    for path, variable in variables.items():
        variable.assign(arrays[path])


def check(
    shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, np.ndarray], source: str
) -> None:
    """Refuses arrays that are not those of the variables of these shapes.

    Raises:
      UserError: an array is missing or has another shape; `source` says where they came from.
    """
    if missing := [path for path in shapes if path not in arrays]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise UserError(
            f"{source}: has no {', '.join(missing[:3])}{more}: it belongs to another config"
        )
    for path, shape in shapes.items():
        if shape != arrays[path].shape:
            raise UserError(
                f"{source}: {path} has shape {list(arrays[path].shape)} there and {list(shape)} "
                "here: it belongs to another config"
            )


def _steps(model_dir: str | os.PathLike) -> list[int]:
    names = (_NAME.search(p.name) for p in (Path(model_dir) / _FOLDER).glob("step-*"))
    return [int(match[1]) for match in names if match]


def _sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
