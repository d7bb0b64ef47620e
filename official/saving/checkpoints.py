"""Saves and loads checkpoints: all variables in one safetensors file, by their paths.

A checkpoint is a folder such as `checkpoints/step-00000500`. `variables.safetensors` contains the
variables of the model, those of the optimizer under `optimizer/`, and the memory of the rows of a
stream under `memory/`. `state.json` contains the step, the metrics, the data, the name and the
SHA-256 of the file of variables, and its own checksum. A run needs nothing else to continue
exactly, because the position in the data and all random draws are functions of the step.

1. A new checkpoint is written under a temporary name, synced and renamed. If a checkpoint of the
   same step exists, a second file of variables is written, then the `state.json` that names it, and
   then the first file is removed. A process that is killed at any moment leaves either the old or
   the new checkpoint intact. Other leftovers are removed at the next start.
2. `best.json` names the best step so far. It is written after the checkpoint of this step.
3. Old checkpoints are removed last. The newest `keep` checkpoints and the best one are kept.

On a remote file system, a checkpoint is written in place, `state.json` last, and is removed in the
opposite order: a folder without `state.json` is not a checkpoint. `last.json` names the newest
step, because a listing may not have it yet.
"""

import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from official.utils import atomic, checksums, errors, json_files, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.safetensors_file import SafetensorsFile

