"""Checks that the parts of a config match each other, before anything runs."""

import dataclasses
import math
from collections.abc import Iterable

from official.config.corruptions import TextToTextConfig
from official.config.parts import Config, EncoderConfig, ObjectiveConfig
from official.config.recipe import Recipe
from official.config.registry import OBJECTIVES, objective_fields
from official.config.segments import TEXT_FORMATS
from official.tasks import KINDS
from official.utils.errors import UserError

# The batch fields of the shards of a fine-tuning task.
TASK_FIELDS = frozenset(
    "token_ids segment_ids padding_mask text_mask text_hashes row context_start context_length "
    "window_start own_start own_end target_mask word_ids tag_ids".split()
).union(*(kind.targets for kind in KINDS.values()))
# The batch fields that the reader adds to every batch, or only if an objective reads them.
READER_FIELDS = frozenset({"example_weights", "row_seeds"})


def check(config: Config, source: str) -> None:
    """Checks that the parts of a config match each other.

    Args:
      config: the config.
      source: the file, for messages.

    Raises:
      UserError: they do not match; the message has the dotted key and the reason.
    """
    available = frozenset(config.segments.fields if config.segments else TASK_FIELDS)
    available |= _check_corruption(config, source)
    for objective in config.objectives if config.segments is None else ():
        if task := objective.task:
            available |= {f"{task}/{name}" for name in ("label", "score", "example_weights")}
    available |= READER_FIELDS | objective_fields(config.objectives)
    # A config with an encoder and no segments belongs to a converted model, which may not be
    # trainable (a discriminator without its generator), or to a task, which `official.data` checks.
    if config.encoder is None or config.segments is not None:
        for i, objective in enumerate(config.objectives):
            _check_needs(objective, available, config, source, f"objectives.{i}")
    for i, objective in enumerate(config.objectives):
        try:
            objective.check(config)
        except ValueError as error:
            raise UserError(f"{source}: objectives.{i}: {objective.type}: {error}") from None
    names = [objective.name for objective in config.objectives]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{source}: objectives: two have the name {name}")
    if config.encoder is not None:
        pooling = config.encoder if config.segments else with_pooler(config.encoder, config)
        check_encoder(config.objectives, pooling, source)
        check_trainable(config.recipe, config.encoder, source)
    frozen = any(objective.frozen for objective in config.objectives)
    if frozen != (config.recipe.init_weights == "generator"):
        raise UserError(
            f"{source}: recipe.init_weights: {config.recipe.init_weights}, but "
            f"{'a' if frozen else 'no'} generator is frozen: `init_weights: generator` and "
            "`frozen: true` require each other"
        )
    if config.recipe.layer_states:
        _check_layer_states(config, source)
    _check_memory(config, source)
    encoder, segments = config.encoder, config.segments
    if encoder and segments and segments.max_length > encoder.max_positions:
        raise UserError(
            f"{source}: segments.max_length: {segments.max_length} tokens do not fit "
            f"encoder.max_positions: {encoder.max_positions}"
        )


def check_encoder(
    objectives: Iterable[ObjectiveConfig], encoder: EncoderConfig, source: str
) -> None:
    """Checks that an encoder supports the objectives.

    Args:
      objectives: the objectives.
      encoder: the encoder of a config, or that of the model given with `--init`.
      source: the file, for messages.

    Raises:
      UserError: the encoder does not support an objective.
    """
    for i, objective in enumerate(objectives):
        try:
            objective.check_encoder(encoder)
        except ValueError as error:
            raise UserError(f"{source}: objectives.{i}: {objective.type}: {error}") from None


def check_trainable(recipe: Recipe, encoder: EncoderConfig, source: str) -> None:
    """Checks that an encoder supports `recipe.trainable` and `recipe.recompute`.

    Args:
      recipe: the recipe.
      encoder: as in `check_encoder`.
      source: the file, for messages.

    Raises:
      UserError: the encoder does not support a setting.
    """
    if recipe.recompute is not None and not encoder.recomputes:
        raise UserError(
            f"{source}: recipe.recompute: not supported for encoder.type: {encoder.type}; remove it"
        )
    trainable, place = recipe.trainable, f"{source}: recipe.trainable"
    if trainable is None:
        return
    for key in trainable.keys:
        if key not in encoder.trainable_parts:
            groups = encoder.layer_groups
            shared = "" if groups is None else f" with encoder.layer_groups: {groups}"
            raise UserError(
                f"{place}.{key}: not supported for encoder.type: {encoder.type}{shared}; remove it"
            )
    count = max(encoder.num_layers, encoder.decoder_layers or 0)
    if trainable.layers is not None and trainable.layers > count:
        raise UserError(f"{place}.layers: {trainable.layers}, but the encoder has {count} layers")


def with_pooler(encoder: EncoderConfig, config: Config) -> EncoderConfig:
    """Returns an encoder with a pooler, if a head of the config reads it.

    An encoder whose config has no such setting is returned unchanged.
    """
    pools = any(objective.reads_pooler for objective in config.objectives)
    if not pools or "pooler" not in {field.name for field in dataclasses.fields(encoder)}:
        return encoder
    return dataclasses.replace(encoder, pooler=True)


def check_vocabulary(encoder: EncoderConfig, size: int) -> None:
    """Checks that the token table of an encoder has room for a vocabulary.

    Args:
      encoder: the encoder; without a vocabulary size, any size is allowed.
      size: the size of the data's tokenizer.

    Raises:
      UserError: the table has fewer rows.
    """
    if encoder.vocab_size is not None and encoder.vocab_size < size:
        raise UserError(
            f"encoder.vocab_size: {encoder.vocab_size} is less than the {size} pieces of the "
            "data's tokenizer: give --override=encoder.vocab_size=null for as many rows as pieces, "
            "or start with --init from a model, whose table then grows"
        )


