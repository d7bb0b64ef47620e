"""Losses and metrics of a data split (`evaluate`), and the predictions for it (`predict`)."""
