"""Trains, evaluates and uses models: each command has flags of its own.

`garden COMMAND --help` lists the flags of a command. But for `memory` and `serve` they are those of
the mode of the same name of `python -m official.main`. All other commands are modules, and console
commands of their own: `garden-build-vocab`, `garden-build-task-shards`, `garden-export` and so on.
"""

import functools
import sys
from types import ModuleType

from absl import flags

from official.commands import memory, serve
from official.commands.modes import embed, evaluate, fill_mask, generate, predict, search, train
from official.commands.modes.mode import Mode
from official.utils import command_line, errors, flag_table, runner_flags
from official.utils.flag_table import Values
from official.utils.names import listed, nearest

_MODES: dict[str, tuple[ModuleType, Mode]] = {
    "train": (train, train.COMMAND),
    "eval": (evaluate, evaluate.MODE),
    "predict": (predict, predict.MODE),
    "generate": (generate, generate.MODE),
    "fill-mask": (fill_mask, fill_mask.MODE),
    "embed": (embed, embed.MODE),
    "search": (search, search.MODE),
}


def _run(mode: Mode, argv: list[str]) -> None:
    """Runs a mode with the flags of the process."""
    given = flags.FLAGS
    if mode is train.COMMAND and given.list_configs:
        train.list_configs()
        return
    errors.require(given, *mode.required)
    options = Values(mode.flags, given)
    if mode is embed.MODE:
        embed.run(options, runner_flags.engine(argv, options))
    else:
        mode.run(options)


def _command(name: str) -> command_line.Command:
    module, mode = _MODES[name]
    return command_line.Command(
        functools.partial(_run, mode),
        functools.partial(flag_table.define, mode.flags),
        mode.required,
        usage=runner_flags.USAGE if mode is embed.MODE else command_line.USAGE,
        name=f"garden {name}",
        text=module.__doc__ or "",
    )


COMMANDS = {
    **{name: _command(name) for name in _MODES},
    "memory": memory.COMMAND,
    "serve": serve.COMMAND,
}


def _unknown(argv: list[str]) -> None:
    """Says which commands there are."""
    if len(argv) == 1:
        print(OVERVIEW.help().text(flags.get_help_width()), end="")
        return
    raise errors.UserError(
        f"there is no command {argv[1]!r}{nearest(argv[1], COMMANDS)}: commands are "
        f"{listed(COMMANDS)}; garden --help says what they do"
    )


def _text() -> str:
    """Returns the text of this module, with a line for each command."""
    first, rest = (__doc__ or "").split("\n", 1)
    lines = []
    for name, command in COMMANDS.items():
        [does, *_] = command.text.splitlines()
        lines.append(f"  {name:11}{does}")
    return "\n".join([first, "", *lines, rest])


OVERVIEW = command_line.Command(
    _unknown, lambda: None, usage="COMMAND [FLAGS]", name="garden", text=_text()
)


def run() -> None:
    """Runs the command that the arguments of the process name."""
    program, *words = sys.argv
    name = words[0] if words else ""
    if name in COMMANDS:
        sys.argv = [f"{program} {name}", *words[1:]]
        COMMANDS[name]()
    else:
        # The flags of a command that is not known are not known.
        sys.argv = [program, *words[:1]]
        OVERVIEW()


if __name__ == "__main__":
    run()
