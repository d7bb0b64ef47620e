"""Counts of the text and examples of a pretraining shard folder, and reports of these counts."""

import collections
import dataclasses
import json
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from official.shards import manifest
from official.shards.features import LEXICONS
from official.shards.manifest import LexiconTotals, PretrainingTotals
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.pretraining import lexicon
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import dropped

_LINES_SHOWN = 3  # the number of lines of a lexicon without a match that a report shows
_MUCH = 0.2  # a share of lost tokens that is not due to chance
# "Words" of more tokens are usually runs without blanks: in English, German and Finnish text they
# have up to 1.6% of the tokens, in Thai and Khmer text with WordPiece 39% to 76%.
LONG_WORD = 10
_OFTEN = 0.02  # the share of the tokens from which on a report mentions long words


@dataclasses.dataclass
class Counts:
    """Counts of a part of a corpus.

    Attributes:
      totals: the counts that are fields of `PretrainingTotals`.
      skipped: {reason: the number of lines or documents that were left out}.
      read: the number of documents that were read.
      long: the number of documents that were so long that they were read in parts.
      lengths: the number of rows with n tokens, at index n.
      tokens: the number of occurrences of each vocabulary entry in the text, int64 [V].
      words: if masks hide words: the number of words, the number of words of more than `LONG_WORD`
        tokens, and the number of tokens in these, int64 [3].
      matches: for each lexicon, the number of matches of each of its lines in the text.
    """

    totals: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    skipped: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    read: int = 0
    long: int = 0
    lengths: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((), np.int64))
    tokens: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((), np.int64))
    words: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3, np.int64))
    matches: list[np.ndarray] = dataclasses.field(default_factory=list)

    def add(self, other: "Counts") -> None:
        """Adds the counts of another part."""
        self.totals.update(other.totals)
        self.skipped.update(other.skipped)
        self.read += other.read
        self.long += other.long
        self.lengths = self.lengths + other.lengths
        self.tokens = self.tokens + other.tokens
        self.words = self.words + other.words
        if other.matches:
            pairs = zip(self.matches, other.matches, strict=True)
            self.matches = [a + b for a, b in pairs] if self.matches else other.matches

    def save(self, stream: IO[bytes]) -> None:
        """Writes the counts as an npz file."""
        numbers = {
            "totals": self.totals, "skipped": self.skipped, "read": self.read, "long": self.long,
        }  # fmt: skip
        arrays: dict[str, Any] = {
            "numbers": np.array(json.dumps(numbers)),
            "lengths": self.lengths,
            "tokens": self.tokens,
            "words": self.words,
            **{f"matches_{i}": array for i, array in enumerate(self.matches)},
        }
        np.savez(stream, **arrays)

    @classmethod
    def load(cls, stream: IO[bytes]) -> "Counts":
        """Reads what `save` wrote."""
        with np.load(stream, allow_pickle=False) as arrays:
            numbers = json.loads(str(arrays["numbers"]))
            return cls(
                collections.Counter(numbers["totals"]),
                collections.Counter(numbers["skipped"]),
                numbers["read"],
                numbers["long"],
                arrays["lengths"],
                arrays["tokens"],
                arrays["words"],
                [arrays[f"matches_{i}"] for i in range(len(arrays.files) - 4)],
            )

    def progress(self, seconds: float) -> str:
        """Describes the counts after some seconds of work, for a line of progress."""
        return (
            f", {self.totals['documents']:,} documents, "
            f"{self.totals['examples'] / seconds:,.0f} examples/s"
        )

    def check(self, paths: Sequence[AnyPath], split_sentences: bool) -> None:
        """Checks that there are examples.

        Args:
          paths: the files of the corpus.
          split_sentences: whether paragraphs were split into sentences.

        Raises:
          UserError: there are no examples.
        """
        if self.totals["examples"]:
            return
        where = f"in the input ({', '.join(map(str, paths[:3]))})"
        if alone := self.skipped["documents of one sentence"]:
            lines = (
                "a sentence a line (--split_sentences finds no stop in these)"
                if split_sentences
                else "a sentence a line (--split_sentences does it)"
            )
            raise UserError(
                f"{alone} documents of one sentence and no longer ones {where}: one sentence has "
                "no order, which segments.relation: sentence_order needs; give longer documents, "
                f"{lines}, or set segments.random_negatives: true"
            )
        raise UserError(f"no text {where}: no examples{dropped.note(self.skipped)}")

    def as_totals(self, settings: Settings) -> PretrainingTotals:
        """Returns the counts that the manifest records."""
        return PretrainingTotals(
            **self.totals, skipped=self.all_skipped(), lexicons=self.lexicons(settings) or None
        )

    def all_skipped(self) -> dict[str, int]:
        """Returns `skipped` with the empty documents."""
        skipped = self.skipped.copy()
        skipped["empty documents"] += self.read - self.totals["documents"]
        return {reason: count for reason, count in sorted(skipped.items()) if count}

    def lexicons(self, settings: Settings) -> dict[str, LexiconTotals]:
        """Returns the counts of each lexicon, by the feature that it gives."""
        return {
            name: LexiconTotals(len(n), int((n == 0).sum()), int(n.sum()))
            for (name, _), n in zip(settings.lexicons, self.matches, strict=True)
        }

    @property
    def stored_tokens(self) -> int:
        """The number of tokens of all rows, with special tokens."""
        return sum(n * count for n, count in enumerate(self.lengths.tolist()))

    @property
    def lost_share(self) -> float:
        """The share of the tokens that are in no example."""
        lost = self.totals["cut_tokens"] + self.totals["left_out_tokens"]
        return lost / (lost + self.stored_tokens)


