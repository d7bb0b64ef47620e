"""Counts and progress reports of a pretraining shard folder."""

import collections
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from official.shards import manifest
from official.shards.features import LEXICONS
from official.shards.provenance import LexiconTotals, PretrainingTotals
from official.tokenizers.word_characters import MAX_BYTES
from official.utils.errors import UserError
from tfrecords_tools.pretraining import examples, lexicon
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import documents

SECONDS_BETWEEN_REPORTS = 5
_LINES_SHOWN = 3  # of a lexicon, which never match


class CorpusCounts:
    """Counts documents, tokens and examples.

    Attributes:
      tally: the counts of the text that was read.
      totals: documents, sentences, tokens, examples and cut_tokens.
      lengths: the number of examples of each length in tokens.
      tokens: the number of occurrences of each vocabulary entry in the text.
      matches: for each lexicon, the number of matches of each of its lines.
    """

    def __init__(self, settings: Settings, vocab_size: int):
        self.tally = documents.Tally()
        self.totals: collections.Counter[str] = collections.Counter()
        self.lengths = np.zeros(settings.segments.row_tokens + 1, np.int64)
        self.tokens = np.zeros(vocab_size, np.int64)
        self._lexicons = settings.lexicons
        self.matches = [np.zeros(len(lexicon.read(path)), np.int64) for _, path in self._lexicons]

    def add(self, records: examples.Records) -> None:
        """Adds the counts of a chunk of the text."""
        self.lengths += records.lengths
        self.tokens += records.token_counts
        for total, matches in zip(self.matches, records.matches, strict=True):
            total += matches
        self.totals.update(
            documents=records.documents,
            sentences=records.sentences,
            tokens=records.tokens,
            examples=len(records.examples),
            cut_tokens=records.cut,
            **records.more,
        )
        self.tally.skipped.update(records.left_out)

    def check(self, paths: Sequence[Path], num_shards: int) -> None:
        """Checks that there are enough examples.

        Raises:
          UserError: there are no examples, or fewer than shards.
        """
        if not self.totals["examples"]:
            where = f"in the input ({', '.join(map(str, paths[:3]))})"
            if alone := self.tally.skipped["documents of one sentence"]:
                raise UserError(
                    f"{alone} documents of one sentence and no others {where}: they have no order, "
                    "which segments.relation: sentence_order asks for; give longer documents, a "
                    "sentence a line (--split_sentences does it), or set "
                    "segments.random_negatives: true"
                )
            raise UserError(f"no text {where}: no examples")
        if self.totals["examples"] < num_shards:
            raise UserError(
                f"{self.totals['examples']} examples do not fill {num_shards} shards: name fewer "
                "with --num_shards"
            )
        self.tally.skipped["empty documents"] += self.tally.documents - self.totals["documents"]

    def as_totals(self) -> PretrainingTotals:
        """Returns the counts that the manifest records."""
        skipped = {reason: count for reason, count in self.tally.skipped.items() if count}
        lexicons = {
            name: LexiconTotals(len(n), int((n == 0).sum()), int(n.sum()))
            for (name, _), n in zip(self._lexicons, self.matches, strict=True)
        }
        return PretrainingTotals(**self.totals, skipped=skipped, lexicons=lexicons or None)

    def never_matched(self) -> dict[str, list[str]]:
        """Returns the lines of each lexicon that have no match."""
        return {
            name: [repr(line) for line, n in zip(lexicon.read(path), matches, strict=True) if not n]
            for (name, path), matches in zip(self._lexicons, self.matches, strict=True)
        }


class Progress:
    """Reports the progress and the speed of the work at intervals."""

    def __init__(self, counts: CorpusCounts, size: int, report: Callable[[str], None]):
        self._counts, self._size, self._report = counts, size, report
        self._started = self._reported = time.monotonic()

    def __call__(self) -> None:
        """Reports if the last report was at least `SECONDS_BETWEEN_REPORTS` ago."""
        now = time.monotonic()
        if now - self._reported < SECONDS_BETWEEN_REPORTS:
            return
        self._reported = now
        seconds, done = now - self._started, self._counts.tally.bytes_read
        totals = self._counts.totals
        left = round(seconds * (self._size - done) / max(done, 1))
        self._report(
            f"{totals['documents']:,} documents, {done / seconds / 1e6:.1f} MB/s, "
            f"{totals['examples'] / seconds:,.0f} examples/s, "
            f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
        )


def summary(
    output: Path,
    built: manifest.Manifest,
    counts: CorpusCounts,
    seconds: float,
) -> str:
    """Returns the final report."""
    tally, never = counts.tally, counts.never_matched()
    totals = built.totals
    size = sum(shard.bytes for shard in built.shards)
    tokens = sum(n * count for n, count in enumerate(built.length_histogram))
    skipped = ", ".join(f"{n:,} {reason}" for reason, n in totals.skipped.items())
    lines = [
        f"{output}: {totals.examples:,} examples in {len(built.shards)} shards, {seconds:.1f} s "
        f"({totals.examples / seconds:,.0f} examples/s, "
        f"{tally.bytes_read / seconds / 1e6:.1f} MB/s)",
        f"  {totals.documents:,} documents, {totals.sentences:,} sentences, "
        f"{totals.tokens:,} tokens{_copies(built)}; left out: {skipped or 'nothing'}",
        f"  {tokens:,} tokens in the examples, {size / tokens:.2f} bytes each on disk, "
        f"{1 - tokens / (totals.examples * built.max_length):.1%} of the rows is padding; "
        f"{totals.cut_tokens:,} did not fit and were cut off",
    ]
    for name, counted in (totals.lexicons or {}).items():
        lines.append(
            f"  {LEXICONS[name]}: {counted.matches:,} matches of {counted.lines:,} lines; "
            f"{counted.never_matched:,} lines never match"
            + (f", such as {', '.join(never[name][:_LINES_SHOWN])}" if never[name] else "")
        )
    if totals.cut_words:
        lines.append(
            f"  {totals.cut_words:,} words of over {MAX_BYTES} bytes: their characters were cut"
        )
    if tally.long:
        lines.append(
            f"  {tally.long:,} documents of over {documents.MAX_PART_CHARACTERS:,} characters were "
            "read in parts (is there a blank line between documents?)"
        )
    return "\n".join(lines)


def _copies(built: manifest.Manifest) -> str:
    """Returns the number of copies of each document as text, if there are several."""
    copies = built.config.segments.duplicates
    return f", {copies} copies of each document" if copies > 1 else ""
