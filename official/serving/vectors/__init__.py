"""Vectors of texts, and search with them."""
