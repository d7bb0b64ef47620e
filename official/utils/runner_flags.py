"""The flag `--runner`: where a command computes, on this machine or on Apache Beam."""

from collections.abc import Sequence

from absl import flags

from official.utils import errors
from official.utils.errors import UserError

# The arguments of a command with `--runner`.
USAGE = "[FLAGS] [-- BEAM_OPTIONS]"


def define(values: flags.FlagValues = flags.FLAGS, of: str = "") -> None:
    """Defines `--runner`.

    Args:
      values: where the flag is defined.
      of: what the help says first: the mode that has it.
    """
    flags.DEFINE_enum(
        "runner",
        "local",
        ["local", "beam"],
        f"{of}local: processes of this machine; beam: Apache Beam, whose own options follow `--`",
        flag_values=values,
    )


def beam_options(argv: Sequence[str], values: flags.FlagValues) -> Sequence[str] | None:
    """Returns the options of Beam; None = not on Beam.

    Args:
      argv: what absl leaves of the command line.
      values: the flags, with `workers` among them.

    Raises:
      UserError: there are arguments that are not flags, and not for Beam; or --workers is given
        for Beam.
    """
    if values.runner == "local":
        errors.refuse_arguments(argv)
        return None
    if values.workers:
        raise UserError(
            "--workers: is for --runner=local; Beam has options of its own, such as "
            "-- --direct_num_workers=2 --direct_running_mode=multi_processing"
        )
    return argv[1:]
