"""Learns a vocabulary from text and writes a tokenizer folder."""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from official import tokenizers
from official.tokenizers.text_rules import TextRules
from official.utils import atomic
from official.utils.errors import UserError
from tfrecords_tools.text import documents
from tfrecords_tools.vocabulary import byte_bpe, sentencepiece, wordpiece
from tfrecords_tools.vocabulary.word_counts import WordCounts

_SECONDS_BETWEEN_REPORTS = 5.0
_EXAMPLE_LINES = 2000
_LINES_AT_ONCE = 10_000


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
    report: Callable[[str], None] = lambda line: None,
) -> tokenizers.Tokenizer:
    """Reads text, learns a vocabulary, writes the tokenizer folder `output`.

    Args:
      inputs: files or globs, as `documents.expand` takes them.
      output: the folder to make.
      kind: one of `TYPES`.
      vocab_size: pieces, special tokens counted.
      lower_case: lower-case the text (and, for WordPiece, strip its accents); not for byte-level
        BPE.
      coverage: the share of all characters that the alphabet must have; byte-level BPE has all.
      max_lines: how many lines unigram and BPE learn from.
      on_bad_utf8: what to do with lines that are not UTF-8: "error" or "skip".
      on_long_line: the same for lines too long to hold.
      add_prefix_space: byte-level BPE puts a blank before each text (of a document, before its
        first word).
      normalize_text: unigram and BPE read text as the releases of ALBERT and XLNet prepare it: see
        `official.tokenizers.text_rules`.
      report: is given lines for a person to read.

    Raises:
      UserError: unusable input, no text in it, a `vocab_size` that does not suit it, an `output`
        that is there already, options that the type does not have.
    """
    if kind == "byte_bpe" and lower_case:
        raise UserError("--lower_case: byte-level BPE keeps text as it is; leave it out")
    if kind != "byte_bpe" and add_prefix_space:
        raise UserError(f"--add_prefix_space: is for --type=byte_bpe; {kind} needs none")
    if kind not in ("unigram", "bpe") and normalize_text:
        raise UserError(f"--normalize_text: is for --type=unigram or bpe, not {kind}; leave it out")
    started = time.monotonic()
    paths = documents.expand(inputs)
    with atomic.folder(output) as temporary:
        tally = documents.Tally()
        total = sum(path.stat().st_size for path in paths)
        learner: WordCounts | sentencepiece.Sample
        if kind == "wordpiece":
            learner = wordpiece.word_counts(lower_case)
        elif kind == "byte_bpe":
            learner = byte_bpe.word_counts()
        else:
            learner = sentencepiece.Sample(max_lines)
        examples: list[str] = []
        due = started + _SECONDS_BETWEEN_REPORTS
        for document in documents.read(paths, on_bad_utf8, on_long_line, tally):
            lines = document.sentences
            if kind == "byte_bpe":
                blank = add_prefix_space and not document.continues
                learner.add([" " * blank + "".join(lines)])
            else:
                lines = documents.cleaned(lines)
                learner.add(lines)
            examples += lines[: max(0, _EXAMPLE_LINES - len(examples))]
            if time.monotonic() >= due:
                report(_progress(tally, total, time.monotonic() - started))
                due = time.monotonic() + _SECONDS_BETWEEN_REPORTS
        report(_progress(tally, total, time.monotonic() - started))
        if not examples:
            raise UserError(
                f"no text in the input ({len(paths)} files, {total:,} bytes): nothing to learn from"
            )
        if isinstance(learner, WordCounts):
            counts = learner.words()
            report(f"learning from {learner.total:,} words, {len(counts):,} of them different")
            pieces_done = lambda done: report(f"{done:,} pieces")  # noqa: E731
        else:
            report(f"learning from {len(learner.lines):,} of {learner.seen:,} lines")
        made: tokenizers.Tokenizer
        if kind == "wordpiece":
            pieces = wordpiece.learn(counts, vocab_size, coverage, pieces_done)
            made = tokenizers.WordPiece(pieces, lower_case)
        elif kind == "byte_bpe":
            pieces, merges = byte_bpe.learn(counts, vocab_size, pieces_done)
            made = tokenizers.ByteBPE(pieces, merges, add_prefix_space)
        else:
            made = _sentencepiece(learner, kind, vocab_size, coverage, lower_case, normalize_text)
        made.save(temporary)
    for reason, count in sorted(tally.skipped.items()):
        report(f"skipped: {count:,} {reason}")
    report(_summary(made, kind, examples))
    report(f"wrote {output} in {time.monotonic() - started:.1f} s")
    return made


def _sentencepiece(
    sample: sentencepiece.Sample,
    kind: str,
    vocab_size: int,
    coverage: float,
    lower_case: bool,
    normalize_text: bool,
) -> tokenizers.SentencePiece:
    """Learns a model, and the tokenizer around it."""
    rules, lines = TextRules(), sample.lines
    if normalize_text:
        rules = TextRules(
            remove_space=True, replace_quotes=True, keep_accents=False, lower_case=lower_case
        )
        lines = _prepared(lines, rules)
    # Without the rules the model folds case itself.
    folds = lower_case and not normalize_text
    return tokenizers.SentencePiece(
        sentencepiece.learn(lines, kind, vocab_size, coverage, folds),
        split_digit_comma=normalize_text,
        **dataclasses.asdict(rules),
    )


def _prepared(lines: Sequence[str], rules: TextRules) -> list[str]:
    prepared: list[str] = []
    for start in range(0, len(lines), _LINES_AT_ONCE):
        found = rules.apply(tf.constant(lines[start : start + _LINES_AT_ONCE]))
        prepared += [line.decode() for line in found.numpy()]
    return prepared


def _progress(tally: documents.Tally, total: int, seconds: float) -> str:
    megabytes = tally.bytes_read / 1e6
    return (
        f"read {megabytes:.1f} of {total / 1e6:.1f} MB ({100 * tally.bytes_read / total:.0f}%), "
        f"{megabytes / seconds:.1f} MB/s, {tally.documents:,} documents"
    )


def _summary(made: tokenizers.Tokenizer, kind: str, examples: Sequence[str]) -> str:
    ids, _ = made.encode_slices([examples])
    words = sum(len(line.split()) for line in examples)
    return (
        f"{kind}: {made.vocab_size:,} pieces, {len(ids) / max(1, words):.2f} to a word and "
        f"{100 * (ids == made.unk_id).mean() if len(ids) else 0:.3f}% unknown in the first "
        f"{len(examples):,} lines; fingerprint {made.fingerprint[:16]}"
    )