_FOLDER = "checkpoints"
_NAME = re.compile(r"step-(\d{8,})$")
_VARIABLES = "variables.safetensors"
_ANY_VARIABLES = re.compile(r"variables(-\d+)?\.safetensors")
_STATE = "state.json"
_BEST = "best.json"
_LAST = "last.json"  # of remote folders
OPTIMIZER = "optimizer/"
MEMORY = "memory/"
_STATE_OF_RUN = (OPTIMIZER, MEMORY)
LORA_FACTOR = "lora_factor"  # of `state.json`, if the variables have low-rank updates


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose checksums are correct.

    Attributes:
      path: the folder.
      state: the content of `state.json`.
      variables: arrays by path.
    """

    path: AnyPath
    state: Mapping[str, Any]
    variables: Mapping[str, np.ndarray]

    @property
    def step(self) -> int:
        """The number of updates of the variables."""
        return self.state["step"]


def save(
    model_dir: str | os.PathLike,
    step: int,
    variables: Mapping[str, np.ndarray],
    state: Mapping[str, Any],
    keep: int = 2,
) -> AnyPath:
    """Writes the checkpoint of a step and removes old checkpoints.

    Args:
      model_dir: the model folder.
      step: the number of updates of the variables.
      variables: arrays by path.
      state: is written to `state.json` with the step and the checksums.
      keep: the number of newest checkpoints up to this step to keep, in addition to the best one.

    Raises:
      UserError: the checkpoint cannot be written. Existing checkpoints are not changed.
    """
    path = _path(model_dir, step)
    if _exists(path) and not _has_state(path):
        atomic.remove(path)  # a damaged checkpoint, which is replaced
    arrays = {name: np.asarray(array, order="C") for name, array in variables.items()}
    again, remote = path.is_dir(), paths.is_remote(path)
    with contextlib.nullcontext(path) if again or remote else atomic.folder(path) as folder:
        file = next(f for f in map(folder.joinpath, _file_names()) if not _exists(f))
        with atomic.replacing(file) as temporary:
            safetensors.numpy.save_file(arrays, temporary)
            record = {
                "step": step,
                "file": file.name,
                "sha256": checksums.hash_file(temporary),
                **state,
            }
        json_files.write_record(folder / _STATE, record)
        if again:
            _remove_others(folder, file.name)
    if remote:
        json_files.write_record(path.with_name(_LAST), {"step": step})
    _remove_old(model_dir, step, keep)
    return path


def mark_best(model_dir: str | os.PathLike, step: int, metric: str, value: float) -> None:
    """Names the best checkpoint so far."""
    path = paths.path(model_dir) / _FOLDER / _BEST
    json_files.write_record(path, {"step": step, "metric": metric, "value": value})


def unmark_best(model_dir: str | os.PathLike) -> None:
    """Removes the file that `mark_best` writes, if it exists."""
    path = paths.path(model_dir) / _FOLDER / _BEST
    if _exists(path):
        atomic.remove(path)


def best(model_dir: str | os.PathLike) -> dict[str, Any] | None:
    """Returns step, metric and value of the last `mark_best`, or None.

    Raises:
      UserError: the file is damaged.
    """
    path = paths.path(model_dir) / _FOLDER / _BEST
    if not _exists(path):
        return None
    return json_files.read_record(path, {"step": int, "metric": str, "value": int | float})


def last_step(model_dir: str | os.PathLike) -> int | None:
    """Returns the newest step with a checkpoint, intact or damaged, or None."""
    return max(_steps(model_dir), default=None)


def remove_leftovers(model_dir: str | os.PathLike) -> None:
    """Removes incomplete files of a killed process."""
    parent = paths.path(model_dir) / _FOLDER
    for step in _steps(model_dir) if paths.is_remote(model_dir) else ():
        if not (_path(model_dir, step) / _STATE).exists():
            atomic.remove(_path(model_dir, step))
    for folder in (parent, *(_path(model_dir, step) for step in _steps(model_dir))):
        if folder.is_dir():
            atomic.remove_leftovers(folder)


def find(model_dir: str | os.PathLike, which: str = "best") -> AnyPath:
    """Returns the folder of a checkpoint, which may be damaged.

    Args:
      model_dir: the model folder.
      which: `best` (the last one if there was no evaluation), `last`, a step, or a path.

    Raises:
      UserError: there is no such checkpoint, or the best one is not known.
    """
    model_dir = paths.path(model_dir)
    if which in ("best", "last"):
        step = last_step(model_dir)
        if step is None:
            raise UserError(f"{model_dir}: no checkpoint in it: it is not a trained model folder")
        path = _path(model_dir, step)
        return _find_best(model_dir, path) if which == "best" else path
    path = _path(model_dir, int(which)) if which.isdecimal() else paths.path(which)
    if not path.is_dir() and not (path / _STATE).exists():
        have = ", ".join(map(str, _steps(model_dir))) or "none"
        raise UserError(f"{path}: no such checkpoint (steps in {model_dir}: {have})")
    return path


def load_state(path: str | os.PathLike) -> dict[str, Any]:
    """Reads the `state.json` of a checkpoint folder.

    Raises:
      UserError: the file is damaged.
    """
    file = paths.path(path) / _STATE
    kinds = {"step": int, "sha256": str, "file": str, "figures": dict, "waited": int}
    defaults = {"file": _VARIABLES, "figures": {}, "waited": 0, LORA_FACTOR: 0}
    state = json_files.read_record(file, {**kinds, LORA_FACTOR: int | float}, defaults)
    if not _ANY_VARIABLES.fullmatch(state["file"]):
        raise UserError(
            f"{file}: damaged (file: {state['file']!r} is not the name of a file of variables)"
        )
    named = _NAME.search(paths.path(path).name)
    if named and int(named[1]) != state["step"]:
        raise UserError(f"{file}: damaged (it is of step {state['step']})")
    return state


def digest(model_dir: str | os.PathLike, which: str = "best") -> str:
    """Returns the SHA-256 of the file of variables that `find` finds, as its `state.json` has it.

    Raises:
      UserError: as in `find` and `load_state`.
    """
    return load_state(find(model_dir, which))["sha256"]


def load(model_dir: str | os.PathLike, which: str = "best", optimizer: bool = False) -> Checkpoint:
    """Reads a checkpoint. `last` means the newest one that is intact.

    Args:
      model_dir: the model folder.
      which: as in `find`.
      optimizer: whether to read also the variables of the optimizer and the memory. If not,
        low-rank updates are added to their kernels and differences to their tables, and the
        variables are those of the model.

    Raises:
      UserError: there is no such checkpoint, or it is damaged.
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
    for step in reversed(_steps(model_dir)):
        try:
            checkpoint = _load(_path(model_dir, step), optimizer)
        except UserError as error:
            problems.append(str(error))
            continue
        for problem in problems:
            errors.warn(f"{problem}: the newest whole checkpoint is {checkpoint.path}")
        return checkpoint
    raise UserError(
        f"{'; '.join(problems)}: no checkpoint of {model_dir} is whole: copy it again from where "
        f"it is, or remove {paths.path(model_dir) / _FOLDER} to begin anew"
    )


