"""Cuts documents into pairs of segments that are consecutive, random or swapped.

Each document is read from its first sentence to its last. A chunk of sentences is the fewest
sentences that reach a target length: the maximum length, or sometimes a shorter one, drawn once for
each document. For `sentence_pairs`, a chunk is two sentences. Segment A is a random number of the
first sentences of the chunk, and segment B is the rest. The relation of the two segments is:

* `next_sentence`: half of the time, B is replaced by sentences from a random position of another
  document. The sentences that it replaces go back and begin the next chunk (Devlin et al. 2019,
  section A.2, and `create_pretraining_data` of the release).
* `sentence_order`: half of the time, A and B are swapped (Lan et al. 2019, section 3.1). A chunk
  has at least two sentences. If one sentence is left at the end, the sentence before it is used
  again. A document of one sentence has no order and is left out. With `random_negatives`, such a
  sentence gets a random B instead, which counts as swapped, as in ALBERT's release.
* `none`: B follows A; a chunk of one sentence has no B.

Pairs that are too long lose tokens of the longer segment, each at the front or the end at random.

Shapes: E examples.
"""

import bisect
from collections.abc import Callable

import numpy as np

from official.config import Segments
from tfrecords_tools.pretraining.segments import Examples, TokenizedDocuments, uniforms


def cut(
    text: TokenizedDocuments, settings: Segments, rng: np.random.Generator, between: int = 1
) -> Examples:
    """Cuts every document of a text into examples, once.

    A random B comes from another document of the text. If there is no other document, it comes from
    the same one.

    Args:
      text: the documents.
      settings: settings with the format `pairs` or `sentence_pairs`.
      rng: the generator of every draw.
      between: the number of [SEP] between the segments.

    Returns:
      The examples in the order of the documents, truncated to `settings.max_length` with special
      tokens.
    """
    room = settings.max_length - 2 - between
    cutter = _Cutter(text, settings, room, uniforms(rng))
    for number in range(len(text.documents) - 1):
        cutter.cut(number)
    spans = np.array(cutter.spans, np.int64).reshape(-1, 4)
    truncated, lost = truncate(spans, room, rng)
    runs = truncated.reshape(-1, 2)
    full = runs[:, 1] > runs[:, 0]  # Every A, and every B that is not empty.
    splits = np.concatenate([[0], np.cumsum(full)[1::2]])
    every = np.ones(splits[-1], bool)
    labels = np.array(cutter.labels, np.int64)
    return Examples(runs[full], every, splits, labels, lost, closed=every)


