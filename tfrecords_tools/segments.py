"""Documents as token ids, cut into sentence pairs with next-sentence labels: BERT's procedure.

A document is walked through from its first sentence to its last. A chunk is the fewest sentences
that reach a target length (the longest that fits, or now and then a shorter one, drawn once a
document). Segment A is a random number of the chunk's first sentences; segment B is the rest of it,
or, half of the time, sentences from a random place of another document, and then the rest goes back
and opens the next chunk. What does not fit is dropped from the longer segment, each token from its
front or its end at random. (Devlin et al. 2019, section A.2 and `create_pretraining_data`.)

A segment is always one run of consecutive tokens, so all of this is done on offsets: only the
finished examples touch the ids.

Shapes: K tokens of the piece, S sentences, D documents, E examples, L tokens of all examples.
"""

import bisect
import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from official.config import Segments

SPECIALS = 3  # [CLS] A [SEP] B [SEP]


@dataclasses.dataclass(frozen=True)
class Piece:
    """Some documents as token ids; no sentence and no document is empty.

    Attributes:
      ids: int32 [K].
      sentences: where each sentence begins in `ids`, and the end; int64 [S + 1].
      documents: where each document begins among the sentences, and the end; int64 [D + 1].
    """

    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray

    @classmethod
    def of(cls, ids: np.ndarray, row_splits: np.ndarray, counts: Sequence[int]) -> "Piece":
        """Makes a piece of tokenized sentences, leaving out what came to no token.

        Args:
          ids: int32 [K].
          row_splits: where each tokenized sentence begins in `ids`, and the end.
          counts: how many of these sentences each document has.
        """
        full = np.diff(row_splits) > 0
        before = np.concatenate([[0], np.cumsum(full)])  # full sentences before each sentence
        documents = before[np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])]
        kept = np.concatenate([[True], np.diff(documents) > 0])
        starts = np.concatenate([row_splits[:-1][full], row_splits[-1:]])
        return cls(ids, starts.astype(np.int64), documents[kept])


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Examples as runs of a piece's tokens.

    Attributes:
      spans: begin of A, end of A, begin of B, end of B in `Piece.ids`; int64 [E, 4].
      labels: 1 where B is random, 0 where it follows A; int64 [E].
      cut: tokens that did not fit, int64 [E].
    """

    spans: np.ndarray
    labels: np.ndarray
    cut: np.ndarray

    def __getitem__(self, rows: np.ndarray | slice) -> "Pairs":
        """Returns the examples `rows`, in that order."""
        return Pairs(self.spans[rows], self.labels[rows], self.cut[rows])

    def lengths(self) -> np.ndarray:
        """Returns the tokens of each segment without specials, [E, 2]."""
        return self.spans[:, 1::2] - self.spans[:, ::2]


def pairs(piece: Piece, settings: Segments, rng: np.random.Generator) -> Pairs:
    """Cuts every document of a piece into examples, once.

    Every sentence goes into one segment A or following B (and may serve as random B besides). A
    random B comes from another document of the piece; only where the piece has no other, from the
    same.

    Returns:
      The examples in the documents' order, truncated to `settings.max_length` with specials.
    """
    room = settings.max_length - SPECIALS
    offsets = piece.sentences.tolist()
    bounds = piece.documents.tolist()
    count = len(bounds) - 1
    # Uniform numbers in [0, 1) without end, drawn in blocks.
    uniform = itertools.chain.from_iterable(iter(lambda: rng.random(4096).tolist(), None)).__next__
    spans: list[tuple[int, int, int, int]] = []
    labels: list[int] = []
    for number, (start, last) in enumerate(itertools.pairwise(bounds)):
        target = room
        if uniform() < settings.short_seq_prob:
            target = 2 + int(uniform() * (room - 1))
        while start < last:
            end = bisect.bisect_left(offsets, offsets[start] + target, start + 1, last)
            a_end = start + 1
            if end > a_end:
                a_end += int(uniform() * (end - a_end))
            if end == start + 1 or uniform() < settings.random_next_prob:
                other = number
                if count > 1:
                    other = int(uniform() * (count - 1))
                    other += other >= number
                first, stop = bounds[other], bounds[other + 1]
                first += int(uniform() * (stop - first))
                goal = offsets[first] + target - (offsets[a_end] - offsets[start])
                stop = bisect.bisect_left(offsets, goal, first + 1, stop)
                spans.append((offsets[start], offsets[a_end], offsets[first], offsets[stop]))
                labels.append(1)
                start = a_end
            else:
                spans.append((offsets[start], offsets[a_end], offsets[a_end], offsets[end]))
                labels.append(0)
                start = end
    truncated, cut = _truncate(np.array(spans, np.int64).reshape(-1, 4), room, rng)
    return Pairs(truncated, np.array(labels, np.int64), cut)


def concatenate(parts: Sequence[Pairs]) -> Pairs:
    """Returns the examples of all `parts`, in order."""
    return Pairs(
        np.concatenate([part.spans for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.cut for part in parts]),
    )


def assemble(
    piece: Piece, examples: Pairs, cls_id: int, sep_id: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Puts the tokens of examples one after the other, with their specials.

    Returns:
      ids int32 [L]; where each example begins, and the end, int64 [E + 1]; tokens of each
      segment, [CLS] and [SEP] counted with it, int64 [E, 2].
    """
    lengths = examples.lengths()  # [E, 2]
    with_specials = lengths + np.array([2, 1])
    ends = np.cumsum(with_specials.ravel())  # of each segment in the result
    row_splits = np.concatenate([[0], ends[1::2]])
    special = np.zeros(row_splits[-1], bool)
    special[ends - 1] = True
    special[row_splits[:-1]] = True
    runs = lengths.ravel()
    shift = examples.spans[:, ::2].ravel() - (np.cumsum(runs) - runs)
    ids = np.full(special.shape, sep_id, np.int32)
    ids[~special] = piece.ids[np.repeat(shift, runs) + np.arange(runs.sum())]
    ids[row_splits[:-1]] = cls_id
    return ids, row_splits, with_specials


def _truncate(
    spans: np.ndarray, room: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Shortens both segments to `room` tokens together, at either end at random.

    Dropping a token at a time from the longer segment (from B if they are equally long) ends
    where this says; n fair choices of front or end are one binomial draw.

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
