"""Shards of labelled tasks: texts, pairs, choices, questions and rankings."""
