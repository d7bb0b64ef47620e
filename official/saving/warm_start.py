"""Weights of another model as the first weights of a new one."""

from collections.abc import Collection, Iterable

import numpy as np

from official.modeling.model import Model
from official.saving import checkpoints

_POOLER = "encoder/pooler/"
_POSITIONS = "/position_embedding/table"


def start_from(model: Model, init: str, which: str, weights: str) -> tuple[int, list[str]]:
    """Copies weights of another model folder into a new model.

    A pooler that the other's encoder lacks keeps its first weights, where `weights` is `encoder`.
    Where the new encoder has more positions, the other's table of them is repeated until it is long
    enough, so that what attention learned of near positions holds within each copy (Longformer,
    Beltagy et al., 2020, section 5).

    Args:
      model: the new one.
      init: the other's model folder.
      which: the checkpoint, as in `checkpoints.find`.
      weights: as `init_weights` in `config.Recipe`; `run` gives all of them here.

    Returns:
      How many variables were set, and the parts of the model of which none was.
    """
    parts = {
        "all": ("",), "run": ("",), "encoder": ("encoder/",),
        "generator": ("encoder/", "generator/"), "none": (),
    }[weights]  # fmt: skip
    variables = {
        path: variable
        for path, variable in model.variables_by_path().items()
        if path.startswith(parts)
    }
    if variables:
        arrays = checkpoints.load_variables(init, which)
        if weights == "generator":
            arrays |= {f"generator/{path}": array for path, array in arrays.items()}
        if weights == "encoder" and not any(path.startswith(_POOLER) for path in arrays):
            variables = {path: v for path, v in variables.items() if not path.startswith(_POOLER)}
        for path in variables:
            if path.endswith(_POSITIONS) and path in arrays:
                rows, offset = variables[path].shape[0], model.encoder.config.position_offset
                arrays[path] = _repeated(arrays[path], rows, offset)
        checkpoints.assign(variables, arrays, f"--init={init}")
    return len(variables), _other_parts(model.variables_by_path(), variables)


def _repeated(table: np.ndarray, rows: int, offset: int) -> np.ndarray:
    """A table of positions with `rows` rows: those after the first `offset` again and again."""
    if rows <= len(table):
        return table
    source = offset + (np.arange(rows) - offset) % (len(table) - offset)
    return table[np.where(np.arange(rows) < offset, np.arange(rows), source)]


def _other_parts(paths: Iterable[str], known: Collection[str]) -> list[str]:
    """The shortest beginnings of paths that none of those in `known` has, each once."""
    parts = []
    for path in paths:
        names = path.split("/")
        heads = ["/".join(names[: i + 1]) for i in range(len(names))]
        unlike = (h for h in heads if not any(f"{other}/".startswith(f"{h}/") for other in known))
        parts += [next(unlike)] if path not in known else []
    return list(dict.fromkeys(parts))
