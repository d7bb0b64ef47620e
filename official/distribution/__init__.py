"""Strategies, the memory of rows, and sums over replicas."""
