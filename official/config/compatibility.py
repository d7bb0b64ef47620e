"""Which parts of a config go together: what cannot work is refused before anything runs."""

import math

from official.config.part import ObjectiveConfig
from official.config.registry import OBJECTIVES, objective_fields
from official.config.sections import Config
from official.tasks import KINDS
from official.utils.errors import UserError

# What a shard folder of a fine-tuning task puts into a batch.
TASK_FIELDS = frozenset(
    "token_ids segment_ids padding_mask text_mask row context_start context_length window_start "
    "own_start own_end".split()
).union(*(kind.targets for kind in KINDS.values()))
# What the reader puts into every batch, or into those of objectives that need it.
READER_FIELDS = frozenset({"example_weights", "row_seeds"})


def check(config: Config, source: str) -> None:
    """Refuses parts that do not fit together.

    Raises:
      UserError: with the place and the reason.
    """
    given = frozenset(config.segments.fields if config.segments else TASK_FIELDS)
    given |= _check_corruption(config, source)
    for objective in config.objectives if config.segments is None else ():
        if task := getattr(objective, "task", ""):
            given |= {f"{task}/{name}" for name in ("label", "score", "example_weights")}
    given |= READER_FIELDS | objective_fields(config.objectives)
    # An encoder without segments is that of weights from elsewhere, which may be there to be used
    # and not to be trained on (a discriminator without its generator); or it is to learn a task,
    # and `official.data` asks the shards.
    if config.encoder is None or config.segments is not None:
        for i, objective in enumerate(config.objectives):
            _check_needs(objective, given, config, source, f"objectives.{i}")
    for i, objective in enumerate(config.objectives):
        try:
            objective.check(config)
        except ValueError as error:
            raise UserError(f"{source}: objectives.{i}: {objective.type}: {error}") from None
    frozen = any(getattr(objective, "frozen", False) for objective in config.objectives)
    if frozen != (config.recipe.init_weights == "generator"):
        raise UserError(
            f"{source}: recipe.init_weights: {config.recipe.init_weights}, and "
            f"{'a' if frozen else 'no'} generator is frozen: `init_weights: generator` and "
            "`frozen: true` belong together"
        )
    _check_memory(config, source)
    longest = getattr(config.encoder, "max_positions", None)
    if longest and config.segments and config.segments.max_length > longest:
        raise UserError(
            f"{source}: segments.max_length: {config.segments.max_length} tokens do not fit "
            f"encoder.max_positions: {longest}"
        )


def _check_corruption(config: Config, source: str) -> frozenset[str]:
    """Checks the corruption against the segments; returns the fields that it gives."""
    segments, corruption = config.segments, config.corruption
    if corruption is None:
        if segments and segments.static_masks:
            raise UserError(f"{source}: segments.static_masks: there is no `corruption` to apply")
        return frozenset()
    if segments is None:
        raise UserError(f"{source}: corruption: needs `segments`, the pretraining data")
    try:
        corruption.check(segments)
    except ValueError as error:
        raise UserError(f"{source}: corruption.{error}") from None
    if segments.static_masks and not corruption.static:
        raise UserError(
            f"{source}: segments.static_masks: {corruption.type} is drawn anew each time an "
            "example is read: take static_masks: false"
        )
    if segments.packing > 1 and not corruption.packs:
        raise UserError(
            f"{source}: segments.packing: corruption: {corruption.type} cannot be packed: take "
            "segments.packing: 1"
        )
    return corruption.gives()


def _check_needs(
    objective: ObjectiveConfig, given: frozenset[str], config: Config, source: str, place: str
) -> None:
    """Refuses an objective whose fields nothing gives, or that cannot have packed rows."""
    if config.segments is not None and config.segments.packing > 1 and not objective.packs:
        raise UserError(
            f"{source}: segments.packing: {place}: {objective.type} cannot be packed: it does not "
            "keep the parts of a row apart; take segments.packing: 1"
        )
    needed = objective.needs()
    if "permutation_mask" in given - needed and "masked_ids" in needed:
        raise UserError(
            f"{source}: {place}: {objective.type} asks for tokens that are hidden, and "
            "corruption.type: permutation leaves all of them in their places: take token_masks, "
            "or permutation_lm"
        )
    if lacking := sorted(needed - given):
        raise UserError(
            f"{source}: {place}: {objective.type} needs {', '.join(lacking)}, which neither "
            "segments nor corruption nor another objective give here (they give "
            f"{', '.join(sorted(given - READER_FIELDS))}){_giver(set(lacking))}"
        )


def _giver(fields: set[str]) -> str:
    """Says which objective would give fields that are lacking, if one does."""
    for name, objective in OBJECTIVES.items():
        if fields & objective().gives():
            return f"; the objective {name} gives {', '.join(sorted(fields))}"
    return ""


def _check_memory(config: Config, source: str) -> None:
    """Refuses an encoder with memory where rows do not go on, and one that keeps other tokens."""
    segments, encoder = config.segments, config.encoder
    if segments is None or not getattr(encoder, "memory_length", 0):
        return
    if segments.format != "stream":
        raise UserError(
            f"{source}: encoder.memory_length: {encoder.memory_length}, and rows of "
            f"segments.format: {segments.format} do not go on from batch to batch: take the format "
            "stream, or memory_length: 0"
        )
    if encoder.reuse_length != segments.reuse_length:
        raise UserError(
            f"{source}: encoder.reuse_length: {encoder.reuse_length}, and segments.reuse_length: "
            f"{segments.reuse_length}: the memory keeps what the next row goes on after, so make "
            "them the same"
        )
    if segments.reuse_length and _hides(config) and encoder.attention == "bi":
        raise UserError(
            f"{source}: corruption.block_size: missing: the next row asks for the text behind the "
            f"first {segments.reuse_length} tokens (segments.reuse_length), which these see before "
            f"the memory keeps them (encoder.attention: bi): set it to a divisor of them and of "
            f"max_length {segments.max_length}, such as "
            f"{math.gcd(segments.reuse_length, segments.max_length)}, or take encoder.attention: "
            "uni, or encoder.memory_length: 0 and encoder.reuse_length: 0"
        )


def _hides(config: Config) -> bool:
    """Whether tokens are hidden that every position of the row would help to find."""
    corruption = config.corruption
    if corruption is None or "permutation_mask" in corruption.gives():
        return False
    asked = {f for o in config.objectives for f in o.needs()}
    return "masked_ids" in asked and getattr(corruption, "block_size", None) is None
