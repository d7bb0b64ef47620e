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


def check_batch(folder: str, rows: int, batch_size: int, training: bool) -> None:
    """Checks that a batch has as many rows as the stream.

    Raises:
      UserError: it has more or fewer rows.
    """
    if batch_size != rows:
        key = "recipe.batch_size" if training else "recipe.eval_batch_size"
        raise UserError(
            f"{folder} is a stream of {rows} rows, and the batch has {batch_size}: its rows "
            f"continue from batch to batch, so set {key}: {rows}, or make the shards again with "
            f"segments.rows: {batch_size}"
        )


def check_memory(folder: str, config: configs.Config, content: Manifest) -> None:
    """Checks that the shards can fill the encoder's memory.

    Raises:
      UserError: `encoder.memory_length` is longer than the longest text before a row.
    """
    memory = getattr(config.encoder, "memory_length", 0)
    if not memory or config.segments is None:
        return
    longest = content.totals.longest_memory or 0
    if memory > longest:
        raise UserError(
            f"{folder}: encoder.memory_length: {memory}, and the longest text that a row continues "
            f"has {longest} tokens: lower it to {longest}, or make shards of fewer rows or "
            "of more text"
        )
