"""Starts students from layers of their teachers: `python -m official.students`."""
