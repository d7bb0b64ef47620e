"""Folders of sentence-transformers: a module for each kind of them, and their table in `kinds`."""
