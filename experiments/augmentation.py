"""Copies of labeled texts with other words, to distill a task (Jiao et al. 2020, algorithm 1).

For each word of a text there are candidates: for a word of one token, the words that a masked LM
finds most probable in its place; for one of several tokens, those with the nearest vectors. In each
copy, each word is replaced with some probability by one of its candidates.

Shapes: B texts, K candidates.
"""

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from experiments.word_neighbors import WordNeighbors, is_word
from official.serving.generation.mask_filler import MaskFiller
from official.tasks.text_rows import Rows
from official.tokenizers import text_words
from official.tokenizers.pair_packing import num_specials
from official.utils import atomic, host_seeding
from official.utils.errors import UserError
from official.utils.progress import Progress, Report
from official.utils.text_lines import BadRows

CHUNK = 256  # rows of a file that are augmented together


@dataclasses.dataclass(frozen=True)
class Settings:
    """How copies are made; the defaults are those of the paper.

    Attributes:
      copies: the number of copies of each text. Copies that equal the text or each other are left
        out.
      candidates: K, the number of candidates of each word.
      probability: the probability that a word is replaced.
      seed: the seed of the draws.
    """

    copies: int = 20
    candidates: int = 15
    probability: float = 0.4
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class _Word:
    """A word that may be replaced: the position of its characters, and its candidates."""

    start: int
    end: int
    candidates: Sequence[str]


class Augmenter:
    """Makes copies of texts with other words.

    Args:
      filler: the masked LM.
      neighbors: the vectors of words; None = words of several tokens stay.
      settings: how copies are made.
      kept: words that are never replaced, in lower case.
      batch_size: the number of texts in a batch of the masked LM.

    Attributes:
      replaceable: the number of words so far that have candidates, of one token and of several.
      others: the number of words of letters so far that have none.
    """

    def __init__(
        self,
        filler: MaskFiller,
        neighbors: WordNeighbors | None = None,
        settings: Settings = Settings(),  # noqa: B008
        kept: Collection[str] = (),
        batch_size: int = 64,
    ):
        self._filler, self._neighbors, self._settings = filler, neighbors, settings
        self._kept, self._batch_size = frozenset(kept), batch_size
        self.replaceable, self.others = [0, 0], 0
        source = filler.source
        tokenizer, layout = source.tokenizer, source.config.encoder.layout
        self._room = source.max_length - num_specials(1, tokenizer, layout)
        spelled = [text.decode(errors="replace") for text in tokenizer.spellings]
        skipped = {*tokenizer.special_ids, *tokenizer.added, *tokenizer.sentinel_ids}
        # The tokens that are words: their text begins with a blank, which continuations lack.
        self._words = {
            i: text.strip()
            for i, text in enumerate(spelled)
            if i not in skipped and text.startswith(" ") and is_word(text.strip())
        }
        if not self._words:
            raise UserError("--model_dir: its vocabulary has no token that is a word of letters")

    def copies(self, texts: Sequence[str], numbers: Sequence[tuple[int, int]]) -> list[list[str]]:
        """Returns the different copies of each text.

        Args:
          texts: the texts.
          numbers: two numbers of each text. The draws are a function of them and of the seed.
        """
        words = self._candidates(texts)
        return [self._copies_of(*each) for each in zip(texts, words, numbers, strict=True)]

    def _copies_of(self, text: str, words: Sequence[_Word], numbers: tuple[int, int]) -> list[str]:
        settings, found = self._settings, {text: None}
        rng = host_seeding.numpy_rng(settings.seed, *numbers)
        for chances, picks in rng.random((settings.copies, 2, len(words))):
            parts, end = [], 0
            for word, chance, pick in zip(words, chances, picks, strict=True):
                if chance < settings.probability:
                    new = word.candidates[int(pick * len(word.candidates))]
                    parts += [text[end : word.start], _cased(new, text[word.start : word.end])]
                    end = word.end
            found["".join([*parts, text[end:]])] = None
        return list(found)[1:]

    def _candidates(self, texts: Sequence[str]) -> list[list[_Word]]:
        """Returns the words of each text that have candidates."""
        found: list[list[_Word]] = [[] for _ in texts]
        encoded = self._filler.source.tokenizer.encode_with_offsets(texts)
        masked: list[tuple[int, int, int, int]] = []  # text, token, start and end of a word
        for row, (text, spans) in enumerate(zip(texts, text_words.spans(texts), strict=True)):
            _, starts, ends = encoded[row]
            for start, end in spans:
                word = text[start:end]
                if not is_word(word) or word.lower() in self._kept:
                    continue
                tokens = np.flatnonzero((starts < end) & (ends > start))
                if len(tokens) == 1 and tokens[0] < self._room:
                    masked.append((row, int(tokens[0]), start, end))
                    continue
                near: Sequence[str] = ()
                if len(tokens) > 1 and self._neighbors is not None:
                    near = self._neighbors.nearest(word, self._settings.candidates)
                if near:
                    self.replaceable[1] += 1
                    found[row].append(_Word(start, end, near))
                else:
                    self.others += 1
        self.replaceable[0] += len(masked)
        places = [(encoded[row][0], token) for row, token, _, _ in masked]
        for (row, _, start, end), words in zip(masked, self._filled(places), strict=True):
            found[row].append(_Word(start, end, words))
        return [sorted(words, key=lambda word: word.start) for words in found]

    def _filled(self, places: Sequence[tuple[np.ndarray, int]]) -> list[list[str]]:
        """Returns the most probable words at a token of each text: the ids and the token."""
        allowed = tf.constant(list(self._words), tf.int32)
        count = tf.constant(self._settings.candidates)
        order = sorted(range(len(places)), key=lambda i: len(places[i][0]))
        results: list[list[str]] = [[] for _ in places]
        for begin in range(0, len(order), self._batch_size):
            rows = order[begin : begin + self._batch_size]
            values = np.concatenate([places[row][0] for row in rows]).astype(np.int32)
            lengths = [len(places[row][0]) for row in rows]
            tokens = [places[row][1] for row in rows]
            values[np.cumsum([0, *lengths[:-1]]) + tokens] = self._filler.mask_id
            ragged = tf.RaggedTensor.from_row_lengths(values, lengths)
            ids, _ = self._filler.best_of_tokens(ragged, count, allowed, alone=False)
            for row, best in zip(rows, ids.numpy(), strict=True):
                # Sorted by id, because rounding, which depends on the batch, may swap two
                # candidates.
                results[row] = [self._words[token] for token in sorted(best.tolist())]
        return results


