r"""Augments the training text of a task: copies of its rows with other words, to distill on.

  python -m experiments.augment --model_dir=BERT --input=SST-2/train.tsv \
      --columns=sentence --output=augmented.tsv [--vectors=glove.6B.300d.txt] \
      [--kept_words=stop_words.txt]

A word of one token is replaced by one of the most probable words of a masked LM in its place, and
one of several tokens by one with a near vector in --vectors (Jiao et al., 2020, algorithm 1). The
output has each row and after it its copies, with the same label and other columns. Of a pair,
--columns=sentence1,sentence2, each copy has other words in one of the two texts. The same command
gives the same file with any --batch_size. build_task_shards makes shards of the file, as of any
other.
"""

from absl import flags

from official.utils import command_line, errors, paths, progress

FLAGS = flags.FLAGS
_REQUIRED = ("model_dir", "input", "columns", "output")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("model_dir", None, "Model folder of a masked LM, such as BERT's.")
    flags.DEFINE_string(
        "checkpoint", "best", "The checkpoint of --model_dir: best, last, a step or a path."
    )
    flags.DEFINE_string(
        "input", None, "The rows: a .tsv file with a column a tab, or .jsonl; it may be .gz."
    )
    flags.DEFINE_list(
        "columns", None, "The column of the text, or of both texts; names, or indices from 0."
    )
    flags.DEFINE_bool("header", True, "Whether the first line of a .tsv file names the columns.")
    flags.DEFINE_string("output", None, "The file to write, in the format of --input.")
    flags.DEFINE_string(
        "vectors",
        None,
        "Text file with a word and its vector on each line (GloVe, word2vec), for words of several "
        "tokens. Without it they stay.",
    )
    flags.DEFINE_integer(
        "max_vectors", 100_000, "The number of lines of --vectors that are read.", lower_bound=1
    )
    flags.DEFINE_string(
        "kept_words", None, "File with words that are never replaced, one on each line."
    )
    flags.DEFINE_integer("copies", 20, "The number of copies of each text.", lower_bound=1)
    flags.DEFINE_integer("candidates", 15, "The number of candidates of a word.", lower_bound=1)
    flags.DEFINE_float(
        "probability",
        0.4,
        "The probability that a word is replaced.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
    flags.DEFINE_integer("seed", 0, "The seed of the draws.", lower_bound=0)
    flags.DEFINE_integer(
        "batch_size", 64, "Texts that the masked LM reads together.", lower_bound=1
    )
    flags.DEFINE_bool("skip_bad_rows", False, "Leave out rows that cannot be used, and count them.")


def main(argv: list[str]) -> None:
    """Writes the rows and their copies."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    from experiments import augmentation
    from experiments.word_neighbors import WordNeighbors
    from official.serving import loaded_model
    from official.serving.generation.mask_filler import MaskFiller
    from official.tasks import text_rows
    from official.utils import text_lines

    rows = text_rows.Rows(paths.path(FLAGS.input), FLAGS.columns, FLAGS.header)
    paths.check_suffix(FLAGS.output, "rows of this --input", (rows.format,))
    kept = text_lines.read(FLAGS.kept_words, "words") if FLAGS.kept_words else []
    neighbors = WordNeighbors(FLAGS.vectors, FLAGS.max_vectors) if FLAGS.vectors else None
    filler = loaded_model.load(FLAGS.model_dir, FLAGS.checkpoint).filler
    if not isinstance(filler, MaskFiller):
        raise errors.UserError(
            f"--model_dir={FLAGS.model_dir}: give a masked LM: it has seq2seq_lm"
        )
    augmenter = augmentation.Augmenter(
        filler,
        neighbors,
        augmentation.Settings(FLAGS.copies, FLAGS.candidates, FLAGS.probability, FLAGS.seed),
        {word.strip().lower() for word in kept},
        FLAGS.batch_size,
    )
    augmentation.write(
        augmenter, rows, FLAGS.output, skip_bad_rows=FLAGS.skip_bad_rows, report=progress.say
    )


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
