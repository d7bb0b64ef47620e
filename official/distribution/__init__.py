"""Strategies, and state that is carried over batches or summed over replicas."""
