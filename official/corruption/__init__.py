"""Corruption of examples: masks, spans, permutations and their targets."""
