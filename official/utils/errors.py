"""Errors that the user can cause, and the one place where a command line prints them."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from official.utils import quiet_import


class UserError(ValueError):
    """Something the user can put right.

    The message names the file, line, key or value, and says what to do.
    """


def require(options: Mapping[str, Any], *names: str, mode: str | None = None) -> None:
    """Checks that options of a command line were given.

    Args:
      options: absl's flags.
      names: of the options that must have a value.
      mode: of a command that does several things, the one that needs them.

    Raises:
      UserError: one has none.
    """
    for name in names:
        if not options[name].value:
            if mode:
                raise UserError(f"--{name} is missing (--mode={mode}); see --help")
            raise UserError(f"--{name} is missing; --help says what it is")


def warn(message: str) -> None:
    """Tells the user, on standard error, of something that the program works around."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


def run(main: Callable[[list[str]], None]) -> None:
    """Runs `main` as a command line under absl: flags are parsed, a `UserError` is printed.

    The process ends with status 2 after a `UserError` (no traceback), 130 after Ctrl-C.
    """
    from absl import app, logging

    quiet_import.install()

    def guarded(argv: list[str]) -> None:
        if len(argv) > 1:
            fail(f"unexpected argument {argv[1]!r}: options are given as --name=value")
        logging.set_verbosity(logging.WARNING)
        try:
            main(argv)
        except UserError as error:
            fail(str(error))
        except BrokenPipeError:  # the reader of our output, `head` perhaps, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)

    def fail(message: str) -> None:
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)

    app.run(guarded)
