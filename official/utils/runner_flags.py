"""The flag `--runner`: where a command computes, on this machine or on Apache Beam."""

from collections.abc import Sequence

from absl import flags

from official.utils import errors
from official.utils.errors import UserError
from official.utils.flag_table import Flag, Values

# The arguments of a command with `--runner`.
USAGE = "[FLAGS] [-- BEAM_OPTIONS]"


def flag(condition: str = "") -> Flag:
    """Returns `--runner`; `condition` says first with what it is, such as `with --pieces: `."""
    meaning = "local: processes of this machine; beam: Apache Beam, whose own options follow `--`"
    return Flag("runner", str, "local", condition + meaning, values=("local", "beam"))


def beam_options(argv: Sequence[str], values: flags.FlagValues | Values) -> Sequence[str] | None:
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
