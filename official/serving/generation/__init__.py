"""Texts that a model writes, and masks that it fills."""
