"""Readers of the file formats of labelled data sets."""
