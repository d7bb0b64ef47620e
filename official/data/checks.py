"""What a config asks of shards, and they lack."""

from official import config as configs
from official.data.batches import STATIC_MASKS
from official.shards import features as feature_names
from official.shards import manifest
from official.utils.errors import UserError


def static_masks(
    folder: str, found: manifest.Manifest, features: frozenset[str], config: configs.Config
) -> bool:
    """Returns whether masks are static; refuses those that the config has otherwise."""
    static = STATIC_MASKS <= features
    segments, corruption = config.segments, config.corruption
    if segments is not None and segments.static_masks != static:
        kind = "static masks" if static else "no static masks"
        raise UserError(
            f"{folder} has {kind}, and the config says segments.static_masks: "
            f"{str(segments.static_masks).lower()}: change the config, or make the shards "
            "again with it"
        )
    if not static:
        return False
    theirs = found.corruption.max_predictions
    ours = getattr(corruption, "max_predictions", theirs)
    if ours != theirs:
        raise UserError(
            f"{folder} was made with corruption.max_predictions: {theirs}, and the config "
            f"says {ours}: its masks are static, so take the same number"
        )
    return True


def units(folder: str, features: frozenset[str], config: configs.Config) -> None:
    """Refuses a corruption that needs features which the shards lack; masks are not static."""
    if (corruption := config.corruption) is None:
        return
    for name in sorted(corruption.needs() - features):
        raise UserError(
            f"{folder} has no {name}, which corruption.unit: {corruption.unit} is known "
            f"by: make the shards again, with the lexicon ({feature_names.LEXICONS[name]}=FILE)"
        )


def packing(folder: str, features: frozenset[str], config: configs.Config) -> None:
    """Refuses rows of several examples where the config wants rows of one, and the opposite."""
    segments, parts = config.segments, "part_lengths" in features
    if segments is not None and (segments.packing > 1) != parts:
        kind = "several examples in a row" if parts else "one example in a row"
        raise UserError(
            f"{folder} has {kind}, and the config says segments.packing: "
            f"{segments.packing}: change the config, or make the shards again with it"
        )


def blocks(folder: str, found: manifest.Manifest, config: configs.Config) -> None:
    """Refuses blocks where the config wants other rows, and the opposite.

    They differ in where separators stand, and a model that learned from the one writes otherwise.
    """
    segments, theirs = config.segments, found.segments.format if found.segments else None
    if segments is None or theirs == segments.format:
        return
    if "blocks" in (theirs, segments.format):
        raise UserError(
            f"{folder} has shards of segments.format: {theirs}, and the config says "
            f"{segments.format}: change the config, or make the shards again with it"
        )
