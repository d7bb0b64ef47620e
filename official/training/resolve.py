"""Resolves a config: fills in what it leaves to its data, its teachers and the initial model."""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from official import config as configs
from official import tokenizers
from official.config.compatibility import (
    check_encoder,
    check_trainable,
    check_vocabulary,
    with_pooler,
)
from official.config.parts import EncoderConfig, ObjectiveConfig, ResolvedConfig
from official.data.checks import build_command, labels_for
from official.data.mixture import Opened
from official.saving import model_folder, teachers
from official.tokenizers import extension
from official.utils import paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# The dropout rates of encoders.
_DROPOUTS = ("dropout", "attention_dropout", "attention_output_dropout", "inner_dropout")


def resolve(
    config: configs.Config, data: Opened, init: str | os.PathLike | None = None
) -> ResolvedConfig:
    """Returns the whole config of a run.

    Args:
      config: the config, as it was read.
      data: the training data.
      init: the model folder with the initial weights.

    Raises:
      UserError: there is no objective or no encoder, or the config does not suit the data, the
        model or a teacher.
    """
    if not config.objectives:
        raise UserError(f"{config.name}: objectives: at least one is needed to train")
    initial = model_folder.config_of(init) if init else None
    resolved = inherit(config, initial)
    resolved = _started(resolved, initial)
    if init:
        resolved = _with_vocabulary(resolved, paths.path(init) / "tokenizer", data)
    tokenizer = data.tokenizer
    objectives = tuple(o.for_tokenizer(tokenizer) for o in resolved.objectives)
    resolved = dataclasses.replace(resolved, objectives=objectives)
    resolved = fill_in(resolved, tokenizer.vocab_size, data.labels, tokenizer.special_ids)
    objectives = tuple(
        each.counted(functools.partial(data.label_counts, each.task))
        for each in resolved.objectives
    )
    return teachers.described(dataclasses.replace(resolved, objectives=objectives))


def inherit(
    config: configs.Config, initial: configs.ResolvedConfig | None = None
) -> ResolvedConfig:
    """Fills in the encoder of a config from the model that the run starts from.

    For a task, the encoder gets a pooler if the task needs one, and it has no memory, because
    examples are independent. A config with its own encoder may change the dropout and the
    initializers of that model, and may have more positions (see `warm_start.start_from`).
    `recipe.dropout` replaces the dropout rates of any encoder. `recipe.trainable.adapters` gives it
    adapters.

    Args:
      config: the config of the run.
      initial: the config of the model of `--init`, or None.

    Raises:
      UserError: no encoder is given, or the config and the model differ.
    """
    if initial is None:
        if config.recipe.init_weights == "generator":
            raise UserError(
                "--init is missing: a frozen generator is one that was trained before; name the "
                "model folder of the first stage"
            )
        if config.recipe.init_weights == "run":
            raise UserError(
                "--init is missing: recipe.init_weights: run continues another run; name its model "
                "folder"
            )
        if config.encoder is None:
            raise UserError(
                f"encoder: the config has none ({config.name}): name the model folder whose "
                "encoder goes on with --init=MODEL, or a config with an encoder"
            )
        return ResolvedConfig.of(config, encoder=_for_recipe(config, config.encoder))
    if config.recipe.init_weights == "run" and config.recipe.trainable != initial.recipe.trainable:
        raise UserError(
            "recipe.trainable: differs from that of the run of --init, whose moments "
            "recipe.init_weights: run takes: make both the same, or take init_weights: all"
        )
    inherited = _for_task(config, initial.encoder)
    if config.encoder is not None:
        ours = _for_task(config, config.encoder)
        if dataclasses.replace(ours, vocab_size=inherited.vocab_size) != _like(inherited, ours):
            changed = configs.differences(
                dataclasses.replace(config, encoder=ours),
                dataclasses.replace(config, encoder=inherited),
            )
            key, ours, theirs = next(c for c in changed if c[0] != "encoder.vocab_size")
            raise UserError(
                f"{key}: {ours} in the config and {theirs} in the model of --init: remove "
                "`encoder`, which then comes from --init"
            )
        inherited = _like(inherited, ours)
    return ResolvedConfig.of(config, encoder=_for_recipe(config, inherited))


def fill_in(
    config: ResolvedConfig,
    vocab_size: int,
    labels: Mapping[str, tuple[str, ...]] | None = None,
    special_ids: Sequence[int] = (),
) -> ResolvedConfig:
    """Fills in the vocabulary and the labels of a config from its data.

    The objectives are then checked against the encoder, which the config itself may not have.

    Args:
      config: a result of `inherit`.
      vocab_size: the size of the data's tokenizer.
      labels: the names of the classes by the names of the tasks.
      special_ids: the special tokens of that tokenizer.

    Raises:
      UserError: the config does not suit the data.
    """
    check_vocabulary(config.encoder, vocab_size)
    encoder = config.encoder.of_vocabulary(vocab_size, special_ids)
    objectives = tuple(_labeled(o, labels_for(o, labels)) for o in config.objectives)
    check_encoder(objectives, encoder, config.name)
    check_trainable(config.recipe, encoder, config.name)
    return ResolvedConfig.of(config, encoder=encoder, objectives=objectives)


