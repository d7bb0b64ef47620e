"""Teachers of the objective `distillation`: model folders beside the model that learns from them.

`described` fills in what a config leaves to the teachers, and refuses teachers that do not suit the
student. `attach` loads them. Teachers are never part of the student's variables or checkpoints.
"""

import contextlib
import dataclasses
from collections.abc import Callable

from official import config as configs
from official import tokenizers
from official.config import distillation
from official.config.distillation import TOKEN_HEADS, DistillationConfig
from official.config.parts import ObjectiveConfig
from official.config.sentence_embedding import SentenceEmbeddingConfig
from official.modeling.model import Model
from official.saving import checkpoints, model_folder, named_arrays
from official.utils import paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath


def checksum(folder: str | AnyPath, checkpoint: str = "best") -> str:
    """Returns the SHA-256 of the weights of a model folder."""
    return checkpoints.load_state(checkpoints.find(folder, checkpoint))["sha256"]


def described(config: configs.ResolvedConfig) -> configs.ResolvedConfig:
    """Fills in the size, the layers and the checksums of the teachers.

    Args:
      config: a config with encoder and labels, as `official.training.resolve` returns it.

    Raises:
      UserError: there is no teacher, it is not a model folder, it has changed since its checksum
        was filled in, or it does not suit the student.
    """
    objective = distillation.find(config)
    if objective is None:
        return config
    if not objective.teachers:
        if not objective.cache:
            raise UserError(
                "objectives: distillation.teachers: missing: name the model folder of a teacher"
            )
        return config
    for folder in objective.teachers:
        _check(config, objective, folder, _config(folder))
    first = _config(objective.teachers[0]).encoder
    checksums = tuple(checksum(folder, objective.checkpoint) for folder in objective.teachers)
    if objective.teacher_checksums not in ((), checksums):
        raise UserError(
            f"objectives: distillation.teachers: {', '.join(objective.teachers)} have other "
            "weights than teacher_checksums name: put those back, or remove teacher_checksums"
        )
    filled = dataclasses.replace(
        objective,
        teacher_layers=first.num_layers,
        teacher_size=first.hidden_size,
        teacher_checksums=checksums,
    )
    objectives = tuple(filled if o is objective else o for o in config.objectives)
    return dataclasses.replace(config, objectives=objectives)


def attach(
    model: Model,
    config: configs.Config,
    tokenizer: tokenizers.Tokenizer,
    max_length: int,
    scope: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
) -> None:
    """Loads the teachers of a model that has any and no cached outputs of them.

    Args:
      model: the student.
      config: its config, a result of `described`.
      tokenizer: the tokenizer of the data.
      max_length: the largest number of tokens of a row.
      scope: the scope of the strategy that the teachers compute under.

    Raises:
      UserError: a teacher has another tokenizer or fewer positions.
    """
    objective = distillation.find(config)
    if objective is None or objective.cache or not objective.teachers:
        return
    teachers = []
    for folder in objective.teachers:
        check_data(folder, tokenizer, max_length)
        with scope():
            teachers.append(restored(folder, objective.checkpoint))
    student = model.objective(objective.type)
    student.attach_teachers(teachers)


def check_data(folder: str | AnyPath, tokenizer: tokenizers.Tokenizer, max_length: int) -> None:
    """Checks that a teacher can read the data of a student.

    Raises:
      UserError: it has another tokenizer, or fewer positions than the rows have tokens.
    """
    theirs = tokenizers.load(paths.path(folder) / "tokenizer")
    if theirs.fingerprint != tokenizer.fingerprint:
        raise UserError(
            f"distillation.teachers: {folder} has another vocabulary ({theirs.vocab_size:,} pieces,"
            f" {theirs.fingerprint[:16]}…) than the data ({tokenizer.vocab_size:,} pieces, "
            f"{tokenizer.fingerprint[:16]}…): make the shards and the student with "
            f"--tokenizer={folder}/tokenizer"
        )
    positions = _config(folder).encoder.max_positions
    if positions < max_length:
        raise UserError(
            f"distillation.teachers: {folder} has positions for {positions} tokens, and the data "
            f"has rows of {max_length}: make the shards again with max_length {positions} or less"
        )


def restored(folder: str | AnyPath, checkpoint: str) -> Model:
    """Returns the model of a teacher with its weights, in the precision of the run."""
    config = _config(folder)
    loaded = checkpoints.load(folder, checkpoint)
    # A generator or the projections of an earlier distillation are not needed.
    heads = tuple(o for o in config.objectives if o.type != "distillation" and not o.gives())
    model = Model(dataclasses.replace(config, objectives=heads))
    named_arrays.assign(model.variables_by_path(), loaded.variables, str(loaded.path))
    return model


def _config(folder: str | AnyPath) -> configs.ResolvedConfig:
    """Returns the config of a teacher, without a memory of earlier rows."""
    try:
        config = model_folder.config_of(folder)
    except UserError as error:
        raise UserError(f"distillation.teachers: {error}") from None
    return dataclasses.replace(config, encoder=config.encoder.without_memory())


def _check(
    config: configs.ResolvedConfig,
    objective: DistillationConfig,
    folder: str,
    teacher: configs.ResolvedConfig,
) -> None:
    """Checks a teacher against the student's config."""
    ours, theirs = config.encoder, teacher.encoder
    try:
        objective.check_teacher(ours, theirs)
    except ValueError as error:
        raise UserError(f"objectives: distillation.{error} (teacher {folder})") from None
    layouts = [encoder.layout for encoder in (ours, theirs)]
    if config.segments is None and layouts[0] != layouts[1]:
        raise UserError(
            f"distillation.teachers: {folder} reads texts in the layout {layouts[1]}, and the "
            f"student in {layouts[0]}: take a teacher and a student of one family"
        )
    if not objective.matches_outputs:
        return
    head = objective.head_of(config.objectives)
    if head.type in TOKEN_HEADS and ours.vocab_size != theirs.vocab_size:
        raise UserError(
            f"distillation.teachers: {folder} has encoder.vocab_size {theirs.vocab_size}, and the "
            f"student {ours.vocab_size}: outputs are compared word by word, so take one vocabulary"
        )
    alike = teacher.of_types(head.type)
    for other in alike[:1]:
        if isinstance(head, SentenceEmbeddingConfig) and isinstance(other, type(head)):
            _check_sizes(head.served_size(ours), other.served_size(theirs), folder)
        _check_heads(head, other, folder)


def _check_sizes(ours: int, theirs: int, folder: str) -> None:
    """Checks that student and teacher have vectors of one size."""
    if ours != theirs:
        raise UserError(
            f"distillation.teachers: {folder} has vectors of size {theirs}, and the student "
            f"{ours}: give it sentence_embedding.projection: {{size: {theirs}, activation: null}}"
        )


def _check_heads(head: ObjectiveConfig, other: ObjectiveConfig, folder: str) -> None:
    """Checks that the outputs of student and teacher have the same meaning."""
    for key in ("form", "candidates", "crf"):
        if getattr(head, key, None) != getattr(other, key, None):
            raise UserError(
                f"distillation.teachers: {folder} has {head.type}.{key}: {getattr(other, key)}, "
                f"and the student {getattr(head, key)}: take the same"
            )
    ours, theirs, count = head.labels, other.labels, other.num_outputs
    if not ours or not count:
        return
    if len(ours) != count or (ours != theirs and set(ours) == set(theirs)):
        names = ", ".join(theirs) or f"{count} without names"
        raise UserError(
            f"distillation.teachers: {folder} knows the labels {names}, and the student "
            f"{', '.join(ours)}: take a teacher of the same task"
        )
