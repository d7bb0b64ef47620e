"""Parallel workers, and the writer of shards."""
