"""Figures by Matplotlib: masks and attention weights as heat maps, curves of training runs."""