def _check_corruption(config: Config, source: str) -> frozenset[str]:
    """Checks the corruption against the segments; returns the batch fields that it adds."""
    segments, corruption = config.segments, config.corruption
    if corruption is None:
        if segments and segments.static_masks:
            raise UserError(f"{source}: segments.static_masks: there is no `corruption` to apply")
        if segments and segments.format in TEXT_FORMATS:
            raise UserError(
                f"{source}: segments.format: {segments.format} has rows of plain text, which need "
                "a corruption that makes inputs and targets: add corruption.type: sentinels or "
                "denoising"
            )
        return frozenset()
    if segments is None:
        raise UserError(f"{source}: corruption: needs `segments`, the pretraining data")
    try:
        corruption.check(segments)
    except ValueError as error:
        raise UserError(f"{source}: corruption.{error}") from None
    if segments.static_masks and not corruption.static:
        raise UserError(
            f"{source}: segments.static_masks: {corruption.type} is drawn whenever an example is "
            "read: take static_masks: false"
        )
    if segments.format in TEXT_FORMATS:
        if not isinstance(corruption, TextToTextConfig):
            raise UserError(
                f"{source}: segments.format: {segments.format}: {corruption.type} needs rows with "
                "special tokens: take corruption.type: sentinels or denoising, or another format"
            )
        if config.recipe.bucket_lengths:
            raise UserError(
                f"{source}: recipe.bucket_lengths: all rows of segments.format: {segments.format} "
                "have the same length: remove it"
            )
    if segments.packing > 1 and not corruption.packs:
        raise UserError(
            f"{source}: segments.packing: corruption: {corruption.type} cannot be packed: take "
            "segments.packing: 1"
        )
    return corruption.gives()


def _check_needs(
    objective: ObjectiveConfig, available: frozenset[str], config: Config, source: str, place: str
) -> None:
    """Checks that an objective has the batch fields that it reads, and allows packed rows."""
    if config.segments is not None and config.segments.packing > 1 and not objective.packs:
        raise UserError(
            f"{source}: segments.packing: {place}: {objective.type} cannot be packed: it does not "
            "keep the parts of a row apart; take segments.packing: 1"
        )
    needed = objective.needs()
    if "permutation_mask" in available - needed and "masked_ids" in needed:
        raise UserError(
            f"{source}: {place}: {objective.type} predicts hidden tokens, and "
            "corruption.type: permutation does not hide any: take token_masks, or the objective "
            "permutation_lm"
        )
    if lacking := sorted(needed - available):
        raise UserError(
            f"{source}: {place}: {objective.type} needs {', '.join(lacking)}, which neither "
            "segments nor corruption nor another objective provides (they provide "
            f"{', '.join(sorted(available - READER_FIELDS))}){_giver(set(lacking))}"
        )


def _giver(fields: set[str]) -> str:
    """Returns the end of a message with the objective that adds the missing fields, or ""."""
    for name, objective in OBJECTIVES.items():
        if fields & objective().gives():
            return f"; the objective {name} gives {', '.join(sorted(fields))}"
    return ""


def _check_layer_states(config: Config, source: str) -> None:
    """Checks that all objectives read states of single rows, which can be read from files."""
    for i, objective in enumerate(config.objectives):
        several = ("multiple_choice", "ranking", "sentence_embedding", "late_interaction")
        one_row = hasattr(objective, "mix") and objective.type not in several
        if not one_row or objective.task:
            raise UserError(
                f"{source}: recipe.layer_states: objectives.{i}: {objective.type} reads more than "
                "the states of single rows of one task: remove recipe.layer_states"
            )
        if objective.reads_pooler:
            raise UserError(
                f"{source}: recipe.layer_states: has no output of a pooler: set "
                f"objectives.{i}.pooling to first or mean"
            )


def _check_memory(config: Config, source: str) -> None:
    """Checks that an encoder with memory has rows that continue, and remembers the right tokens."""
    segments, encoder = config.segments, config.encoder
    if segments is None or encoder is None or not encoder.memory_length:
        return
    if segments.format != "stream":
        raise UserError(
            f"{source}: encoder.memory_length: {encoder.memory_length}, but rows of "
            f"segments.format: {segments.format} do not continue from batch to batch: take the "
            "format stream, or memory_length: 0"
        )
    if encoder.reuse_length != segments.reuse_length:
        raise UserError(
            f"{source}: encoder.reuse_length: {encoder.reuse_length}, but segments.reuse_length: "
            f"{segments.reuse_length}: the memory keeps the tokens that the next row continues, so "
            "make both the same"
        )
    if segments.reuse_length and _hides(config) and not encoder.causal:
        raise UserError(
            f"{source}: corruption.block_size: missing: the next row predicts the text after the "
            f"first {segments.reuse_length} tokens (segments.reuse_length), which these see before "
            f"the memory keeps them (encoder.attention: bi): set it to a divisor of them and of "
            f"max_length {segments.max_length}, such as "
            f"{math.gcd(segments.reuse_length, segments.max_length)}, or take encoder.attention: "
            "uni, or encoder.memory_length: 0 and encoder.reuse_length: 0"
        )


def _hides(config: Config) -> bool:
    """Returns whether hidden tokens are predicted from all positions of the row."""
    corruption = config.corruption
    if corruption is None or "permutation_mask" in corruption.gives():
        return False
    needed = {f for o in config.objectives for f in o.needs()}
    return "masked_ids" in needed and corruption.block_size is None