def _started(config: ResolvedConfig, initial: ResolvedConfig | None) -> ResolvedConfig:
    """Returns a config whose objectives have what they take from the model of `--init`.

    Args:
      config: a result of `inherit`.
      initial: the config of that model, or None.

    Raises:
      UserError: an objective cannot start from it.
    """
    if config.recipe.init_weights == "none":
        initial = None
    objectives = []
    for i, objective in enumerate(config.objectives):
        try:
            objectives.append(objective.started(initial))
        except ValueError as error:
            place = f"{config.name}: objectives.{i}: {objective.type}"
            raise UserError(f"{place}: {error}") from None
    return ResolvedConfig.of(config, encoder=config.encoder, objectives=tuple(objectives))


def _with_vocabulary(config: ResolvedConfig, folder: AnyPath, data: Opened) -> ResolvedConfig:
    """Gives the encoder of `--init` rows for the vocabulary of the data, if that is a larger one.

    Raises:
      UserError: the data has another vocabulary, which lacks pieces of the model's.
    """
    known, ours = tokenizers.load(folder), data.tokenizer
    if known.fingerprint == ours.fingerprint:
        return config
    if not extension.includes(ours, known):
        grow = f"--model_dir={folder.parent} --tokenizer={data.folder}/tokenizer --output=GROWN"
        raise UserError(
            f"{data.folder} was made with another tokenizer ({ours.fingerprint[:16]}…) than that "
            f"of --init, {folder} ({known.fingerprint[:16]}…), and lacks pieces or rules of it: "
            f"make the shards again with that of the model ({build_command(config, folder)}), or "
            "give the model the vocabulary of the shards "
            f"(python -m official.commands.extend_vocabulary {grow})"
        )
    if config.recipe.init_weights == "run":
        raise UserError(
            f"{data.folder} has a larger vocabulary than --init, {folder}, and recipe."
            "init_weights: run would continue with an optimizer state that has the old rows: use "
            "`init_weights: all`"
        )
    size = max(config.encoder.known_vocab_size, ours.vocab_size)
    return dataclasses.replace(config, encoder=dataclasses.replace(config.encoder, vocab_size=size))


def _for_task(config: configs.Config, encoder: EncoderConfig) -> EncoderConfig:
    """Returns the encoder for the objectives of a task; in pretraining, the encoder itself."""
    if config.segments is not None:
        return encoder
    return with_pooler(encoder.without_memory(), config)


def _for_recipe(config: configs.Config, encoder: EncoderConfig) -> EncoderConfig:
    """Returns an encoder with the dropout rate and the adapters of the recipe, if it has them."""
    names = {field.name for field in dataclasses.fields(encoder)}
    changes: dict[str, Any] = {}
    if (rate := config.recipe.dropout) is not None:
        rates = {name: getattr(encoder, name, None) for name in _DROPOUTS}
        changes = {name: rate for name, own in rates.items() if own is not None}
    size = config.recipe.trainable and config.recipe.trainable.adapters
    if size and "adapter_size" in names:
        if encoder.adapter_size not in (None, size):
            raise UserError(
                f"recipe.trainable.adapters: {size}, and the encoder has {encoder.adapter_size} "
                "(encoder.adapter_size): make both the same"
            )
        changes["adapter_size"] = size
    return dataclasses.replace(encoder, **changes)


def _like(initial: EncoderConfig, encoder: EncoderConfig) -> EncoderConfig:
    """Returns the initial encoder with dropout, initializers, positions and windows of a config."""
    both = {f.name for f in dataclasses.fields(initial)} & {
        f.name for f in dataclasses.fields(encoder)
    }
    # Settings that do not change the weights that are copied.
    free = {*_DROPOUTS, "rotary_theta", "local_attention"}
    free |= {"initializer", "initializer_range", "position_initializer_range"}
    changes = {name: getattr(encoder, name) for name in free & both}
    if "max_positions" in both:
        changes["max_positions"] = max(initial.max_positions, encoder.max_positions)
    return dataclasses.replace(initial, **changes)


def _labeled(objective: ObjectiveConfig, labels: tuple[str, ...]) -> ObjectiveConfig:
    """Returns the objective with the labels of the data, if there are any for it."""
    if not labels:
        return objective
    if objective.labels and objective.labels != labels:
        raise UserError(
            f"objectives: labels {', '.join(objective.labels)} in the config, "
            f"{', '.join(labels)} in the data"
        )
    return dataclasses.replace(objective, labels=labels)
