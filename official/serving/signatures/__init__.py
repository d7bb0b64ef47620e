"""The signatures of a SavedModel, a module for each kind of task."""
