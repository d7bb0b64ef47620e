"""Losses and metrics of a data split, and the predictions for it."""
