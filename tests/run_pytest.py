"""Runs the test files named as arguments: the entry point of Bazel's test targets."""

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]]))
