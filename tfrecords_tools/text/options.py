"""Flags of the commands that read text."""

from absl import flags


def define(output: str, values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines `--input`, `--output` and the flags for lines that cannot be used.

    Args:
      output: the kind of output, for the help text.
      values: where the flags are defined.
    """
    flags.DEFINE_list(
        "input",
        None,
        "text or .jsonl files, plain or .gz; globs; a name with a comma stands in double quotes",
        flag_values=values,
    )
    flags.DEFINE_string("output", None, f"{output} to create", flag_values=values)
    choices = ["error", "skip"]
    action = "stop at a line that is {}, or leave it out and count it"
    for name, kind in (("on_bad_utf8", "not UTF-8"), ("on_long_line", "too long")):
        flags.DEFINE_enum(name, "error", choices, action.format(kind), flag_values=values)
