"""Pretraining shards: segments of documents, packed into examples."""
