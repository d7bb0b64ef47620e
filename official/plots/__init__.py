"""Figures by Matplotlib: heat maps of masks and attention weights, curves of training runs."""
