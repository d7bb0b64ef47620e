"""Texts in two segments, cut near the half, or now and then in one: as ELECTRA's release does it.

A document is walked through from its first sentence to its last. A text is the fewest sentences
that reach a target length in tokens: the longest sequence, or, for `short_seq_prob` of the texts, a
random shorter length. A sentence goes to the first segment if that stays shorter than half of the
target with it, and the first sentence always. The sentence that reaches the half goes to either
segment with equal chances, all others go to the second (a later one that still fits into the first
segment goes there, so the segments may be out of order). With `single_prob` the whole text is the
first segment. What does not fit is cut off the end of each segment
(`build_pretraining_dataset.ExampleBuilder`, Clark et al. 2020).

Shapes: R runs.
"""

import bisect
import itertools
import math

import numpy as np

from official.config import Segments
from tfrecords_tools.pretraining.segments import Examples, TokenizedDocuments

_SHORTEST = 5  # tokens of a random target


def cut(
    piece: TokenizedDocuments, settings: Segments, rng: np.random.Generator, between: int = 1
) -> Examples:
    """Cuts every document of a piece into examples, once.

    Args:
      piece: the documents.
      settings: of the format `halves`.
      rng: of every draw.
      between: how many [SEP] stand between the segments.

    Returns:
      The examples in the documents' order, truncated to `settings.max_length` with specials.
    """
    length = settings.max_length
    offsets = piece.sentences.tolist()
    # Uniform numbers in [0, 1) without end, drawn in blocks.
    uniform = itertools.chain.from_iterable(iter(lambda: rng.random(4096).tolist(), None)).__next__
    runs: list[tuple[int, int]] = []
    opens: list[bool] = []
    splits = [0]
    lost: list[int] = []
    for start, last in itertools.pairwise(piece.documents.tolist()):
        while start < last:
            target = length
            if uniform() < settings.short_seq_prob:
                target = _SHORTEST + int(uniform() * (length - _SHORTEST + 1))
            end = bisect.bisect_left(offsets, offsets[start] + target, start + 1, last)
            half = math.inf
            if uniform() >= settings.single_prob:
                half = (target - 2 - between) // 2
            first: list[tuple[int, int]] = []
            second: list[tuple[int, int]] = []
            taken = 0  # tokens of the first segment
            for sentence in itertools.pairwise(offsets[start : end + 1]):
                size = sentence[1] - sentence[0]
                if (
                    not first
                    or taken + size < half
                    or (not second and taken < half and uniform() < 0.5)
                ):
                    first.append(sentence)
                    taken += size
                else:
                    second.append(sentence)
            first = _shortened(first, length - 2)
            kept = _size(first)
            second = _shortened(second, length - kept - 2 - between)
            for segment in filter(None, (first, second)):
                opens += [True] + [False] * (len(segment) - 1)
                runs += segment
            splits.append(len(runs))
            lost.append(offsets[end] - offsets[start] - kept - _size(second))
            start = end
    made = np.array(opens, bool)
    # A [SEP] stands where a segment ends: before the next one opens, and at the end.
    closed = np.append(made[1:], True)[: len(made)]
    return Examples(
        np.array(runs, np.int64).reshape(-1, 2),
        made,
        np.array(splits, np.int64),
        np.zeros(len(lost), np.int64),
        np.array(lost, np.int64),
        closed,
    )


def _shortened(sentences: list[tuple[int, int]], room: int) -> list[tuple[int, int]]:
    """Returns the first `room` tokens as runs: sentences that follow one another are one."""
    runs: list[tuple[int, int]] = []
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


def _size(runs: list[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in runs)
