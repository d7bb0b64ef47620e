r"""Writes stored vectors again with smaller numbers, without the model and the texts.

  garden embed --model_dir=MODEL --texts=documents.tsv --output=VECTORS \
      --pieces=npy --normalize
  python -m official.commands.smaller_vectors --vectors=VECTORS \
      --dtype=bits --output=BITS
  garden search --model_dir=MODEL --queries=queries.tsv --vectors=BITS \
      --rescore=VECTORS --output=found.run

The folder is what `garden embed` writes with this --dtype, and texts can be appended to it. The
search finds documents by the smaller vectors, and compares the best of them by those of --rescore.
"""

from absl import flags

from official.serving import DTYPES
from official.utils import command_line, errors

FLAGS = flags.FLAGS
_REQUIRED = ("vectors", "dtype", "output")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("vectors", None, "A folder of --mode=embed --pieces=npy in float32.")
    flags.DEFINE_enum("dtype", None, DTYPES[1:], "The type of the numbers, as that of embed.")
    flags.DEFINE_string("output", None, "The folder to write.")


def main(argv: list[str]) -> None:
    """Writes the folder."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    from official.serving.vectors import smaller

    made = smaller.write(FLAGS.vectors, FLAGS.output, FLAGS.dtype)
    print(f"{FLAGS.output}: {made['texts']:,} texts in {made['pieces']:,} pieces, {FLAGS.dtype}")


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
