"""From a config, data and perhaps another model to what a run works on."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from official import config as configs
from official.modeling.model import Model
from official.saving import checkpoints
from official.shards import manifest
from official.utils import atomic, json_files
from official.utils.errors import UserError

# Changing these when a run goes on changes nothing of what it computes.
_HARMLESS = ("name", "recipe.report_every", "recipe.save_every", "recipe.keep_checkpoints",
             "recipe.eval_batch_size", "recipe.max_bad_steps", "recipe.patience")  # fmt: skip
CONFIG = "config.yaml"
_POOLER = "encoder/pooler/"
_POSITIONS = "/position_embedding/table"


def set_precision(precision: str) -> None:
    """Sets Keras' types for every layer made from here on."""
    keras.config.set_floatx("float64" if precision == "float64" else "float32")
    keras.config.set_dtype_policy(precision)


def inherit(config: configs.Config, initial: configs.Config | None = None) -> configs.Config:
    """Fills in what a config leaves to the model that it starts from, the encoder.

    To learn a task the encoder gets a pooler where that model had none and the task reads it, and
    it has no memory, for nothing comes before an example. A config with an encoder of its own may
    change the dropout of that model and how first weights are drawn, and have more positions (see
    `start_from`).

    Args:
      config: as read.
      initial: the config of the model given with `--init`; None = there is none.

    Raises:
      UserError: nothing says which encoder, or the config and the model say different things.
    """
    if initial is None:
        if config.recipe.init_weights == "generator":
            raise UserError(
                "--init is missing: a frozen generator is one that was trained before; name the "
                "model folder of the first stage"
            )
        if config.recipe.init_weights == "run":
            raise UserError(
                "--init is missing: recipe.init_weights: run goes on with a run; name its model "
                "folder"
            )
        if config.encoder is None:
            raise UserError("encoder: the config has none: give one, or a model folder with --init")
        return config
    given = _for_task(config, initial.encoder)
    if config.encoder is not None:
        ours = _for_task(config, config.encoder)
        if dataclasses.replace(ours, vocab_size=given.vocab_size) != _like(given, ours):
            changed = configs.differences(
                dataclasses.replace(config, encoder=ours),
                dataclasses.replace(config, encoder=given),
            )
            key, ours, theirs = next(c for c in changed if c[0] != "encoder.vocab_size")
            raise UserError(
                f"{key}: {ours} in the config and {theirs} in the model of --init: leave out "
                "`encoder`, which then comes from --init"
            )
        given = _like(given, ours)
    return dataclasses.replace(config, encoder=given)


def resolve(
    config: configs.Config,
    vocab_size: int,
    labels: Mapping[str, tuple[str, ...]] | None = None,
) -> configs.Config:
    """Fills in what a config leaves to its data.

    Args:
      config: from `inherit`.
      vocab_size: of the data's tokenizer.
      labels: class names of the data's tasks, by the name of each.

    Raises:
      UserError: what it says does not fit the data.
    """
    encoder = config.encoder
    if encoder.vocab_size is None:
        encoder = dataclasses.replace(encoder, vocab_size=vocab_size)
    if encoder.vocab_size < vocab_size:
        raise UserError(
            f"encoder.vocab_size: {encoder.vocab_size} is less than the {vocab_size} pieces of the "
            "data's tokenizer"
        )
    objectives = tuple(_labelled(o, _labels_for(o, labels)) for o in config.objectives)
    return dataclasses.replace(config, encoder=encoder, objectives=objectives)


def _for_task(config: configs.Config, encoder):
    """The encoder as the objectives of a task want it; itself in pretraining."""
    if config.segments is not None:
        return encoder
    changes = {}
    if any(getattr(objective, "pooling", None) == "pooled" for objective in config.objectives):
        changes["pooler"] = True
    if getattr(encoder, "memory_length", 0):
        changes |= {"memory_length": 0, "reuse_length": 0}
    return dataclasses.replace(encoder, **changes)


def _like(initial, encoder):
    """The initial encoder with what a config may change: dropout, first weights, more positions."""
    both = {f.name for f in dataclasses.fields(initial)} & {
        f.name for f in dataclasses.fields(encoder)
    }
    # What changes no weight that is taken over: rates of dropout, and the law of first weights.
    free = {"dropout", "attention_dropout", "inner_dropout"}
    free |= {"initializer", "initializer_range", "position_initializer_range"}
    changes = {name: getattr(encoder, name) for name in free & both}
    if "max_positions" in both:
        changes["max_positions"] = max(initial.max_positions, encoder.max_positions)
    return dataclasses.replace(initial, **changes)


def _labels_for(objective, labels: Mapping[str, tuple[str, ...]] | None) -> tuple[str, ...]:
    """The class names that an objective learns: of its task, or of the only one."""
    labels = labels or {}
    if task := getattr(objective, "task", ""):
        return labels.get(task, ())
    return next(iter(labels.values()), ()) if len(labels) == 1 else ()


def _labelled(objective, labels: tuple[str, ...]):
    if not hasattr(objective, "labels") or not labels:
        return objective
    if objective.labels and objective.labels != labels:
        raise UserError(
            f"objectives: labels {', '.join(objective.labels)} in the config, "
            f"{', '.join(labels)} in the data"
        )
    return dataclasses.replace(objective, labels=labels)


def labels_of(found: manifest.Manifest) -> dict[str, tuple[str, ...]]:
    """The class names of a manifest's tasks, by the name of each task."""
    task = found.task or {}
    tasks = task.get("tasks", {task.get("name", ""): task})
    return {name: tuple(each.get("labels", ())) for name, each in tasks.items()}


def check_labels(config: configs.Config, found: manifest.Manifest, folder: str) -> None:
    """Refuses data whose classes are not those of a trained model.

    Names may differ, as those of a model from elsewhere do, but not how many there are, and the
    same names must have the same numbers.

    Args:
      config: of the model.
      found: the data's manifest.
      folder: that the data is in.
    """
    for objective in config.objectives:
        ours, labels = getattr(objective, "labels", ()), _labels_for(objective, labels_of(found))
        if not ours or not labels:
            continue
        if len(ours) != len(labels) or (ours != labels and set(ours) == set(labels)):
            raise UserError(
                f"{folder}: its labels are {', '.join(labels)}, and the model knows "
                f"{', '.join(ours)}: name the shards of the model's own task"
            )


def check_same_run(config: configs.Config, model_dir: Path) -> None:
    """Refuses to go on with a run under another config than the one it began with."""
    path = model_dir / CONFIG
    if not path.exists():
        return
    changed = [
        f"{key}: {theirs} there, {ours} now"
        for key, ours, theirs in configs.differences(config, configs.load(path))
        if key not in _HARMLESS
    ]
    if changed:
        raise UserError(
            f"{path}: this model folder was made with another config ({'; '.join(changed[:4])}"
            f"{'; ...' if len(changed) > 4 else ''}). Name another --model_dir; to start from the "
            f"weights there, give --init={model_dir}"
        )


def build_model(config: configs.Config, strategy: tf.distribute.Strategy) -> Model:
    """Makes the model and all its variables on the devices of a strategy."""
    with strategy.scope():
        return Model(config)


def save_task(found: manifest.Manifest, model_dir: Path) -> None:
    """Notes in the model folder what the serving export has to know of the training data."""
    if found.task is not None:
        with atomic.file(model_dir / "task.json") as stream:
            json_files.dump({**found.task, "max_length": found.max_length}, stream)


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