def summary(
    output: AnyPath,
    shards: Sequence[manifest.Shard],
    counts: Counts,
    settings: Settings,
    size: int,
    seconds: float,
) -> str:
    """Returns the final report.

    Args:
      output: the shard folder.
      shards: its shards.
      counts: the counts of the whole corpus.
      settings: the settings.
      size: the number of bytes of the corpus.
      seconds: the time that the build took.
    """
    totals, tokens = counts.totals, counts.stored_tokens
    stored = sum(shard.bytes for shard in shards)
    skipped = ", ".join(f"{n:,} {reason}" for reason, n in counts.all_skipped().items())
    copies = settings.segments.duplicates
    of_copies = f", {copies} copies of each document" if copies > 1 else ""
    alone = totals["left_out_tokens"]
    left_out = f", {alone:,} belong to documents that were left out" if alone else ""
    padding = 1 - tokens / (totals["examples"] * settings.segments.row_tokens)
    lines = [
        f"{output}: {totals['examples']:,} examples in {len(shards)} shards, {seconds:.1f} s "
        f"({totals['examples'] / seconds:,.0f} examples/s, {size / seconds / 1e6:.1f} MB/s)",
        f"  {totals['documents']:,} documents, {totals['sentences']:,} sentences, "
        f"{totals['tokens']:,} tokens{of_copies}; left out: {skipped or 'nothing'}",
        f"  {tokens:,} tokens in the examples, {stored / tokens:.2f} bytes each on disk, "
        f"{padding:.1%} of the rows is padding; "
        f"{totals['cut_tokens']:,} did not fit and were cut off{left_out}; "
        f"{counts.lost_share:.1%} of the tokens are in no example",
    ]
    never = _never_matched(counts, settings)
    for name, counted in counts.lexicons(settings).items():
        lines.append(
            f"  {LEXICONS[name]}: {counted.matches:,} matches of {counted.lines:,} lines; "
            f"{counted.never_matched:,} lines never match"
            + (f", such as {', '.join(never[name][:_LINES_SHOWN])}" if never[name] else "")
        )
    if totals["cut_words"]:
        from official.tokenizers.word_characters import MAX_BYTES  # imports TensorFlow

        lines.append(
            f"  {totals['cut_words']:,} words of over {MAX_BYTES} bytes: their characters were cut"
        )
    if totals["at_blanks"]:
        lines.append(
            f"  {totals['at_blanks']:,} sentences end at a blank: their script has no full stops, "
            "so text is cut into pieces of some length"
        )
    if settings.words and counts.words[2] > _OFTEN * totals["tokens"]:
        number, long, inside = counts.words.tolist()
        lines.append(
            f"  words of more than {LONG_WORD} tokens: {long / number:.1%} of all, with "
            f"{inside / totals['tokens']:.1%} of the tokens; corruption.unit: {settings.words[0]} "
            "hides whole words: separate words by blanks first, set corruption.unit: token, or "
            "take a vocabulary of --type=unigram, whose pieces are words in scripts without blanks"
        )
    if counts.long:
        lines.append(
            f"  {counts.long:,} documents are longer than a chunk of the text and were read in "
            "parts (is there a blank line between documents?)"
        )
    return "\n".join(lines)


def advice(counts: Counts, settings: Settings) -> str:
    """Returns advice if many tokens are in no example; "" if few are."""
    share, segments = counts.lost_share, settings.segments
    if share <= _MUCH:
        return ""
    what = f"{share:.0%} of the tokens are in no example"
    if segments.format == "stream":
        return (
            f"{what}: the text is too short for {segments.rows} rows of {segments.max_length} "
            "tokens: lower segments.rows or max_length, or use more text"
        )
    if settings.split_sentences:
        return (
            f"{what}: sentences are too long for segments.max_length: {segments.max_length}: raise "
            "it, or set another segments.format"
        )
    return (
        f"{what}: lines are too long for segments.max_length: {segments.max_length}. If a line is "
        "a paragraph, --split_sentences splits it into sentences"
    )


def alone(counts: Counts, settings: Settings) -> str:
    """Returns a warning if random second segments come from the same document; "" otherwise."""
    segments = settings.segments
    random = segments.relation == "next_sentence" and segments.random_next_prob > 0
    if counts.read != 1 or not (random or segments.random_negatives):
        return ""
    return (
        "the corpus is one document, so segments that should come from another document come from "
        "another place in it, which is a worse training signal: put a blank line between "
        "documents, use more documents, or set segments.relation: none"
    )


def _never_matched(counts: Counts, settings: Settings) -> dict[str, list[str]]:
    """Returns the lines of each lexicon that have no match."""
    return {
        name: [
            repr(line) for line, n in zip(lexicon.read_lines(path), matches, strict=True) if not n
        ]
        for (name, path), matches in zip(settings.lexicons, counts.matches, strict=True)
    }
