"""Converts weights and configs from and to the files of other tools."""
