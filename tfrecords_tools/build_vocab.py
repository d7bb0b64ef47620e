r"""Learns a vocabulary from text and writes a tokenizer folder.

  python -m tfrecords_tools.build_vocab --input='text/*.txt.gz,more.jsonl' \
      --output=DIR --type=wordpiece --vocab_size=32000 --lower_case
  python -m tfrecords_tools.build_vocab --input='text/*.txt' --output=DIR \
      --type=unigram --vocab_size=32000 --runner=NAME -- OPTIONS

WordPiece, byte-level BPE and `words` count the words of the whole text. Unigram and BPE
(SentencePiece) learn from a uniform sample of its lines. The memory needed does not grow with the
text. The same text and options give the same bytes, with any number of workers.
"""

from absl import flags

from official.utils import command_help, command_line, errors, parallel, progress, runner_flags
from tfrecords_tools.text import corpus
from tfrecords_tools.vocabulary import TYPES
from tfrecords_tools.writing import execution

_REQUIRED = ("input", "output", "vocab_size")


def define_flags() -> None:
    """Defines the flags of this command."""
    corpus.define_flags("tokenizer folder")
    execution.define_flags()
    flags.DEFINE_enum("type", "wordpiece", TYPES, "kind of vocabulary")
    flags.DEFINE_integer("vocab_size", None, "number of pieces, special tokens counted", 1)
    flags.DEFINE_bool("lower_case", False, "lower-case the text (WordPiece: strip accents too)")
    flags.DEFINE_bool(
        "strip_accents",
        None,
        "wordpiece, unigram, bpe: remove accents (unigram and bpe with --normalize_text alone), "
        "and with them the vowel signs of Hindi, Thai and other scripts; by default WordPiece does "
        "so with --lower_case (BERT), and --normalize_text does (ALBERT, XLNet) unless the text "
        "has 5 or more of them to 100 letters",
    )
    flags.DEFINE_string(
        "added_tokens",
        None,
        "file of tokens that are found in raw text before it is split, one a line, such as [E1]; "
        "they are added to --vocab_size. A line may be a JSON object with flags: "
        '{"content": "covid19", "normalized": true, "single_word": true, "lstrip": true}',
    )
    flags.DEFINE_bool(
        "add_prefix_space",
        False,
        "byte_bpe: add a blank before each text, so that its first word is encoded like any other",
    )
    flags.DEFINE_enum(
        "pattern",
        "gpt2",
        ("gpt2", "marks"),
        "byte_bpe: how words are found: by GPT-2's pattern, which ends a word at each mark, or "
        "with marks as letters, for scripts with vowel signs (Hindi, Thai, Burmese)",
    )
    flags.DEFINE_bool(
        "nfc",
        False,
        "wordpiece, byte_bpe: compose characters first (NFC), here and wherever the tokenizer is "
        "used, for text in which accents are characters of their own (files of macOS, PDFs); "
        "unigram and bpe always do",
    )
    flags.DEFINE_bool(
        "normalize_text",
        False,
        "unigram, bpe: normalize text as the releases of ALBERT and XLNet do: single spaces, "
        "straight quotes, no accents, a split between a number and a comma after it",
    )
    flags.DEFINE_integer(
        "sentinels",
        0,
        "wordpiece, unigram, bpe: number of sentinels <extra_id_0>, ... for span corruption, added "
        "to --vocab_size; T5 has 100. The special tokens of unigram and bpe are then T5's: <pad>, "
        "</s>, <unk>",
        lower_bound=0,
    )
    flags.DEFINE_bool(
        "split_punctuation",
        False,
        "words: make punctuation signs and Chinese characters words of their own, for text that is "
        "not tokenized",
    )
    flags.DEFINE_float(
        "character_coverage",
        0.9995,
        "share of all characters that the alphabet covers; 1.0 = all of them",
        lower_bound=0.98,
        upper_bound=1.0,
    )
    flags.DEFINE_integer(
        "max_lines",
        500_000,
        "unigram and bpe: number of lines in the uniform sample that they learn from",
        lower_bound=1,
    )


def main(argv: list[str]) -> None:
    """Runs the command line."""
    options = flags.FLAGS
    errors.require(options, *_REQUIRED)
    where = execution.from_flags(argv, lambda: corpus.expand(options.input))
    if where.workers:
        # TensorFlow is slow to load, so the process that workers are forked from loads it
        # meanwhile.
        parallel.start("tfrecords_tools.vocabulary.builder")
    from tfrecords_tools.vocabulary import builder

    builder.build(
        options.input,
        options.output,
        options.type,
        options.vocab_size,
        options.lower_case,
        options.character_coverage,
        options.max_lines,
        options.on_bad_utf8,
        options.on_long_line,
        options.add_prefix_space,
        options.normalize_text,
        options.sentinels,
        options.split_punctuation,
        where,
        report=progress.say,
        strip_accents=options.strip_accents,
        added_tokens=options.added_tokens,
        text_filters=corpus.filters_of(options),
        pattern=options.pattern,
        nfc=options.nfc,
    )


run = command_line.Command(
    main, define_flags, _REQUIRED, command_help.Topics("type"), runner_flags.USAGE
)


if __name__ == "__main__":
    run()
