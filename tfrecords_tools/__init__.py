"""Offline tools: vocabularies and TFRecord shards from text."""

import official  # noqa: F401  before TensorFlow, whose start-up notices it holds back