def _cased(word: str, old: str) -> str:
    """Returns a word in lower case with the capitals of the word that it replaces."""
    if word != word.lower() or old == old.lower():
        return word
    return word.upper() if len(old) > 1 and old == old.upper() else word[:1].upper() + word[1:]


def write(
    augmenter: Augmenter,
    rows: Rows,
    output: str | os.PathLike,
    *,
    skip_bad_rows: bool = False,
    report: Report | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Writes each row of a file, and after it its copies with one changed text.

    With several columns, the copies with other words in the first come first. The file appears when
    it is complete.

    Args:
      augmenter: makes the copies.
      rows: the rows.
      output: the file, in the format of the rows.
      skip_bad_rows: whether rows that cannot be used are left out.
      report: is called with lines of progress.
      say: is called with the summary.

    Raises:
      UserError: there are no rows, or a row is bad.
    """
    count = sum(1 for _ in rows.read(BadRows(skip_bad_rows)))  # refused before anything is computed
    bad = BadRows(skip_bad_rows)
    header = rows.header and rows.format == ".tsv"
    progress = Progress(count - header, report, unit="rows")
    read = written = 0
    with atomic.file(output) as stream:
        keys: list[Any] | None = None
        for chunk in _chunks(rows.read(bad)):
            if keys is None:
                keys = rows.keys(chunk[0][1])
                if header:
                    rows.write(chunk.pop(0)[1], stream)
            texts = [row[key] for _, row in chunk for key in keys]
            numbers = [(line, i) for line, _ in chunk for i in range(len(keys))]
            copies = iter(augmenter.copies(texts, numbers))
            for _, row in chunk:
                rows.write(row, stream)
                for key in keys:
                    for text in next(copies):
                        changed = row.copy()
                        changed[key] = text
                        rows.write(changed, stream)
                        written += 1
            read += len(chunk)
            progress(len(chunk))
        if not read:
            raise UserError(f"{rows.path} has no rows")
    one, several = augmenter.replaceable
    left_out = f"; left out: {bad}" if bad.counts else ""
    say(
        f"{output}: {read:,} rows and {written:,} copies. Words with candidates: {one:,} of one "
        f"token and {several:,} of several; without: {augmenter.others:,}{left_out}"
    )


def _chunks(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Yields the rows in lists of `CHUNK`; the first has one more, for the header."""
    chunk: list[Any] = []
    size = CHUNK + 1
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk, size = [], CHUNK
    if chunk:
        yield chunk
