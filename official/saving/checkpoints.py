"""Checkpoints: every variable under its path in one safetensors file, whole or not there at all.

A checkpoint is the folder `checkpoints/step-00000500`. `variables.safetensors` maps a path to an
array: the model's variables, the optimizer's under `optimizer/` and what the rows of a stream
remember under `memory/`. `state.json` has the step, the metrics, the data, the name and SHA-256 of
the variables' file, and a checksum of itself. Nothing else is needed to go on exactly: the place in
the data and every random draw are functions of the step.

1. A new checkpoint is filled under a temporary name, synced and renamed. One that is written again
   for the same step gets a second file of variables, then the `state.json` that names it, and then
   loses the first. A kill at any moment leaves the old or the new checkpoint whole. What else it
   leaves is swept at the next start.
2. `best.json` names the best step so far, by the evaluation. It is written after its checkpoint.
3. Old checkpoints are removed last: the newest `keep` stay, and the best.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import safetensors
import safetensors.numpy

from official.saving import checked_json
from official.utils import atomic, checksums, errors
from official.utils.errors import UserError

_FOLDER = "checkpoints"
_NAME = re.compile(r"step-(\d{8,})$")
_VARIABLES = "variables.safetensors"
_ANY_VARIABLES = re.compile(r"variables(-\d+)?\.safetensors")
_STATE = "state.json"
_BEST = "best.json"
OPTIMIZER = "optimizer/"
MEMORY = "memory/"
_STATE_OF_RUN = (OPTIMIZER, MEMORY)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it was read, after its checksums held.

    Attributes:
      path: its folder.
      state: what `state.json` has.
      variables: arrays by path.
    """

    path: Path
    state: Mapping[str, Any]
    variables: Mapping[str, np.ndarray]

    @property
    def step(self) -> int:
        """How many updates the variables have seen."""
        return self.state["step"]


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
      state: goes into `state.json` as it is, with the step and the checksums.
      keep: how many of the newest up to this step stay, beside the best.

    Raises:
      UserError: it cannot be written; what was there before is untouched.
    """
    path = _path(model_dir, step)
    if os.path.lexists(path) and not _has_state(path):
        atomic.remove(path)  # damaged: nothing in it can be used
    arrays = {name: np.asarray(array, order="C") for name, array in variables.items()}
    with contextlib.nullcontext(path) if path.is_dir() else atomic.folder(path) as folder:
        file = next(f for f in map(folder.joinpath, _file_names()) if not os.path.lexists(f))
        with atomic.replacing(file) as temporary:
            safetensors.numpy.save_file(arrays, temporary)
            record = {
                "step": step,
                "file": file.name,
                "sha256": checksums.hash_file(temporary),
                **state,
            }
        checked_json.write(folder / _STATE, record)
        _remove_others(folder, file.name)
    _remove_old(model_dir, step, keep)
    return path


def mark_best(model_dir: str | os.PathLike, step: int, metric: str, value: float) -> None:
    """Names the best checkpoint so far."""
    path = Path(model_dir) / _FOLDER / _BEST
    checked_json.write(path, {"step": step, "metric": metric, "value": value})


def unmark_best(model_dir: str | os.PathLike) -> None:
    """Takes back what `mark_best` wrote, if it did."""
    path = Path(model_dir) / _FOLDER / _BEST
    if os.path.lexists(path):
        atomic.remove(path)


def best(model_dir: str | os.PathLike) -> dict[str, Any] | None:
    """What `mark_best` wrote last: step, metric and value; None if nothing.

    Raises:
      UserError: the file is damaged.
    """
    path = Path(model_dir) / _FOLDER / _BEST
    if not os.path.lexists(path):
        return None
    return checked_json.read(path, {"step": int, "metric": str, "value": int | float})


def last_step(model_dir: str | os.PathLike) -> int | None:
    """The newest step that has a checkpoint, whole or damaged; None if there is none."""
    return max(_steps(model_dir), default=None)


def remove_leftovers(model_dir: str | os.PathLike) -> None:
    """Removes what a killed process left half-written."""
    parent = Path(model_dir) / _FOLDER
    for folder in (parent, *(_path(model_dir, step) for step in _steps(model_dir))):
        if folder.is_dir():
            atomic.remove_leftovers(folder)


def find(model_dir: str | os.PathLike, which: str = "best") -> Path:
    """The folder of a checkpoint, which may be damaged.

    Args:
      model_dir: the model folder.
      which: `best` (the last, where no evaluation named one), `last`, a step, or a path.

    Raises:
      UserError: there is no such checkpoint, or nothing says which one is the best.
    """
    model_dir = Path(model_dir)
    if which in ("best", "last"):
        step = last_step(model_dir)
        if step is None:
            raise UserError(f"{model_dir}: no checkpoint in it: it is not a trained model folder")
        path = _path(model_dir, step)
        return _find_best(model_dir, path) if which == "best" else path
    path = _path(model_dir, int(which)) if which.isdecimal() else Path(which)
    if not path.is_dir():
        have = ", ".join(map(str, sorted(_steps(model_dir)))) or "none"
        raise UserError(f"{path}: no such checkpoint (steps in {model_dir}: {have})")
    return path


def load_state(path: str | os.PathLike) -> dict[str, Any]:
    """The `state.json` of a checkpoint folder.

    Raises:
      UserError: it is damaged.
    """
    file = Path(path) / _STATE
    kinds = {"step": int, "sha256": str, "file": str, "figures": dict, "waited": int}
    state = checked_json.read(file, kinds, {"file": _VARIABLES, "figures": {}, "waited": 0})
    if not _ANY_VARIABLES.fullmatch(state["file"]):
        raise UserError(f"{file}: damaged (file: {state['file']!r} is no name of variables)")
    named = _NAME.search(Path(path).name)
    if named and int(named[1]) != state["step"]:
        raise UserError(f"{file}: damaged (it is of step {state['step']})")
    return state


def load(model_dir: str | os.PathLike, which: str = "best", optimizer: bool = False) -> Checkpoint:
    """Reads a checkpoint; of `last` the newest one that is whole.

    Args:
      model_dir: the model folder.
      which: as in `find`.
      optimizer: what else a run needs to go on, too: the optimizer's variables, the memory.

    Raises:
      UserError: no such checkpoint, or its bytes are not those that were written.
    """
    path = find(model_dir, which)
    if which != "last":
        try:
            return _load(path, optimizer)
        except UserError as error:
            raise UserError(
                f"{error}: copy {path} again from where it is whole, or name another checkpoint "
                "(--checkpoint=last takes the newest one that is whole)"
            ) from None
    problems = []
    for step in sorted(_steps(model_dir), reverse=True):
        try:
            found = _load(_path(model_dir, step), optimizer)
        except UserError as error:
            problems.append(str(error))
            continue
        for problem in problems:
            errors.warn(f"{problem}: the newest whole checkpoint is {found.path}")
        return found
    raise UserError(
        f"{'; '.join(problems)}: no checkpoint of {model_dir} is whole: copy it again from where "
        f"it is, or remove {Path(model_dir) / _FOLDER} to begin anew"
    )


def load_variables(
    model_dir: str | os.PathLike, which: str = "best", optimizer: bool = False
) -> dict[str, np.ndarray]:
    """The arrays that `load` reads, by path."""
    return dict(load(model_dir, which, optimizer).variables)


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


def digest(arrays: Mapping[str, np.ndarray], rest: Any) -> str:
    """SHA-256 of arrays by path and of plain values."""
    total = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for path, array in sorted(arrays.items()):
        total.update(f"{path} {array.dtype} {array.shape};".encode())
        total.update(np.ascontiguousarray(array).view(np.uint8).data)
    return total.hexdigest()


def _path(model_dir: str | os.PathLike, step: int) -> Path:
    return Path(model_dir) / _FOLDER / f"step-{step:08d}"


def _steps(model_dir: str | os.PathLike) -> list[int]:
    names = (_NAME.search(p.name) for p in (Path(model_dir) / _FOLDER).glob("step-*"))
    return [int(match[1]) for match in names if match]


def _file_names() -> Iterator[str]:
    """What the variables of a step may be called: each time they are written, another one."""
    yield _VARIABLES
    for number in itertools.count(2):
        yield _VARIABLES.replace(".", f"-{number}.")


def _find_best(model_dir: Path, newest: Path) -> Path:
    file = model_dir / _FOLDER / _BEST
    another = "name another checkpoint, such as --checkpoint=last"
    try:
        found = best(model_dir)
    except UserError as error:
        raise UserError(
            f"{error}: give the training command again, which writes it anew, or {another}"
        ) from None
    if found is None:
        if load_state(newest).get("best"):
            raise UserError(
                f"{file} is missing, and {newest} was not the best: give the training command "
                f"again, which writes it anew, or {another}"
            )
        return newest
    path = _path(model_dir, found["step"])
    if not path.is_dir():
        raise UserError(f"{file} names {path}, which is missing: {another}")
    return path


def _load(path: Path, optimizer: bool) -> Checkpoint:
    state = load_state(path)
    file = path / state["file"]
    try:
        if checksums.hash_file(file) != state["sha256"]:
            raise UserError(f"{file}: damaged (its SHA-256 is not the one in {_STATE})")
        with safetensors.safe_open(file, framework="numpy") as stream:
            names = [n for n in stream.keys() if optimizer or not n.startswith(_STATE_OF_RUN)]  # noqa: SIM118
            return Checkpoint(path, state, {name: stream.get_tensor(name) for name in names})
    except (OSError, safetensors.SafetensorError) as error:
        raise checked_json.unreadable(file, error) from None


def _remove_others(folder: Path, name: str) -> None:
    """Removes the variables of a step that its state does not name."""
    for path in folder.iterdir():
        if _ANY_VARIABLES.fullmatch(path.name) and path.name != name:
            atomic.remove(path)


def _remove_old(model_dir: str | os.PathLike, step: int, keep: int) -> None:
    """Removes checkpoints before a step but for the newest `keep` and the best.

    Newer ones are damaged: the run has gone on from one before them, and will write them again.
    """
    try:
        named = best(model_dir)
    except UserError:
        return  # nothing says which one is the best
    before = sorted(found for found in _steps(model_dir) if found <= step)
    for old in before[:-keep]:
        if named is None or old != named["step"]:
            atomic.remove(_path(model_dir, old))


def _has_state(path: Path) -> bool:
    try:
        load_state(path)
    except UserError:
        return False
    return True
