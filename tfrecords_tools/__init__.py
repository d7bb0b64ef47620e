"""Offline tools: vocabularies and TFRecord shards from text."""
