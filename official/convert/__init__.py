"""Weights and configs from and to other tools' files: `python -m official.convert`."""
