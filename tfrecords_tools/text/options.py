"""What the commands that read text have in common: options, and how they say how far they are."""

import sys

from absl import flags


def define(output: str) -> None:
    """Defines `--input`, `--output`, and what becomes of lines that cannot be used.

    Args:
      output: what is written there.
    """
    flags.DEFINE_list("input", None, "text or .jsonl files, plain or .gz; globs")
    flags.DEFINE_string("output", None, f"{output} to make")
    what = "leave out and count, rather than stop at, lines that are "
    flags.DEFINE_enum("on_bad_utf8", "error", ["error", "skip"], what + "not UTF-8")
    flags.DEFINE_enum("on_long_line", "error", ["error", "skip"], what + "too long")


def say(line: str) -> None:
    """Reports progress."""
    print(line, file=sys.stderr, flush=True)
