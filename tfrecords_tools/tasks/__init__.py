"""Shards of labeled tasks: texts, pairs, choices, questions and rankings."""
