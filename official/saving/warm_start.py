"""Initializes a model with the weights of another one."""

import re
from collections.abc import Collection, Iterable

import keras
import numpy as np

from official import tokenizers
from official.config.sparse_embedding import SparseEmbeddingConfig
from official.modeling.layers import embeddings, low_rank
from official.modeling.model import Model
from official.saving import checkpoints, derived_models, model_folder, named_arrays
from official.utils import paths

_POOLER = re.compile("encoder/pooler/")
_ADAPTER = re.compile("encoder/.*_adapter/")
_HIDDEN = ("transform/kernel", "transform/bias", "norm/scale", "norm/offset")
_TABLE = re.compile("sparse_embedding/query_weights$")
_POSITIONS = "/position_embedding/table"


def start_from(
    model: Model,
    init: str,
    which: str,
    weights: str,
    tokenizer: tokenizers.Tokenizer | None = None,
) -> tuple[int, list[str]]:
    """Copies the weights of another model folder to a new model.

    Low-rank updates keep their initial weights, with which they change nothing: those of the other
    model are in its kernels. With `all` and `run` they go on from those of the other model, if it
    has the same (rank, factor and targets), and then its kernels are without them. Adapters that
    the other encoder lacks keep theirs, and so does a pooler with `encoder`. The hidden layer of a
    head (`transform`) then gets the weights of that of the other model's masked LM. The head of
    `sparse_embedding` gets those of the other model's own, or else of its masked LM; its table of
    queries may be fresh. If the new encoder has more positions, the other table of positions is
    repeated, so that what attention has learned about near positions remains valid within each copy
    (Longformer, Beltagy et al., 2020, section 5). Of another vocabulary each piece gets the row
    that it has in the other model, or the mean of those that spell it (see `derived_models`). A
    token table that is a sum (`sharing: gdes`) is that of the other encoder, whatever its base is.

    Args:
      model: the new model.
      init: the other model folder.
      which: the checkpoint, as in `checkpoints.find`.
      weights: as `init_weights` in `config.Recipe`; `run` means all weights here.
      tokenizer: that of the new model; None = the other model has the same.

    Returns:
      The number of variables that were set, and the parts of the model without any of them.
    """
    parts = {
        "all": ("",), "run": ("",), "encoder": ("encoder/",),
        "generator": ("encoder/", "generator/"), "none": (),
    }[weights]  # fmt: skip
    kept = _same_updates(model, init, which) if weights in ("all", "run") else {}
    variables = {
        path: variable
        for path, variable in model.variables_by_path().items()
        if path.startswith(parts) and (path in kept or not low_rank.is_update(path))
    }
    hidden = _hidden_layers(model) if weights == "encoder" else {}
    if variables:
        arrays = {**checkpoints.load_variables(init, which), **kept}
        if tokenizer is not None:
            known = tokenizers.load(paths.path(init) / "tokenizer")
            if known.fingerprint != tokenizer.fingerprint:
                size = model.encoder.config.vocab_size
                initial = model_folder.config_of(init)
                arrays = derived_models.rows_for_tokenizer(initial, arrays, known, tokenizer, size)
        for path, (whole, base) in embeddings.bases(variables).items():
            if base not in variables and whole in arrays:
                # The base is fresh. This difference makes the sum equal the table of the other
                # encoder.
                own, table = model.variables_by_path()[base].numpy(), arrays[whole]
                arrays[path] = table - own if table.shape == own.shape else table
        if weights == "generator":
            arrays |= {f"generator/{path}": array for path, array in arrays.items()}
        for path, (variable, theirs) in hidden.items():
            if theirs in arrays and arrays[theirs].shape == variable.shape:
                variables[path], arrays[path] = variable, arrays[theirs]
        if weights != "none":
            variables |= _sparse_heads(model, arrays)
        fresh = [_ADAPTER, _TABLE] + [_POOLER] * (weights == "encoder")
        for pattern in fresh:
            if not any(map(pattern.match, arrays)):
                variables = {p: v for p, v in variables.items() if not pattern.match(p)}
        for path in variables:
            if path.endswith(_POSITIONS) and path in arrays:
                rows, offset = variables[path].shape[0], model.encoder.config.position_offset
                arrays[path] = _repeated(arrays[path], rows, offset)
        named_arrays.assign(variables, arrays, f"--init={init}")
    rest = [path for path in model.variables_by_path() if path not in variables]
    adapters = [path for path in rest if _ADAPTER.match(path)]
    updates = [path for path in rest if low_rank.is_update(path)]
    others = _other_parts([p for p in rest if p not in (*adapters, *updates)], variables)
    for name, paths_of in (("adapters", adapters), ("low-rank updates", updates)):
        others += [name] if paths_of else []
    return len(variables), others


def _same_updates(model: Model, init: str, which: str) -> dict[str, np.ndarray]:
    """Returns the low-rank updates of a model folder and their kernels, if a model has the same.

    Returns:
      The arrays by path; empty if one of both has no updates, or has others.
    """
    ours = {p: v for p, v in model.variables_by_path().items() if low_rank.is_update(p)}
    if not ours:
        return {}
    stored = checkpoints.load(init, which, optimizer=True)
    theirs = {p: a for p, a in stored.variables.items() if low_rank.is_update(p)}
    shapes = {path: tuple(variable.shape) for path, variable in ours.items()}
    if shapes != {path: array.shape for path, array in theirs.items()}:
        return {}
    if stored.state[checkpoints.LORA_FACTOR] != model.lora_factor:
        return {}
    kernels = {kernel for kernel, *_ in low_rank.updates(stored.variables)}
    return theirs | {path: stored.variables[path] for path in kernels}


def _hidden_layers(model: Model) -> dict[str, tuple[keras.Variable, str]]:
    """Returns the variables of hidden layers of heads, and their paths in a masked LM, by path."""
    known = model.variables_by_path()
    return {
        f"{objective.name}/{name}": (known[f"{objective.name}/{name}"], f"masked_lm/{name}")
        for objective in model.objectives
        for name in _HIDDEN
        if getattr(objective.config, "transform", False) and f"{objective.name}/{name}" in known
    }


def _sparse_heads(model: Model, arrays: dict[str, np.ndarray]) -> dict[str, keras.Variable]:
    """Returns the variables of sparse heads, for which it adds the arrays of a masked LM."""
    name = SparseEmbeddingConfig.type
    head = {p: v for p, v in model.variables_by_path().items() if p.startswith(f"{name}/")}
    for path in head:
        theirs = f"masked_lm/{path.removeprefix(f'{name}/')}"
        if path not in arrays and theirs in arrays:
            arrays[path] = arrays[theirs]
    return head


def _repeated(table: np.ndarray, rows: int, offset: int) -> np.ndarray:
    """Returns a table with `rows` rows, in which the rows after the first `offset` are repeated."""
    if rows <= len(table):
        return table
    source = offset + (np.arange(rows) - offset) % (len(table) - offset)
    return table[np.where(np.arange(rows) < offset, np.arange(rows), source)]


def _other_parts(paths: Iterable[str], known: Collection[str]) -> list[str]:
    """Returns the shortest prefixes of `paths` that no path in `known` has, each once."""
    parts = []
    for path in paths:
        names = path.split("/")
        heads = ["/".join(names[: i + 1]) for i in range(len(names))]
        unlike = (h for h in heads if not any(f"{other}/".startswith(f"{h}/") for other in known))
        parts += [next(unlike)] if path not in known else []
    return list(dict.fromkeys(parts))
