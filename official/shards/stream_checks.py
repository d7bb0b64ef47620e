"""Checks of streams that hold when shards are made, and when they are read."""

from official import config as configs
from official.shards.manifest import Manifest
from official.utils.errors import UserError


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
