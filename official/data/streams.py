"""Shards whose rows go on from batch to batch: what they must agree in with a run.

`tfrecords_tools.pretraining.streams` says how they are made, `official.data.example_order` how they
are read.
"""

from collections.abc import Sequence

from official import config as configs
from official.shards.manifest import Manifest
from official.utils.errors import UserError


def rows(folder: str, config: configs.Config, manifests: Sequence[Manifest]) -> int | None:
    """Returns how many rows a stream has; None where the shards are no stream.

    Args:
      folder: as messages name the shards.
      config: of which segments and recipe are used here.
      manifests: of the folders, which have the same features.

    Raises:
      UserError: the shards are none of the config's `segments`, or streams of different rows.
    """
    all_settings = [found.segments for found in manifests]
    theirs, ours = all_settings[0], config.segments
    stream = theirs is not None and theirs.format == "stream"
    if ours is not None and (stream or ours.format == "stream"):
        kind = "row-continuous" if stream else "shuffled, not row-continuous,"
        for name in ("format", "reuse_length", "backward"):
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


def check_batch(folder: str, found: int, batch_size: int, training: bool) -> None:
    """Refuses a batch that has not as many rows as the stream.

    Raises:
      UserError: it has more or fewer.
    """
    if batch_size != found:
        key = "recipe.batch_size" if training else "recipe.eval_batch_size"
        raise UserError(
            f"{folder} is a stream of {found} rows, and the batch has {batch_size}: its rows go on "
            f"from batch to batch, so set {key}: {found}, or make the shards again with "
            f"segments.rows: {batch_size}"
        )


def check_memory(folder: str, config: configs.Config, found: Manifest) -> None:
    """Refuses a memory that these shards never fill.

    Raises:
      UserError: `encoder.memory_length` is longer than any text that a row goes on after.
    """
    memory = getattr(config.encoder, "memory_length", 0)
    if not memory or config.segments is None:
        return
    longest = found.totals.longest_memory or 0
    if memory > longest:
        raise UserError(
            f"{folder}: encoder.memory_length: {memory}, and the longest text that a row goes on "
            f"after has {longest} tokens: lower it to {longest}, or make shards of fewer rows or "
            "of more text"
        )
