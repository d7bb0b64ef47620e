r"""Finds phrases in text and writes them to a lexicon file, one on each line, best first.

  python -m tfrecords_tools.build_phrases --input='text/*.txt' \
      --output=phrases.txt [--min_count=20] [--threshold=0.4] [--max_words=4] \
      [--lower_case] [--workers=N | --runner=NAME -- OPTIONS]

A phrase is a frequent run of 2 to `max_words` words with nothing but spaces between them. If it is
cut in two at any position, the parts have a normalized pointwise mutual information (Bouma, 2009)
of at least the threshold,

  npmi(x, y) = ln(p(x y) / (p(x) p(y))) / -ln p(x y),

which is 1 for parts that only occur together and 0 for independent parts. p is a share of all
words.

The text is read `max_words` times. A run is counted only if it is frequent without its first word
and without its last word, so memory grows with the number of phrases, not with the text. The same
text and options give the same phrases, with any number of workers.
"""

from absl import flags

from official.utils import command_line, errors, progress, runner_flags
from tfrecords_tools.text import corpus
from tfrecords_tools.writing import execution

_REQUIRED = ("input", "output")


def define_flags() -> None:
    """Defines the flags of this command."""
    corpus.define_flags("lexicon file")
    execution.define_flags()
    flags.DEFINE_integer("min_count", 20, "least number of occurrences of a phrase")
    flags.DEFINE_float("threshold", 0.4, "least normalized mutual information, -1 to 1")
    flags.DEFINE_integer("max_words", 4, "largest number of words of a phrase")
    flags.DEFINE_bool("lower_case", False, "lower-case the text, for uncased tokenizers")


def main(argv: list[str]) -> None:
    """Runs the command line."""
    options = flags.FLAGS
    errors.require(options, *_REQUIRED)
    where = execution.from_flags(argv, lambda: corpus.expand(options.input))
    from tfrecords_tools.vocabulary import phrases

    phrases.build(
        options.input,
        options.output,
        options.min_count,
        options.threshold,
        options.max_words,
        options.lower_case,
        options.on_bad_utf8,
        options.on_long_line,
        where,
        report=progress.say,
        text_filters=corpus.filters_of(options),
    )


run = command_line.Command(main, define_flags, required=_REQUIRED, usage=runner_flags.USAGE)


if __name__ == "__main__":
    run()
