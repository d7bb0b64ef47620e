"""Keeps the outputs of teachers for the shards of a task: `python -m official.teacher_outputs`."""
