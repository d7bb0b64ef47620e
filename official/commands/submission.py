"""Packs files of predictions into the zip file for GLUE.

`official.main --mode=predict --submission=DIR` writes the files of one model, with lines of the
form `index<TAB>prediction`. When the files of all tasks exist, in one folder or in several,

  python -m official.commands.submission --input=DIR... --output=glue.zip

checks them and writes the zip file.
"""

from absl import flags

from official.evaluation import glue_submission
from official.utils import command_line, errors

FLAGS = flags.FLAGS
_REQUIRED = ("input", "output")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_multi_string("input", [], "Folder with submission files. May be repeated.")
    flags.DEFINE_string("output", None, "The zip file to write.")


def main(argv: list[str]) -> None:
    """Checks and packs the files of --input."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    print(f"{FLAGS.output}: {', '.join(glue_submission.pack(FLAGS.input, FLAGS.output))}")


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
