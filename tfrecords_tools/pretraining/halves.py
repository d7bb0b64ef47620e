"""Cuts documents into texts of two segments, split near the middle, as ELECTRA's release does.

Each document is read from its first sentence to its last. A text is the fewest sentences that reach
a target length: the maximum length or, for `short_seq_prob` of the texts, a random shorter length.
The first sentence always goes to the first segment. A sentence that keeps the first segment shorter
than half of the target goes to it. The sentence that reaches the half goes to either segment with
equal probability, and all others go to the second. A later sentence that still fits into the first
segment goes there, so the sentences may be out of order. With probability `single_prob`, the whole
text is the first segment. Segments that are too long are cut at their end
(`build_pretraining_dataset.ExampleBuilder`, Clark et al. 2020).

Shapes: R runs.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Iterable

import numpy as np

from official.config import Segments
from tfrecords_tools.pretraining.segments import Examples, TokenizedDocuments, uniforms

_SHORTEST = 5  # The least random target length, in tokens.

# Begin and end, in tokens.
Run = tuple[int, int]


def cut(
    text: TokenizedDocuments, settings: Segments, rng: np.random.Generator, between: int = 1
) -> Examples:
    """Cuts every document of a text into examples, once.

    Args:
      text: the documents.
      settings: settings with the format `halves`.
      rng: the generator of every draw.
      between: the number of [SEP] between the segments.

    Returns:
      The examples in the order of the documents, truncated to `settings.max_length` with special
      tokens.
    """
    length = settings.max_length
    offsets = text.sentences.tolist()
    uniform = uniforms(rng)
    runs: list[Run] = []
    opens: list[bool] = []
    splits = [0]
    lost: list[int] = []
    for start, last in itertools.pairwise(text.documents.tolist()):
        while start < last:
            target = length
            if uniform() < settings.short_seq_prob:
                target = _SHORTEST + int(uniform() * (length - _SHORTEST + 1))
            end = bisect.bisect_left(offsets, offsets[start] + target, start + 1, last)
            half = math.inf
            if uniform() >= settings.single_prob:
                half = (target - 2 - between) // 2
            sentences = itertools.pairwise(offsets[start : end + 1])
            first, second = _split(sentences, half, uniform)
            first = _shortened(first, length - 2)
            kept = _size(first)
            second = _shortened(second, length - kept - 2 - between)
            for segment in filter(None, (first, second)):
                opens += [True] + [False] * (len(segment) - 1)
                runs += segment
            splits.append(len(runs))
            lost.append(offsets[end] - offsets[start] - kept - _size(second))
            start = end
    return _examples(runs, opens, splits, lost)


def _split(
    sentences: Iterable[Run], half: float, uniform: Callable[[], float]
) -> tuple[list[Run], list[Run]]:
    """Returns the sentences of the first and of the second segment."""
    first: list[Run] = []
    second: list[Run] = []
    size = 0  # The number of tokens of the first segment.
    for sentence in sentences:
        longer = size + sentence[1] - sentence[0]
        if not first or longer < half or (not second and size < half and uniform() < 0.5):
            first.append(sentence)
            size = longer
        else:
            second.append(sentence)
    return first, second


def _examples(runs: list[Run], opens: list[bool], splits: list[int], lost: list[int]) -> Examples:
    opening = np.array(opens, bool)
    # A [SEP] follows the last run of a segment: before the next segment opens, and at the end.
    closed = np.append(opening[1:], True)[: len(opening)]
    return Examples(
        np.array(runs, np.int64).reshape(-1, 2),
        opening,
        np.array(splits, np.int64),
        np.zeros(len(lost), np.int64),
        np.array(lost, np.int64),
        closed,
    )


def _shortened(sentences: list[Run], room: int) -> list[Run]:
    """Returns the first `room` tokens as runs; sentences that follow one another are one run."""
    runs: list[Run] = []
    for begin, end in sentences:
        end = min(end, begin + room)
        if begin >= end:
            break
        room -= end - begin
        if runs and runs[-1][1] == begin:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((begin, end))
    return runs


def _size(runs: list[Run]) -> int:
    return sum(end - begin for begin, end in runs)
