"""Reads shards as batches: `ShardDataset`."""

from official.data.source import ShardDataset

__all__ = ["ShardDataset"]