def load_variables(
    model_dir: str | os.PathLike, which: str = "best", optimizer: bool = False
) -> dict[str, np.ndarray]:
    """Returns the arrays that `load` reads, by path."""
    return dict(load(model_dir, which, optimizer).variables)


def _path(model_dir: str | os.PathLike, step: int) -> AnyPath:
    return paths.path(model_dir) / _FOLDER / f"step-{step:08d}"


def _steps(model_dir: str | os.PathLike) -> list[int]:
    """Returns the steps with a folder, intact or damaged."""
    folder = paths.path(model_dir) / _FOLDER
    names = (_NAME.search(path.name) for path in folder.glob("step-*"))
    steps = {int(match[1]) for match in names if match}
    if paths.is_remote(folder) and (folder / _LAST).exists():
        last = json_files.read_record(folder / _LAST, {"step": int})["step"]
        steps |= {last} if (_path(model_dir, last) / _STATE).exists() else set()
    return sorted(steps)


def _file_names() -> Iterator[str]:
    """Yields the names of the file of variables. A file that is written again gets a new name."""
    yield _VARIABLES
    for number in itertools.count(2):
        yield _VARIABLES.replace(".", f"-{number}.")


def _find_best(model_dir: AnyPath, newest: AnyPath) -> AnyPath:
    file = model_dir / _FOLDER / _BEST
    another = "name another checkpoint, such as --checkpoint=last"
    try:
        record = best(model_dir)
    except UserError as error:
        raise UserError(
            f"{error}: give the training command again, which writes it anew, or {another}"
        ) from None
    if record is None:
        if load_state(newest).get("best"):
            raise UserError(
                f"{file} is missing, and {newest} was not the best: give the training command "
                f"again, which writes it anew, or {another}"
            )
        return newest
    path = _path(model_dir, record["step"])
    if not path.is_dir() and not (path / _STATE).exists():
        raise UserError(f"{file} names {path}, which is missing: {another}")
    return path


def _load(path: AnyPath, optimizer: bool) -> Checkpoint:
    state = load_state(path)
    file = path / state["file"]
    try:
        with paths.local_copy(file) as copied:
            if checksums.hash_file(copied) != state["sha256"]:
                raise UserError(f"{file}: damaged (its SHA-256 is not the one in {_STATE})")
            with contextlib.closing(SafetensorsFile(copied)) as stored:
                names = [n for n in stored.names if optimizer or not n.startswith(_STATE_OF_RUN)]
                arrays = {name: stored.tensor(name) for name in names}
    except (OSError, safetensors.SafetensorError) as error:
        raise json_files.unreadable(file, error) from None
    if not optimizer:
        # These import TensorFlow, which the readers of names and states do without.
        from official.modeling.layers import embeddings, low_rank

        if state[LORA_FACTOR]:
            arrays = low_rank.merged(arrays, state[LORA_FACTOR])
        arrays = embeddings.finished(arrays)
    return Checkpoint(path, state, arrays)


def _remove_others(folder: AnyPath, name: str) -> None:
    """Removes the files of variables that the state of a step does not name."""
    for path in folder.iterdir():
        if _ANY_VARIABLES.fullmatch(path.name) and path.name != name:
            atomic.remove(path)


def _remove_old(model_dir: str | os.PathLike, step: int, keep: int) -> None:
    """Removes the checkpoints up to a step except for the newest `keep` and the best one.

    Checkpoints of later steps are damaged: the run continues from an earlier step and writes them
    again.
    """
    try:
        named = best(model_dir)
    except UserError:
        return  # best.json is damaged, so the best checkpoint is unknown
    before = [other for other in _steps(model_dir) if other <= step]
    for old in before[:-keep]:
        if named is None or old != named["step"]:
            atomic.remove(_path(model_dir, old), _STATE)


def _exists(path: AnyPath) -> bool:
    return path.exists() or path.is_symlink()


def _has_state(path: AnyPath) -> bool:
    try:
        load_state(path)
    except UserError:
        return False
    return True
