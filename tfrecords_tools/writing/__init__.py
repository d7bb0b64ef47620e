"""Parallel workers and the bytes of examples."""
