r"""Adds words to the vocabulary of a model.

  python -m official.commands.extend_vocabulary --model_dir=MODEL \
      --words=words.txt \
      --output=GROWN
  python -m official.commands.extend_vocabulary --model_dir=MODEL \
      --text='domain/*.txt' \
      --pieces=500 --output=GROWN

  python -m official.commands.extend_vocabulary --model_dir=MODEL \
      --tokenizer=OTHER \
      --output=GROWN

GROWN is a model folder, which `--init` and `official.load` take like any other. All ids that the
model has stay. A new row of a table, of an output bias and of every other head over the vocabulary
is the mean of the rows of the old pieces that spelled the word.

`--words` is a file of one word a line. With `--text` the words are chosen: those that save the most
pieces in the text, by how often they occur and how many pieces each has. Text is read as
`build_shards` reads it: lines, or JSON Lines with a `text` field, plain, .gz or .zst, or .parquet.

With `--tokenizer` the model gets another vocabulary, such as one that `build_vocab` has learned
from own text: pieces that both have keep their rows, and each other piece starts as the mean of the
old pieces that spell it.
"""

import glob
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import flags

from official.utils import (
    atomic,
    command_line,
    errors,
    json_files,
    packed_files,
    paths,
    progress,
    text_lines,
)
from official.utils.errors import UserError

if TYPE_CHECKING:
    from official.tokenizers import Tokenizer
    from official.tokenizers.extension import Extended

FLAGS = flags.FLAGS
_SHOWN = 20
_REQUIRED = ("model_dir", "output")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("model_dir", None, "Model folder to read.")
    flags.DEFINE_string("checkpoint", "best", "Its checkpoint: best, last, a step or a path.")
    flags.DEFINE_string("words", None, "File of the words to add, one a line.")
    flags.DEFINE_list("text", None, "Files or globs of the text that words are chosen from.")
    flags.DEFINE_string(
        "tokenizer", None, "Tokenizer folder that takes the place of the model's tokenizer."
    )
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
    errors.require(FLAGS, *_REQUIRED)
    if [FLAGS.words, FLAGS.text, FLAGS.tokenizer].count(None) != 2:
        raise UserError(
            "give one of --words=FILE, the words to add, --text=GLOB, a text to choose them from, "
            "and --tokenizer=DIR, another tokenizer"
        )
    if FLAGS.text is not None:
        errors.require(FLAGS, "pieces")
    atomic.check_new(FLAGS.output)
    from official import tokenizers
    from official.saving import (
        derived_models,
        embedding_settings,
        generation_settings,
        model_folder,
    )
    from official.tokenizers import extension

    folder = model_folder.ModelFolder.open(FLAGS.model_dir, FLAGS.checkpoint)
    config, tokenizer, model = folder.config, folder.tokenizer, folder.model()
    if config.of_types("distillation"):
        raise UserError(
            f"{FLAGS.model_dir}: the teacher of objectives.distillation has the old vocabulary: "
            "extend the teacher, and make the student from it"
        )
    variables = {path: variable.numpy() for path, variable in model.variables_by_path().items()}
    size = config.encoder.known_vocab_size
    sources: Sequence[Sequence[int]]
    if FLAGS.tokenizer is not None:
        new = tokenizers.load(FLAGS.tokenizer)
        sources = extension.spelled_by(tokenizer, new)
        lines = itertools.chain(new.notes, _kept(sources, tokenizer, new))
    else:
        extended = extension.extend(tokenizer, _words(tokenizer), FLAGS.pieces)
        if not extended.words:
            found = list(extended.left_out.items())[:5]
            reasons = "; ".join(f"{word!r} {why}" for word, why in found)
            raise UserError(f"no word can be added: {reasons or 'there is none'}")
        new = extended.tokenizer
        sources = derived_models.grown_rows(size, new.vocab_size, extended.rows)
        lines = itertools.chain(_added(tokenizer, extended))
    grown, variables = derived_models.with_rows(config, variables, sources)
    model_folder.write_new(
        grown,
        new,
        variables,
        FLAGS.output,
        json_files.optional(generation_settings.file(folder.path)),
        json_files.optional(embedding_settings.file(folder.path)),
    )
    for line in lines:
        print(line)
    print(f"rows of the tables: {size:,} -> {grown.encoder.vocab_size:,}")
    print(f"wrote {FLAGS.output}; its tokenizer, for new shards: {FLAGS.output}/tokenizer")


def _words(tokenizer: "Tokenizer") -> list[str]:
    """Returns the words to add, the most important first."""
    from official.tokenizers import extension

    if FLAGS.words is not None:
        return [word for line in _lines([FLAGS.words]) if (word := line.strip())]
    return extension.choose(tokenizer, _lines(_files(FLAGS.text)), FLAGS.pieces, progress.say)


def _added(tokenizer: "Tokenizer", extended: "Extended") -> Iterator[str]:
    """Yields what was added, and what was not."""
    inside = sum(number < tokenizer.vocab_size for number in extended.rows)
    before = " " if tokenizer.keeps_space else ""
    sizes = [len(ids) for ids in tokenizer.encode([before + word for word in extended.words])]
    yield (
        f"{len(extended.words):,} words are one piece each, and were {sum(sizes) / len(sizes):.2f} "
        f"on average: {len(extended.rows):,} new pieces"
        + (f", {inside:,} of them in the place of [unused] ones" if inside else "")
    )
    if FLAGS.words is not None:
        for word, why in list(extended.left_out.items())[:_SHOWN]:
            yield f"not added: {word!r} {why}"
        if len(extended.left_out) > _SHOWN:
            yield f"not added: {len(extended.left_out) - _SHOWN:,} more"


def _kept(sources: Sequence[Sequence[int]], old: "Tokenizer", new: "Tokenizer") -> Iterator[str]:
    """Yields how many pieces both tokenizers have."""
    same = sum(len(ids) == 1 for ids in sources)
    yield (
        f"{same:,} of {new.vocab_size:,} pieces have the row of one piece, and the others the mean "
        f"of those of the {old.vocab_size:,} old ones that spell them"
    )


def _files(globs: Sequence[str]) -> list[str]:
    """Returns the files that match."""
    found = [name for pattern in globs for name in sorted(glob.glob(os.path.expanduser(pattern)))]
    if not found:
        raise UserError(f"--text: no file matches {', '.join(globs)}")
    return found


def _lines(files: Sequence[str]) -> Iterator[str]:
    """Yields the lines of text files, and of the texts of JSON Lines and Parquet files."""
    for name in files:
        path = paths.path(name)
        if packed_files.is_json(path):
            for _, number, row in text_lines.objects(path, text_lines.refuse):
                if not isinstance(text := row.get("text"), str):
                    raise UserError(f"{name}:{number}: no `text` field that is a string")
                yield from text.split("\n")
            continue
        damaged: list[int] = []
        for line in text_lines.lines(path, damaged):
            if damaged:
                raise UserError(f"{name}:{damaged[0]}: not UTF-8")
            yield line


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
