"""Flags of the commands that read text."""

from absl import flags


def define(output: str) -> None:
    """Defines `--input`, `--output` and the flags for lines that cannot be used.

    Args:
      output: the kind of output, for the help text.
    """
    flags.DEFINE_list("input", None, "text or .jsonl files, plain or .gz; globs")
    flags.DEFINE_string("output", None, f"{output} to create")
    choices = ["error", "skip"]
    action = "stop at a line that is {}, or leave it out and count it"
    flags.DEFINE_enum("on_bad_utf8", "error", choices, action.format("not UTF-8"))
    flags.DEFINE_enum("on_long_line", "error", choices, action.format("too long"))
