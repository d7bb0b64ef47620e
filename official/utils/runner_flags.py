"""The flag `--runner`: where a command computes, on this machine or on an engine."""

from collections.abc import Sequence

from absl import flags

from official.utils import errors
from official.utils.engines import KINDS, Engine
from official.utils.errors import UserError
from official.utils.flag_table import Flag, Values

_LOCAL = "local"
# The arguments of a command with `--runner`.
USAGE = "[FLAGS] [-- OPTIONS]"


def flag(condition: str = "") -> Flag:
    """Returns `--runner`; `condition` says first with what it is, such as `with --pieces: `."""
    engines = "; ".join(f"{name}: {kind.title}" for name, kind in KINDS.items())
    meaning = f"local: processes of this machine; {engines}, whose own options follow `--`"
    return Flag("runner", str, _LOCAL, condition + meaning, values=(_LOCAL, *KINDS))


def engine(argv: Sequence[str], values: flags.FlagValues | Values) -> Engine | None:
    """Returns the engine that a command line names; None = processes of this machine.

    Args:
      argv: what absl leaves of the command line.
      values: the flags, with `workers` among them.

    Raises:
      UserError: there are arguments that are not flags, and not for an engine; or --workers is
        given for an engine.
    """
    if values.runner == _LOCAL:
        errors.refuse_arguments(argv)
        return None
    if values.workers:
        kind = KINDS[values.runner]
        raise UserError(
            f"--workers: is for --runner={_LOCAL}; {kind.title} has options of its own, such as "
            f"-- {kind.options}"
        )
    return Engine(values.runner, tuple(argv[1:]))
