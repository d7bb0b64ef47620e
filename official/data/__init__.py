"""Reads shards as batches: `ShardDataset`."""

from official.data.source import ShardDataset, each_batch

__all__ = ["ShardDataset", "each_batch"]
