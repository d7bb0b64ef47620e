"""Utilities of all packages: errors, atomic files, seeds, JSON, names in messages."""
