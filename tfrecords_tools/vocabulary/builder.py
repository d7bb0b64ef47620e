"""Learns a vocabulary from text and writes a tokenizer folder."""

import collections
import dataclasses
import functools
import os
import re
import time
import unicodedata
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from official import tokenizers
from official.shards.text_filters import TextFilters
from official.tokenizers import byte_bpe, file_formats
from official.tokenizers.added_tokens import LISTED, AddedToken, Listed, read_lines
from official.tokenizers.base import sentinels as sentinel_pieces
from official.tokenizers.sentencepiece import T5
from official.tokenizers.sentencepiece_rules import TextRules
from official.utils import atomic, input_files, parallel, paths
from official.utils.errors import UserError
from tfrecords_tools.text import documents, dropped, filters
from tfrecords_tools.text.corpus import Corpus, DocumentChunk, Reading
from tfrecords_tools.vocabulary import notes, sentencepiece, word_vocabularies
from tfrecords_tools.vocabulary.word_counts import Passes, Report, WordCounts
from tfrecords_tools.writing.execution import Execution

_EXAMPLE_LINES = 2000
# With more accents and vowel signs per 100 letters than this, `normalize_text` keeps them by
# default: Hindi, Thai, Burmese, Khmer, Vietnamese, Yoruba, Czech and Japanese have more, French has
# fewer.
_MANY_MARKS = 5
_LINES_AT_ONCE = 10_000
# If runs between blanks have more characters on average than this, the script has no blanks between
# words: there are 5 in English, 8 in German and Finnish, and more than 30 in Thai and Japanese.
LONG_RUN = 12
_COUNTED_LINES = 50_000  # of a sample whose characters are counted
_SENTENCEPIECE = ("unigram", "bpe")
_COMPOSES = ("wordpiece", "byte_bpe")  # the kinds that `--nfc` is for
# The kinds that do not change text, for messages.
_KEEPS_CASE = {"byte_bpe": "byte-level BPE keeps", "words": "words keep"}


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of `build` that decide the vocabulary."""

    kind: str
    vocab_size: int
    lower_case: bool
    coverage: float
    max_lines: int
    add_prefix_space: bool
    normalize_text: bool
    sentinels: int
    split_punctuation: bool
    strip_accents: bool | None = None
    added: tuple[AddedToken, ...] = ()
    pattern: str = byte_bpe.GPT2
    nfc: bool = False

    def check(self) -> None:
        """Checks that the kind of vocabulary supports the options.

        Raises:
          UserError: an option is not supported.
        """
        kind = self.kind
        if kind in _KEEPS_CASE and self.lower_case:
            raise UserError(f"--lower_case: {_KEEPS_CASE[kind]} text unchanged: remove the flag")
        if kind != "byte_bpe" and self.add_prefix_space:
            raise UserError(f"--add_prefix_space is for --type=byte_bpe, not for {kind}: remove it")
        if kind in _KEEPS_CASE and self.sentinels:
            raise UserError(
                f"--sentinels={self.sentinels} is for --type=wordpiece, unigram or bpe, not for "
                f"{kind}: remove it"
            )
        if kind not in _SENTENCEPIECE and self.normalize_text:
            raise UserError(
                f"--normalize_text is for --type=unigram or bpe, not for {kind}: remove it"
            )
        if self.strip_accents is not None and not self._has_accents():
            sign = "" if self.strip_accents else "no"
            raise UserError(
                f"--{sign}strip_accents is for --type=wordpiece, and for unigram and bpe with "
                f"--normalize_text; {kind} {'without it ' * (kind in _SENTENCEPIECE)}keeps accents"
            )
        if kind == "words" and self.added:
            raise UserError("--added_tokens is not supported for --type=words: remove it")
        if kind != "byte_bpe" and self.pattern != byte_bpe.GPT2:
            raise UserError(
                f"--pattern={self.pattern} is for --type=byte_bpe, not for {kind}: remove it"
            )
        if self.pattern != byte_bpe.GPT2 and self.add_prefix_space:
            raise UserError(
                f"--pattern={self.pattern} is not for --add_prefix_space: tokenizer.json cannot "
                "express both: remove one of them"
            )
        if self.nfc and kind not in _COMPOSES:
            why = (
                "compose the text first, and every text for the tokenizer"
                if kind == "words"
                else "its model composes characters already (the rules nmt_nfkc): remove it"
            )
            raise UserError(f"--nfc is for --type=wordpiece or byte_bpe, not for {kind}: {why}")
        if kind != "words" and self.split_punctuation:
            raise UserError(f"--split_punctuation is for --type=words, not for {kind}: remove it")

    def _has_accents(self) -> bool:
        """Whether the kind can remove accents."""
        return self.kind == "wordpiece" or (self.kind in _SENTENCEPIECE and self.normalize_text)

    @property
    def strips(self) -> bool:
        """Whether accents are removed."""
        usual = self.lower_case if self.kind == "wordpiece" else True
        return self._has_accents() and (usual if self.strip_accents is None else self.strip_accents)

    @property
    def settings(self) -> dict[str, Any]:
        """The added tokens, as the settings of a tokenizer."""
        return {LISTED: {token.content: Listed(None, token) for token in self.added}}

    def without_added(self, text: str) -> str:
        """Returns a text with each added token replaced by a blank."""
        if not self.added:
            return text
        contents = sorted((re.escape(token.content) for token in self.added), key=len, reverse=True)
        return re.sub("|".join(contents), " ", text)


def build(
    inputs: Sequence[str] | str,
    output: str | os.PathLike,
    kind: str,
    vocab_size: int,
    lower_case: bool = False,
    coverage: float = 0.9995,
    max_lines: int = 500_000,
    on_bad_utf8: str = "error",
    on_long_line: str = "error",
    add_prefix_space: bool = False,
    normalize_text: bool = False,
    sentinels: int = 0,
    split_punctuation: bool = False,
    execution: Execution = Execution(),  # noqa: B008
    report: Report = lambda line: None,
    strip_accents: bool | None = None,
    added_tokens: str | os.PathLike | None = None,
    text_filters: TextFilters | None = None,
    pattern: str = byte_bpe.GPT2,
    nfc: bool = False,
) -> tokenizers.Tokenizer:
    """Learns a vocabulary from text, writes the tokenizer folder and returns the tokenizer.

    Args:
      inputs: files or globs, as `corpus.expand` takes them.
      output: the folder to create.
      kind: one of `TYPES`.
      vocab_size: the number of vocabulary entries, including special tokens.
      lower_case: whether text is lower-cased, for WordPiece without accents; not for `byte_bpe`
        and `words`.
      coverage: the share of all characters that the alphabet covers; byte-level BPE covers all.
      max_lines: the number of lines that unigram and BPE learn from.
      on_bad_utf8: "error" or "skip" lines that are not UTF-8.
      on_long_line: "error" or "skip" lines that are too long.
      add_prefix_space: whether byte-level BPE adds a blank before each document.
      normalize_text: whether unigram and BPE follow `official.tokenizers.sentencepiece_rules`.
      sentinels: the number of sentinels of span corruption (T5), which are added to `vocab_size`.
        The special tokens of unigram and BPE are then T5's: <pad> 0, </s> 1, <unk> 2.
      split_punctuation: for the kind `words`, whether punctuation signs and Chinese characters are
        separate words.
      execution: the processes that read the text; they do not affect the vocabulary.
      report: is called with lines of progress and the summary.
      strip_accents: whether accents and vowel signs are removed; None = WordPiece with `lower_case`
        removes them, and so does `normalize_text` unless the text has many.
      added_tokens: a file of tokens that are found in raw text; see `added_tokens.read_lines`.
      text_filters: the rules by which documents are left out; None = no rules.
      pattern: how byte-level BPE finds words, one of `byte_bpe.PATTERNS`.
      nfc: whether WordPiece and byte-level BPE compose characters first (NFC).

    Raises:
      UserError: the input or an option cannot be used, or `output` exists.
    """
    options = Options(
        kind, vocab_size, lower_case, coverage, max_lines, add_prefix_space, normalize_text,
        sentinels, split_punctuation, strip_accents,
        tuple(read_lines(paths.path(added_tokens))) if added_tokens else (), pattern, nfc,
    )  # fmt: skip
    options.check()
    started = time.monotonic()
    corpus = Corpus.find(inputs)
    reading = Reading.of(corpus, on_bad_utf8, on_long_line)
    read_counts = documents.ReadCounts()
    with (
        input_files.explained(corpus.check),
        atomic.folder(output, file_formats.SETTINGS_FILE) as temporary,
        execution.start_anew(paths.path(output), start_worker) as (runner, scratch),
    ):
        reading = filters.passed(
            text_filters, corpus, reading, runner.ordered, scratch / "filters", report
        )
        passes = Passes(corpus, reading, runner, report)
        learner = _read(passes, options, read_counts)
        if not (examples := _first_lines(passes, kind)):
            raise UserError(
                f"no text in the input ({len(corpus.paths)} files, {corpus.bytes:,} bytes): "
                f"nothing to learn from{dropped.note(read_counts.skipped)}"
            )
        options = _with_marks(learner, options, report)
        for line in _notes(options, examples):
            report(line)
        corpus.check()
        tokenizer = _learn(learner, options, report)
        tokenizer.save(temporary)
    for reason, count in sorted(read_counts.skipped.items()):
        report(f"skipped: {count:,} {reason}")
    report(_summary(tokenizer, kind, examples))
    report(f"wrote {output} in {time.monotonic() - started:.1f} s")
    return tokenizer


def start_worker() -> None:
    """Sets up a worker process."""
    parallel.use_one_thread()


def collect(chunk: DocumentChunk, options: Options) -> Any:
    """Returns the state of a learner (word counts or a sample) for a chunk of text."""
    learner = _learner(options, (chunk.group, chunk.number))
    for document in chunk.documents:
        text = options.without_added(document.text)
        text = unicodedata.normalize("NFC", text) if options.nfc else text
        if options.kind == "byte_bpe":
            blank = options.add_prefix_space and not document.part
            learner.add([" " * blank + text])
        else:
            learner.add(documents.cleaned(text))
    return learner.state()


def _read(
    passes: Passes, options: Options, read_counts: documents.ReadCounts
) -> WordCounts | sentencepiece.Sample:
    """Returns the learner of all text."""
    learner = _learner(options)
    function = functools.partial(collect, options=options)
    for state in passes.apply(function, read_counts):
        learner.merge(state)
    return learner


def _learner(
    options: Options, chunk: tuple[int, int] = (0, 0)
) -> WordCounts | sentencepiece.Sample:
    """Returns a learner: the object that collects word counts or a sample of lines."""
    if options.kind == "wordpiece":
        return word_vocabularies.wordpiece_counts(options.lower_case, options.strips)
    if options.kind == "byte_bpe":
        return word_vocabularies.byte_bpe_counts(pattern=options.pattern)
    if options.kind == "words":
        return word_vocabularies.whole_word_counts(options.split_punctuation)
    return sentencepiece.Sample(options.max_lines, chunk=chunk)


def _first_lines(passes: Passes, kind: str) -> list[str]:
    """Returns the first lines of the text, for the summary."""
    first: list[str] = []
    lines = documents.slices if kind == "byte_bpe" else documents.cleaned
    for document in passes.documents():
        first += lines(document.text)
        if len(first) >= _EXAMPLE_LINES:
            break
    return first[:_EXAMPLE_LINES]


def _with_marks(
    learner: WordCounts | sentencepiece.Sample, options: Options, report: Report
) -> Options:
    """Returns options that keep accents and vowel signs if the text has many of them."""
    if isinstance(learner, WordCounts) or not options.normalize_text:
        return options
    if options.strip_accents is not None:
        return options
    letters = marks = 0
    for line in learner.lines[:: len(learner.lines) // _EXAMPLE_LINES + 1]:
        for character in unicodedata.normalize("NFKD", line):
            letters += unicodedata.category(character)[0] == "L"
            marks += unicodedata.combining(character) > 0
    share = 100 * marks / max(1, letters)
    if share < _MANY_MARKS:
        return options
    report(
        f"accents and signs are kept: the text has {share:.1f} of them per 100 letters, so words "
        "without them would be other words; --strip_accents removes them, as ALBERT and XLNet do"
    )
    return dataclasses.replace(options, strip_accents=False)


def _learn(
    learner: WordCounts | sentencepiece.Sample, options: Options, report: Report
) -> tokenizers.Tokenizer:
    """Learns the vocabulary and returns its tokenizer."""
    if not isinstance(learner, WordCounts):
        report(f"learning from {len(learner.lines):,} of {learner.seen:,} lines")
        made = _sentencepiece(learner, options)
        read = _characters(made, learner.lines[:_COUNTED_LINES])
        if line := notes.left_out(read, made.pieces, options.coverage):
            report(line)
        return made
    counts = learner.words()
    report(f"learning from {learner.total:,} words, {len(counts):,} of them distinct")

    if options.kind == "words":
        pieces = word_vocabularies.learn_words(counts, options.vocab_size)
        return tokenizers.Characters(pieces, options.split_punctuation)

    def report_size(size: int) -> None:
        report(f"{size:,} pieces")

    if options.kind == "wordpiece":
        pieces = word_vocabularies.learn_wordpiece(
            counts, options.vocab_size, options.coverage, report_size
        )
        characters: collections.Counter[str] = collections.Counter()
        for word, count in counts.items():
            for character in word:
                characters[character] += count
        if line := notes.left_out(characters, pieces, options.coverage):
            report(line)
        pieces = [*pieces, *sentinel_pieces(options.sentinels)]
        return tokenizers.WordPiece(
            pieces, options.lower_case, options.strips, options.settings, nfc=options.nfc
        )
    pieces, merges = word_vocabularies.learn_byte_bpe(counts, options.vocab_size, report_size)
    return tokenizers.ByteBPE(
        pieces,
        merges,
        options.add_prefix_space,
        options.settings,
        nfc=options.nfc,
        pattern=options.pattern,
    )


def _sentencepiece(sample: sentencepiece.Sample, options: Options) -> tokenizers.SentencePiece:
    """Learns a SentencePiece model and returns its tokenizer."""
    rules, lines = TextRules(), sample.lines
    if options.normalize_text:
        rules = TextRules(
            remove_space=True,
            replace_quotes=True,
            keep_accents=not options.strips,
            lower_case=options.lower_case,
        )
        lines = _normalized(lines, rules)
    # Without the rules, the model itself folds case.
    folds = options.lower_case and not options.normalize_text
    text_to_text = options.sentinels > 0
    model = sentencepiece.learn(
        lines, options.kind, options.vocab_size, options.coverage, folds, text_to_text
    )
    return tokenizers.SentencePiece(
        model,
        settings=(T5 if text_to_text else {}) | options.settings,
        split_digit_comma=options.normalize_text,
        extra_ids=options.sentinels,
        **dataclasses.asdict(rules),
    )


def _characters(
    tokenizer: tokenizers.SentencePiece, lines: Sequence[str]
) -> collections.Counter[str]:
    """Counts the characters of lines as the model reads them, without blanks."""
    counts: collections.Counter[str] = collections.Counter()
    for start in range(0, len(lines), _LINES_AT_ONCE):
        texts = tf.constant(lines[start : start + _LINES_AT_ONCE], tf.string)
        for text in tokenizer.module().normalized(texts).numpy():
            counts.update("".join(text.decode().split()))
    return counts


def _normalized(lines: Sequence[str], rules: TextRules) -> list[str]:
    normalized: list[str] = []
    for start in range(0, len(lines), _LINES_AT_ONCE):
        batch = rules.apply(tf.constant(lines[start : start + _LINES_AT_ONCE]))
        normalized += [line.decode() for line in batch.numpy()]
    return normalized


def _lost_marks(examples: Sequence[str]) -> str | None:
    """Returns a note about letters that lose an accent or a vowel sign; None = none."""
    letters = lost = 0
    words: collections.Counter[str] = collections.Counter()
    for line in examples:
        for word in line.split():
            parts = [unicodedata.category(c) for c in unicodedata.normalize("NFD", word)]
            letters += sum(category[0] == "L" for category in parts)
            if marks := parts.count("Mn"):
                lost += marks
                words[word] += 1
    if not lost:
        return None
    word = max(words, key=lambda word: (words[word], word))
    plain = "".join(
        c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn"
    )
    return (
        f"accents and vowel signs are removed: {lost:,}, {100 * lost / max(1, letters):.1f} to 100 "
        f"letters, in the first {len(examples):,} lines ({word} becomes {plain}); "
        "--nostrip_accents keeps them"
    )


def _notes(options: Options, examples: Sequence[str]) -> list[str]:
    """Returns notes about the first lines."""
    byte_level = options.kind == "byte_bpe"
    # SentencePiece models compose text, and text without accents needs no composition.
    composes = options.kind in _SENTENCEPIECE or options.strips or options.nfc
    found = [
        _lost_marks(examples) if options.strips else None,
        notes.many_marks(examples) if byte_level and options.pattern == byte_bpe.GPT2 else None,
        None if composes else notes.not_composed(examples, options.kind in _COMPOSES),
        notes.long_runs(examples) if options.kind == "wordpiece" else None,
    ]
    return [line for line in found if line]


def _summary(tokenizer: tokenizers.Tokenizer, kind: str, examples: Sequence[str]) -> str:
    ids, _ = tokenizer.encode_slices([examples])
    runs = [run for line in examples for run in line.split()]
    unit, count = "word", len(runs)
    if (characters := sum(map(len, runs))) > LONG_RUN * count:
        unit, count = "character", characters  # in such scripts, a run between blanks is not a word
    return (
        f"{kind}: {tokenizer.vocab_size:,} pieces, {len(ids) / max(1, count):.2f} to a {unit} and "
        f"{100 * (ids == tokenizer.unk_id).mean() if len(ids) else 0:.3f}% unknown in the first "
        f"{len(examples):,} lines; fingerprint {tokenizer.fingerprint[:16]}"
    )
