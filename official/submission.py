"""GLUE's submission: a file of predictions for each test split, and the zip of all of them.

`official.main --mode=predict --submission=DIR` writes the files of one model, each with the lines
`index<TAB>prediction`; when all are there, of several models and in one folder or several,

  python -m official.submission --input=DIR [--input=DIR]... --output=glue.zip

checks them and writes what the benchmark takes.

Shapes: B examples, C classes.
"""

from absl import flags

from official.evaluation import glue_submission
from official.utils import errors

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_multi_string("input", [], "Folder with submission files; may be given again.")
    flags.DEFINE_string("output", None, "The zip to write.")


def main(argv: list[str]) -> None:
    """Runs the command line."""
    del argv
    errors.require(FLAGS, "input", "output")
    print(f"{FLAGS.output}: {', '.join(glue_submission.pack(FLAGS.input, FLAGS.output))}")


def run() -> None:
    """The console entry."""
    define_flags()
    errors.run(main)


if __name__ == "__main__":
    run()
