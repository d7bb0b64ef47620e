"""From a config, data and perhaps another model to what a run works on."""

import dataclasses
import json
from pathlib import Path

import keras
import tensorflow as tf

from official import atomic, manifest
from official import config as config_lib
from official.errors import UserError
from official.model import Model
from official.training import checkpoints

# Changing these when a run goes on changes nothing of what it computes.
_HARMLESS = ("name", "recipe.report_every", "recipe.save_every", "recipe.keep_checkpoints",
             "recipe.eval_batch_size", "recipe.max_bad_steps")  # fmt: skip
CONFIG = "config.yaml"


def set_precision(precision: str) -> None:
    """Sets Keras' types for every layer made from here on."""
    keras.config.set_floatx("float64" if precision == "float64" else "float32")
    keras.config.set_dtype_policy(precision)


def resolve(
    config: config_lib.Config,
    vocab_size: int,
    labels: tuple[str, ...] = (),
    initial: config_lib.Config | None = None,
) -> config_lib.Config:
    """Fills in what a config leaves to its data and to the model that it starts from.

    Args:
      config: as read.
      vocab_size: of the data's tokenizer.
      labels: class names of the data's task.
      initial: the config of the model given with `--init`.

    Raises:
      UserError: nothing says which encoder, or what is said does not fit the data.
    """
    encoder = config.encoder
    if initial is None and config.recipe.init_weights == "generator":
        raise UserError(
            "--init is missing: a frozen generator is one that was trained before; name the model "
            "folder of the first stage"
        )
    if initial is not None:
        if encoder is not None and dataclasses.replace(
            encoder, vocab_size=initial.encoder.vocab_size
        ) != _like(initial.encoder, encoder):
            changed = config_lib.differences(
                config, dataclasses.replace(config, encoder=initial.encoder)
            )
            key, ours, theirs = next(c for c in changed if c[0] != "encoder.vocab_size")
            raise UserError(
                f"{key}: {ours} in the config and {theirs} in the model of --init: leave out "
                "`encoder`, which then comes from --init"
            )
        encoder = _like(initial.encoder, encoder or initial.encoder)
    if encoder is None:
        raise UserError("encoder: the config has none: give one, or a model folder with --init")
    if encoder.vocab_size is None:
        encoder = dataclasses.replace(encoder, vocab_size=vocab_size)
    if encoder.vocab_size < vocab_size:
        raise UserError(
            f"encoder.vocab_size: {encoder.vocab_size} is less than the {vocab_size} pieces of the "
            "data's tokenizer"
        )
    objectives = tuple(_labelled(objective, labels) for objective in config.objectives)
    return dataclasses.replace(config, encoder=encoder, objectives=objectives)


def _like(initial, encoder):
    """The initial encoder's sizes, with the dropout of the config where it gives an encoder."""
    rates = {
        name: getattr(encoder, name)
        for name in ("dropout", "attention_dropout", "inner_dropout")
        if hasattr(initial, name) and hasattr(encoder, name)
    }
    return dataclasses.replace(initial, **rates)


def _labelled(objective, labels: tuple[str, ...]):
    if not hasattr(objective, "labels") or not labels:
        return objective
    if objective.labels and objective.labels != labels:
        raise UserError(
            f"objectives: labels {', '.join(objective.labels)} in the config, "
            f"{', '.join(labels)} in the data"
        )
    return dataclasses.replace(objective, labels=labels)


def check_same_run(config: config_lib.Config, model_dir: Path) -> None:
    """Refuses to go on with a run under another config than the one it began with."""
    path = model_dir / CONFIG
    if not path.exists():
        return
    changed = [
        f"{key}: {theirs} there, {ours} now"
        for key, ours, theirs in config_lib.differences(config, config_lib.load(path))
        if key not in _HARMLESS
    ]
    if changed:
        raise UserError(
            f"{path}: this model folder was made with another config ({'; '.join(changed[:4])}"
            f"{'; ...' if len(changed) > 4 else ''}). Name another --model_dir; to start from the "
            f"weights there, give --init={model_dir}"
        )


def build_model(config: config_lib.Config, strategy: tf.distribute.Strategy) -> Model:
    """Makes the model and all its variables on the devices of a strategy."""
    with strategy.scope():
        return Model(config)


def save_task(found: manifest.Manifest, model_dir: Path) -> None:
    """Notes in the model folder what the serving export has to know of the training data."""
    if found.task is not None:
        with atomic.file(model_dir / "task.json") as stream:
            json.dump({**found.task, "max_length": found.max_length}, stream, indent=1)


def start_from(model: Model, init: str, which: str, weights: str) -> int:
    """Copies weights of another model folder into a new model.

    Args:
      model: the new one.
      init: the other's model folder.
      which: the checkpoint, as in `checkpoints.find`.
      weights: `encoder`, `all`, `none` or `generator`, as in `config.Recipe`.

    Returns:
      How many variables were set.
    """
    parts = {
        "all": ("",), "encoder": ("encoder/",), "generator": ("encoder/", "generator/"), "none": (),
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
        checkpoints.assign(variables, arrays, f"--init={init}")
    return len(variables)
