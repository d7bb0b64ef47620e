"""Documents cut into pairs of segments that follow one another, or do not.

A document is walked through from its first sentence to its last. A chunk is the fewest sentences
that reach a target length (the longest that fits, or now and then a shorter one, drawn once a
document), or, for `sentence_pairs`, two sentences. Segment A is a random number of the chunk's
first sentences, segment B the rest of it. What the pair is to tell:

* `next_sentence`: half of the time B is sentences from a random place of another document instead,
  and then the rest goes back and opens the next chunk (Devlin et al. 2019, section A.2 and the
  release's `create_pretraining_data`).
* `sentence_order`: half of the time A and B change places (Lan et al. 2019, section 3.1). A chunk
  has two sentences at least; for a last one that is left alone the one before it serves again. A
  document of one sentence has no order and is left out. With `random_negatives` instead, such a
  sentence gets a random B, which counts as swapped, as ALBERT's release does it.
* `none`: B follows; a chunk of one sentence has no B.

What does not fit is dropped from the longer segment, each token from its front or its end at
random.

Shapes: E examples.
"""

import bisect
import itertools

import numpy as np

from official.config import Segments
from tfrecords_tools.pretraining.segments import Examples, TokenizedDocuments


def cut(
    piece: TokenizedDocuments, settings: Segments, rng: np.random.Generator, between: int = 1
) -> Examples:
    """Cuts every document of a piece into examples, once.

    A random B comes from another document of the piece, or from those that are lent to it; only
    where there is no other, from the same.

    Args:
      piece: the documents.
      settings: of the format `pairs` or `sentence_pairs`.
      rng: of every draw.
      between: how many [SEP] stand between the segments.

    Returns:
      The examples in the documents' order, truncated to `settings.max_length` with specials.
    """
    room = settings.max_length - 2 - between
    single_sentences = settings.format == "sentence_pairs"
    ordered = settings.relation == "sentence_order"
    fewest = 2 if ordered and not settings.random_negatives else 1  # sentences of a chunk
    offsets = piece.sentences.tolist()
    bounds = piece.documents.tolist()
    # Uniform numbers in [0, 1) without end, drawn in blocks.
    uniform = itertools.chain.from_iterable(iter(lambda: rng.random(4096).tolist(), None)).__next__
    spans: list[tuple[int, int, int, int]] = []
    labels: list[int] = []

    def elsewhere(number: int, wanted: int) -> tuple[int, int]:
        """Sentences from another document, as many as reach the length `wanted`."""
        other = number
        if len(bounds) > 2:
            other = int(uniform() * (len(bounds) - 2))
            other += other >= number
        first, stop = bounds[other], bounds[other + 1]
        first += int(uniform() * (stop - first))
        if single_sentences:
            return offsets[first], offsets[first + 1]
        stop = bisect.bisect_left(offsets, offsets[first] + wanted, first + 1, stop)
        return offsets[first], offsets[stop]

    own = bounds[: len(bounds) - piece.lent]
    for number, (start, last) in enumerate(itertools.pairwise(own)):
        if last - start < fewest:
            continue
        target = room
        if uniform() < settings.short_seq_prob:
            target = 2 + int(uniform() * (room - 1))
        while start < last:
            start = min(start, last - fewest)
            if single_sentences:
                end = min(start + 2, last)
            else:
                end = bisect.bisect_left(offsets, offsets[start] + target, start + fewest, last)
            a_end = start + 1
            if end > a_end:
                a_end += int(uniform() * (end - a_end))
            a, b = (offsets[start], offsets[a_end]), (offsets[a_end], offsets[end])
            if settings.relation == "none":
                label, start = 0, end
            elif end == start + 1 or (not ordered and uniform() < settings.random_next_prob):
                b = elsewhere(number, target - (a[1] - a[0]))
                label, start = 1, a_end
            else:
                label, start = int(ordered and uniform() < 0.5), end
                if label:
                    a, b = b, a
            spans.append((*a, *b))
            labels.append(label)
    truncated, lost = _truncate(np.array(spans, np.int64).reshape(-1, 4), room, rng)
    runs = truncated.reshape(-1, 2)
    full = runs[:, 1] > runs[:, 0]  # all A, and those B that there are
    splits = np.concatenate([[0], np.cumsum(full)[1::2]])
    opens = np.ones(splits[-1], bool)
    return Examples(runs[full], opens, splits, np.array(labels, np.int64), lost)


def borrows(settings: Segments) -> bool:
    """Whether `cut` takes second segments from other documents."""
    return settings.relation == "next_sentence" or settings.random_negatives


def left_out(piece: TokenizedDocuments, settings: Segments) -> dict[str, int]:
    """Counts the documents of which `cut` makes nothing, by reason."""
    if settings.relation != "sentence_order" or settings.random_negatives:
        return {}
    return {"documents of one sentence": int((np.diff(piece.documents) == 1).sum())}


def _truncate(
    spans: np.ndarray, room: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Shortens both segments to `room` tokens together, at either end at random.

    Dropping a token at a time from the longer segment (from B if they are equally long) ends
    where this says; n fair choices of front or end are one binomial draw.

    Args:
      spans: begin of A, end of A, begin of B, end of B; int64 [E, 4].
      room: the most tokens.
      rng: of the draws.

    Returns:
      The spans, [E, 4], and how many tokens each example lost, [E].
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
