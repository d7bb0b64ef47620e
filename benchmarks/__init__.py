"""Benchmarks of speed and memory against the references, each in its own environment."""
