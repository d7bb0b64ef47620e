"""From shards to batches: `Source`."""

from official.data.source import Source

__all__ = ["Source"]
