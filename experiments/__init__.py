"""Experiments with encoders: results in the documentation other than benchmarks of speed."""
