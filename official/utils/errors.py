"""Errors that the user can correct."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from absl import flags


class UserError(ValueError):
    """An error that the user can correct.

    The message names the file, line, key or value, and says what to do.

    Example:
    ```python
    try:
        model = official.load("run/none")
    except official.UserError as error:
        print(error)
    ```

    Attributes:
      status: the exit status of a command that ends with it.
    """

    status = 2


class Diverged(UserError):
    """A training whose gradients or weights are not finite. Its command ends with status 3."""

    status = 3


def require(options: "flags.FlagValues", *names: str, mode: str | None = None) -> None:
    """Checks that options of a command line are given.

    Args:
      options: absl's flags.
      names: the names of the options that must have a value.
      mode: the mode of the command that needs them, for the message.

    Raises:
      UserError: an option has no value.
    """
    for name in names:
        if not options[name].value:
            if mode:
                raise UserError(f"--{name} is missing (--mode={mode}); see --help")
            raise UserError(f"--{name} is missing; --help says what it is")


def refuse_arguments(argv: Sequence[str]) -> None:
    """Raises UserError if a command line has arguments that are not flags."""
    if len(argv) > 1:
        raise UserError(f"unexpected argument {argv[1]!r}: options are given as --name=value")


def warn(message: str) -> None:
    """Prints a warning on standard error."""
    print(f"warning: {message}", file=sys.stderr, flush=True)