class _Cutter:
    """Cuts documents into pairs, before they are truncated.

    Attributes:
      spans: begin of A, end of A, begin of B, end of B of each pair, in tokens, [4 E].
      labels: the label of each pair, [E].
    """

    def __init__(
        self,
        text: TokenizedDocuments,
        settings: Segments,
        room: int,
        uniform: Callable[[], float],
    ):
        """Starts without pairs.

        Args:
          text: the documents.
          settings: the settings.
          room: the largest number of tokens of a pair, without special tokens.
          uniform: a function that draws a number in [0, 1).
        """
        self.spans: list[int] = []
        self.labels: list[int] = []
        self._offsets = text.sentences.tolist()
        self._bounds = text.documents.tolist()
        self._others = _others(text)
        self._settings = settings
        self._room = room
        self._uniform = uniform
        self._single_sentences = settings.format == "sentence_pairs"
        self._ordered = settings.relation == "sentence_order"
        # The least number of sentences of a chunk.
        self._fewest = 2 if self._ordered and not settings.random_negatives else 1

    def cut(self, number: int) -> None:
        """Appends the pairs of a document, and their labels."""
        # The loop runs once for each example of the corpus, so it reads local variables.
        offsets, uniform, fewest = self._offsets, self._uniform, self._fewest
        ordered, single_sentences = self._ordered, self._single_sentences
        related = self._settings.relation != "none"
        random_b = self._settings.random_next_prob
        start, last = self._bounds[number], self._bounds[number + 1]
        if last - start < fewest:
            return
        target = self._room
        if uniform() < self._settings.short_seq_prob:
            target = 2 + int(uniform() * (self._room - 1))
        while start < last:
            start = min(start, last - fewest)
            if single_sentences:
                end = min(start + 2, last)
            else:
                end = bisect.bisect_left(offsets, offsets[start] + target, start + fewest, last)
            middle = start + 1
            if end > middle:
                middle += int(uniform() * (end - middle))
            a, b, c = offsets[start], offsets[middle], offsets[end]
            if related and (end == start + 1 or (not ordered and uniform() < random_b)):
                self.spans += (a, b, *self._random_segment(number, target - (b - a)))
                self.labels.append(1)
                start = middle
                continue
            swapped = related and ordered and uniform() < 0.5
            self.spans += (b, c, a, b) if swapped else (a, b, b, c)
            self.labels.append(int(swapped))
            start = end

    def _random_segment(self, number: int, wanted: int) -> tuple[int, int]:
        """Returns consecutive sentences of another document that reach `wanted` tokens."""
        offsets, bounds, uniform = self._offsets, self._bounds, self._uniform
        other = number
        if number in self._others:
            others = self._others[number]
            other = others[int(uniform() * len(others))]
        elif len(bounds) > 2:
            other = int(uniform() * (len(bounds) - 2))
            other += other >= number
        first, stop = bounds[other], bounds[other + 1]
        first += int(uniform() * (stop - first))
        begin = offsets[first]
        if self._single_sentences:
            return begin, offsets[first + 1]
        return begin, offsets[bisect.bisect_left(offsets, begin + wanted, first + 1, stop)]


def _others(text: TokenizedDocuments) -> dict[int, list[int]]:
    """Returns {part of a long document: the indices of all other documents, if any}."""
    parts = np.flatnonzero((text.parts > 0) | text.unfinished)
    others = {
        number: np.flatnonzero((text.identities != text.identities[number]).any(axis=1)).tolist()
        for number in parts.tolist()
    }
    return {number: found or [number] for number, found in others.items()}


def needs_other_documents(settings: Segments) -> bool:
    """Returns whether `cut` takes second segments from other documents."""
    return settings.relation == "next_sentence" or settings.random_negatives


def left_out(text: TokenizedDocuments, settings: Segments) -> dict[str, int]:
    """Returns the number of documents that become no example, by reason."""
    if settings.relation != "sentence_order" or settings.random_negatives:
        return {}
    return {"documents of one sentence": int((np.diff(text.documents) == 1).sum())}


def left_out_tokens(text: TokenizedDocuments, settings: Segments) -> int:
    """Returns the number of tokens of the documents that `left_out` counts."""
    if not left_out(text, settings):
        return 0
    alone = np.diff(text.documents) == 1
    return int(np.diff(text.sentences[text.documents])[alone].sum())


def truncate(
    spans: np.ndarray, room: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Shortens both segments to `room` tokens together, at either end at random.

    The result is distributed as if one token at a time were dropped from the longer segment (from B
    if both are equally long). n fair choices of front or end are one binomial draw.

    Args:
      spans: begin of A, end of A, begin of B, end of B; int64 [E, 4].
      room: the largest number of tokens.
      rng: the generator of the draws.

    Returns:
      The shortened spans [E, 4], and the number of tokens that each example lost [E].
    """
    a, b = (spans[:, 1::2] - spans[:, ::2]).T
    over = a + b > room
    kept_a = np.where(over, np.minimum(a, np.maximum(room - b, (room + 1) // 2)), a)
    kept_b = np.where(over, room - kept_a, b)
    dropped = np.stack([a - kept_a, b - kept_b], axis=1)  # [E, 2]
    front = rng.binomial(dropped, 0.5)
    spans = spans.copy()
    spans[:, ::2] += front
    spans[:, 1::2] -= dropped - front
    return spans, dropped.sum(axis=1)
