"""Experiments with encoders: figures of the documentation that are no benchmark of speed."""
