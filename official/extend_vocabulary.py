"""Adds words to the vocabulary of a model.

  python -m official.extend_vocabulary --model_dir=MODEL --words=words.txt --output=GROWN
  python -m official.extend_vocabulary --model_dir=MODEL --text='domain/*.txt' --pieces=500 \
      --output=GROWN

GROWN is a model folder, which `--init` and `official.load` take like any other. All ids that the
model has stay. A new row of a table, of an output bias and of every other head over the vocabulary
is the mean of the rows of the old pieces that spelled the word.

`--words` is a file of one word a line. With `--text` the words are chosen: those that save the most
pieces in the text, by how often they occur and how many pieces each has. Both files may be .gz.
"""

import glob
import gzip
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import flags

from official.utils import atomic, errors, progress
from official.utils.errors import UserError

if TYPE_CHECKING:
    from official import config as configs
    from official.tokenizers import Tokenizer
    from official.tokenizers.extension import Extended

FLAGS = flags.FLAGS
_SHOWN = 20


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("model_dir", None, "Model folder to read.")
    flags.DEFINE_string("checkpoint", "best", "Its checkpoint: best, last, a step or a path.")
    flags.DEFINE_string("words", None, "File of the words to add, one a line.")
    flags.DEFINE_list("text", None, "Files or globs of the text that words are chosen from.")
    flags.DEFINE_integer(
        "pieces",
        None,
        "The largest number of new pieces. Byte-level BPE needs one for each part of a word from "
        "the left, and counts them. Required with --text.",
        1,
    )
    flags.DEFINE_string("output", None, "Model folder to write. It must not exist.")


def main(argv: list[str]) -> None:
    """Reads a model folder and writes one with a larger vocabulary."""
    del argv
    errors.require(FLAGS, "model_dir", "output")
    if (FLAGS.words is None) == (FLAGS.text is None):
        raise UserError("give either --words=FILE or --text=GLOB: the words to add, or their text")
    if FLAGS.text is not None:
        errors.require(FLAGS, "pieces")
    atomic.check_new(FLAGS.output)
    from official.saving import larger_vocabulary, model_folder
    from official.tokenizers import extension

    config, tokenizer, model = model_folder.restore(FLAGS.model_dir, FLAGS.checkpoint)
    if [o for o in config.objectives if o.type == "distillation"]:
        raise UserError(
            f"{FLAGS.model_dir}: the teacher of objectives.distillation has the old vocabulary: "
            "extend the teacher, and make the student from it"
        )
    if FLAGS.words is not None:
        words = [word for line in _lines([FLAGS.words]) if (word := line.strip())]
    else:
        lines = _lines(_files(FLAGS.text))
        words = extension.choose(tokenizer, lines, FLAGS.pieces, progress.say)
    extended = extension.extend(tokenizer, words, FLAGS.pieces)
    if not extended.words:
        reasons = "; ".join(f"{word!r} {why}" for word, why in list(extended.left_out.items())[:5])
        raise UserError(f"no word can be added: {reasons or 'there is none'}")
    grown, variables = larger_vocabulary.grow(
        config,
        {path: variable.numpy() for path, variable in model.variables_by_path().items()},
        extended.tokenizer.vocab_size,
        extended.rows,
    )
    model_folder.write_new(
        grown,
        extended.tokenizer,
        variables,
        FLAGS.output,
        model_folder.generation(FLAGS.model_dir),
        model_folder.embedding(FLAGS.model_dir),
    )
    _report(tokenizer, extended, config, grown)


def _report(
    tokenizer: "Tokenizer",
    extended: "Extended",
    config: "configs.Config",
    grown: "configs.Config",
) -> None:
    """Prints what was done."""
    inside = sum(number < tokenizer.vocab_size for number in extended.rows)
    before = " " if tokenizer.keeps_space else ""
    sizes = [len(ids) for ids in tokenizer.encode([before + word for word in extended.words])]
    print(
        f"{len(extended.words):,} words are one piece each, and were {sum(sizes) / len(sizes):.2f} "
        f"on average: {len(extended.rows):,} new pieces"
        + (f", {inside:,} of them in the place of [unused] ones" if inside else "")
    )
    print(f"rows of the tables: {config.encoder.vocab_size:,} -> {grown.encoder.vocab_size:,}")
    if FLAGS.words is not None:
        for word, why in list(extended.left_out.items())[:_SHOWN]:
            print(f"left out: {word!r} {why}")
        if len(extended.left_out) > _SHOWN:
            print(f"left out: {len(extended.left_out) - _SHOWN:,} more")
    print(f"wrote {FLAGS.output}; its tokenizer, for new shards: {FLAGS.output}/tokenizer")


def _files(globs: Sequence[str]) -> list[str]:
    """Returns the files that match."""
    found = [name for pattern in globs for name in sorted(glob.glob(os.path.expanduser(pattern)))]
    if not found:
        raise UserError(f"--text: no file matches {', '.join(globs)}")
    return found


def _lines(files: Sequence[str]) -> Iterator[str]:
    """Yields the lines of text files."""
    for name in files:
        try:
            opened = gzip.open(name, "rb") if name.endswith(".gz") else open(name, "rb")  # noqa: SIM115
            with opened as stream:
                for number, line in enumerate(stream, 1):
                    try:
                        yield line.decode().rstrip("\r\n")
                    except UnicodeDecodeError as error:
                        raise UserError(f"{name}:{number}: not UTF-8") from error
        except OSError as error:
            raise UserError(f"{name} cannot be read: {error.strerror or error}") from error


def run() -> None:
    """Defines the flags and runs the command line."""
    define_flags()
    errors.run(main)


if __name__ == "__main__":
    run()
