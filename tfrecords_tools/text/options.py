"""Flags and progress reports of the commands that read text."""

import sys

from absl import flags


def define(output: str) -> None:
    """Defines `--input`, `--output` and the flags for lines that cannot be used.

    Args:
      output: the kind of output, for the help text.
    """
    flags.DEFINE_list("input", None, "text or .jsonl files, plain or .gz; globs")
    flags.DEFINE_string("output", None, f"{output} to make")
    what = "leave out and count, rather than stop at, lines that are "
    flags.DEFINE_enum("on_bad_utf8", "error", ["error", "skip"], what + "not UTF-8")
    flags.DEFINE_enum("on_long_line", "error", ["error", "skip"], what + "too long")


def say(line: str) -> None:
    """Prints a line of progress to stderr."""
    print(line, file=sys.stderr, flush=True)
