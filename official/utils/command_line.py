"""Commands: how they are run, what they print of an error, and their help."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import NoReturn

from absl import app, flags, logging

from official.utils import command_help, errors, quiet_import, signals
from official.utils.engines import KINDS
from official.utils.errors import UserError

USAGE = "[FLAGS]"  # of a command whose arguments are flags alone
# The extra of the distribution that has an optional package, by the name it is imported with.
_EXTRAS = {
    "fastapi": "serve",
    "flask": "playground",
    "ir_measures": "eval",
    "matplotlib": "plots",
    "nltk": "eval",
    "onnx": "onnx",
    "prometheus_client": "serve",
    "pyarrow": "text",
    "pydantic": "serve",
    "rouge_score": "eval",
    "sacrebleu": "eval",
    "scipy": "eval",
    "seqeval": "eval",
    "sklearn": "eval",
    "tf2onnx": "onnx",
    "uvicorn": "serve",
    "zstandard": "text",
    **{kind.package: kind.extra for kind in KINDS.values()},
}


@dataclasses.dataclass(frozen=True)
class Command:
    """A command: what `python -m MODULE` and the console command of the module call.

    Attributes:
      main: the function that does the work, of the module of the command.
      define_flags: defines the flags.
      required: the names of the flags that are required, by the values of the flag that rules the
        command if there is one. It is for the help: `main` checks them.
      topics: what the help groups the flags by; None = nothing.
      usage: the arguments. If there are others than flags, `main` gets them.
      name: what stands after `python -m`, or what is typed, such as `garden train`; "" = the
        module of the command.
      text: the text of the help; "" = that of the module.
    """

    main: Callable[[list[str]], None]
    define_flags: Callable[[], None]
    required: Sequence[str] | Mapping[str, Sequence[str]] = ()
    topics: command_help.Topics | None = None
    usage: str = USAGE
    name: str = ""
    text: str = ""

    def __call__(self) -> None:
        """Runs the command with the arguments of the process."""
        defined = self._define()
        run(self.main, self.usage != USAGE, lambda: self._help(defined))

    def help(self) -> command_help.Help:
        """Returns the help. No flag stays defined: commands may have flags of the same name."""
        defined = self._define()
        for flag in defined:
            delattr(flags.FLAGS, flag.name)
        return self._help(defined)

    def _define(self) -> list[flags.Flag]:
        before = set(flags.FLAGS)
        self.define_flags()
        return [flags.FLAGS[name] for name in flags.FLAGS if name not in before]

    def _help(self, defined: Sequence[flags.Flag]) -> command_help.Help:
        module = sys.modules[self.main.__module__]
        # With `python -m`, __name__ is "__main__".
        name = self.name or (module.__spec__.name if module.__spec__ else module.__name__)
        required = self.required
        by_value = required if isinstance(required, Mapping) else {"": required}
        return command_help.make(
            name, self.usage, self.text or module.__doc__ or "", defined, by_value, self.topics
        )


def run(
    main: Callable[[list[str]], None],
    positional: bool = False,
    help_of: Callable[[], command_help.Help] | None = None,
) -> None:
    """Runs `main` as an absl app, which parses the flags, and prints a `UserError`.

    The exit status is 0 after `--help`, `-h` and `--version`. It is 2 after a flag that is not
    valid, and that of a `UserError` after one, both without a traceback; 130 after Ctrl-C, and 143
    after SIGTERM.

    Args:
      main: the function `main` of the command's module.
      positional: whether the command takes arguments that are not flags.
      help_of: returns what `--help` prints; None = the flags that the module itself has defined.
    """
    quiet_import.install()
    if help_of is not None:
        app.define_help_flags()
        for name, letter in (("help", "h"), ("helpshort", "?")):
            flags.DEFINE_flag(_HelpFlag(name, letter, help_of))

    def parse(argv: list[str]) -> list[str]:
        with _reader_may_leave():
            if "--version" in argv[1:]:
                print(_version(), flush=True)
                sys.exit(0)
            try:
                return flags.FLAGS(argv)
            except flags.Error as error:
                fail(f"{error}; --help lists the flags")
            except SystemExit:  # after a help text, absl exits with status 1
                sys.stdout.flush()
                sys.exit(0)

    def guarded(argv: list[str]) -> None:
        logging.set_verbosity(logging.WARNING)
        try:
            if not positional:
                errors.refuse_arguments(argv)
            with _reader_may_leave(), signals.terminated():
                main(argv)
                sys.stdout.flush()
        except UserError as error:
            fail(str(error), error.status)
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get((error.name or "").partition(".")[0])
            if extra is None:
                raise
            fail(f"{error.name} is not installed: pip install 'encoder-garden[{extra}]'")
        except signals.Terminated:
            print("terminated", file=sys.stderr)
            sys.exit(143)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)

    def fail(message: str, status: int = UserError.status) -> NoReturn:
        print(f"error: {message}", file=sys.stderr)
        sys.exit(status)

    app.run(guarded, flags_parser=parse)


class _HelpFlag(flags.BooleanFlag):
    """Prints the help of the command. absl's prints the flags of one module."""

    def __init__(self, name: str, letter: str, help_of: Callable[[], command_help.Help]):
        super().__init__(name, False, "show this help", letter, allow_override=True)
        self._help_of = help_of

    def parse(self, argument: str | bool) -> None:
        super().parse(argument)
        if self.value:
            print(self._help_of().text(flags.get_help_width()), end="")
            sys.exit(0)


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Ends the process with status 0 if the reader of its output, such as `head`, has closed it."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _version() -> str:
    """Returns the versions of the project and of the libraries that its results depend on."""

    def version(package: str) -> str:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return "not installed"

    own = version("encoder-garden").replace("not installed", "in a checkout")
    others = (f"{name} {version(name)}" for name in ("tensorflow", "keras", "numpy"))
    return f"encoder-garden {own} ({', '.join(others)})"
