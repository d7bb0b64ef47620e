"""Errors that the user can correct, and the function that prints them on the command line."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from official.utils import quiet_import

if TYPE_CHECKING:
    from absl import flags

# The extra of the distribution that has an optional package, by the name it is imported with.
_EXTRAS = {
    "apache_beam": "beam",
    "flask": "playground",
    "ir_measures": "eval",
    "matplotlib": "plots",
    "nltk": "eval",
    "onnx": "onnx",
    "pyarrow": "text",
    "rouge_score": "eval",
    "sacrebleu": "eval",
    "scipy": "eval",
    "seqeval": "eval",
    "sklearn": "eval",
    "tf2onnx": "onnx",
    "zstandard": "text",
}


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
    """


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


def command(
    main: Callable[[list[str]], None], define_flags: Callable[[], None], positional: bool = False
) -> Callable[[], None]:
    """Returns the function that runs a command: it defines its flags and calls `run`."""

    def run_command() -> None:
        define_flags()
        run(main, positional)

    return run_command


def run(main: Callable[[list[str]], None], positional: bool = False) -> None:
    """Runs `main` as an absl app, which parses the flags, and prints a `UserError`.

    The exit status is 0 after `--help`, `-h` and `--version`. It is 2 after a `UserError` or a flag
    that is not valid, without a traceback, and 130 after Ctrl-C.

    Args:
      main: the function `main` of the command's module.
      positional: whether the command takes arguments that are not flags.
    """
    from absl import app, flags, logging

    quiet_import.install()
    if main.__module__ != "__main__":
        # An installed console command. `--help` shows the docstring of the module `__main__` and
        # the key flags of `sys.argv[0]`.
        sys.modules["__main__"].__doc__ = sys.modules[main.__module__].__doc__
        for flag in flags.FLAGS.get_key_flags_for_module(main.__module__):
            flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)

    def parse(argv: list[str]) -> list[str]:
        with _reader_may_leave():
            if "--version" in argv[1:]:
                print(_version(), flush=True)
                sys.exit(0)
            try:
                return flags.FLAGS(["--help" if arg == "-h" else arg for arg in argv])
            except flags.Error as error:
                fail(f"{error}; --help lists the flags")
            except SystemExit:  # after a help text, absl exits with status 1
                sys.stdout.flush()
                sys.exit(0)

    def guarded(argv: list[str]) -> None:
        logging.set_verbosity(logging.WARNING)
        try:
            if not positional:
                refuse_arguments(argv)
            with _reader_may_leave():
                main(argv)
                sys.stdout.flush()
        except UserError as error:
            fail(str(error))
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get((error.name or "").partition(".")[0])
            if extra is None:
                raise
            fail(f"{error.name} is not installed: pip install 'encoder-garden[{extra}]'")
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)

    def fail(message: str) -> NoReturn:
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)

    app.run(guarded, flags_parser=parse)


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Ends the process with status 0 if the reader of its output, such as `head`, has closed it."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _version() -> str:
    """Returns the versions of the project, and of what decides its numbers."""
    from importlib import metadata

    def version(package: str) -> str:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return "not installed"

    own = version("encoder-garden").replace("not installed", "in a checkout")
    others = (f"{name} {version(name)}" for name in ("tensorflow", "keras", "numpy"))
    return f"encoder-garden {own} ({', '.join(others)})"
