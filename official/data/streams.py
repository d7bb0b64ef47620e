"""Checks of shards whose rows continue from batch to batch.

`tfrecords_tools.pretraining.streams` makes them, `official.data.example_order` reads them.
"""

from collections.abc import Sequence

from official import config as configs
from official.shards.manifest import Manifest
from official.utils.errors import UserError


def rows(folder: str, config: configs.Config, manifests: Sequence[Manifest]) -> int | None:
    """Returns the number of rows of a stream; None if the shards are no stream.

    Args:
      folder: the folders, for messages.
      config: the config, whose segments and recipe are used.
      manifests: the manifests of the folders, which have the same features.

    Raises:
      UserError: the shards do not match the config's `segments`, or have different numbers of rows.
    """
    all_settings = [each.segments for each in manifests]
    theirs, ours = all_settings[0], config.segments
    stream = theirs is not None and theirs.format == "stream"
    if ours is not None and (stream or ours.format == "stream"):
        kind = "row-continuous" if stream else "shuffled, not row-continuous,"
        for name in ("format", "reuse_length", "backward", "sentences"):
            shards_say, config_says = getattr(theirs, name, None), getattr(ours, name)
            if shards_say != config_says:
                raise UserError(
                    f"{folder} has {kind} shards of segments.{name}: {shards_say}, and the "
                    f"config says {config_says}: change the config, or make the shards again "
                    "with it"
                )
    if not stream:
        return None
    counts = sorted({settings.rows for settings in all_settings})
    if len(counts) > 1:
        raise UserError(
            f"{folder} are streams of {' and '.join(map(str, counts))} rows, which cannot be read "
            "one after the other: make all with the same segments.rows"
        )
    if config.recipe.bucket_lengths:
        raise UserError(
            f"{folder} is a stream, whose rows are all of one length: leave out "
            "recipe.bucket_lengths"
        )
    return counts[0]
