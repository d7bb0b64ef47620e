"""Tests of tfrecords_tools.pretraining.pairs."""

import dataclasses
import itertools

import numpy as np
import pytest

from official.config import Segments
from tests import small
from tfrecords_tools.pretraining import pairs


class Scripted:
    """A generator whose draws are written down."""

    def __init__(self, uniforms, front=0):
        self._uniforms = np.concatenate([uniforms, np.full(4096, np.nan)])
        self._front = front

    def random(self, count):
        drawn, self._uniforms = self._uniforms[:count], self._uniforms[count:]
        return drawn

    def binomial(self, n, p):
        assert p == 0.5
        return np.minimum(n, self._front)


def make_piece(*documents):
    """A piece of documents given as sentence lengths; token i of the piece has id 100 + i."""
    lengths = np.array(list(itertools.chain(*documents)), int)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.arange(100, 100 + splits[-1], dtype=np.int32)
    return small.tokenized(ids, splits, [len(document) for document in documents])


def random_piece(rng, documents=40, longest=30):
    return make_piece(
        *(rng.integers(0, longest, rng.integers(0, 25)).tolist() for _ in range(documents))
    )


def settings(room, **options):
    return Segments(max_length=room + 3, **options)


def reference(piece, settings, uniform):
    """The procedure again, sentence by sentence and token by token, from the same draws."""
    room = settings.max_length - 3
    tokens = [range(a, b) for a, b in itertools.pairwise(piece.sentences.tolist())]
    documents = [tokens[a:b] for a, b in itertools.pairwise(piece.documents.tolist())]
    result = []
    for number, document in enumerate(documents):
        target = room
        if uniform() < settings.short_seq_prob:
            target = 2 + int(uniform() * (room - 1))  # 2 … room
        chunk = []
        place = 0
        while place < len(document):
            chunk.append(document[place])
            place += 1
            if sum(map(len, chunk)) < target and place < len(document):
                continue
            a_end = 1
            if len(chunk) > 1:
                a_end = 1 + int(uniform() * (len(chunk) - 1))  # 1 … len(chunk) - 1
            a = list(itertools.chain(*chunk[:a_end]))
            random_next = len(chunk) == 1 or uniform() < settings.random_next_prob
            if random_next:
                others = [d for d in range(len(documents)) if d != number] or [number]
                other = number
                if len(documents) > 1:
                    other = others[int(uniform() * len(others))]
                start = int(uniform() * len(documents[other]))
                b = []
                for sentence in documents[other][start:]:
                    b += sentence
                    if len(b) >= target - len(a):
                        break
                place -= len(chunk) - a_end
            else:
                b = list(itertools.chain(*chunk[a_end:]))
            kept = [len(a), len(b)]
            while sum(kept) > room:
                kept[0 if kept[0] > kept[1] else 1] -= 1
            result.append((a, b, int(random_next), kept))
            chunk = []
    return result


def cut(piece, settings, rng):
    """The examples, and the runs of those that all have two: [E, 4]."""
    rows = pairs.cut(piece, settings, rng)
    assert rows.opens.all()
    assert rows.splits.tolist() == list(range(0, len(rows.runs) + 1, 2))
    return rows, rows.runs.reshape(-1, 4)


def lengths_of(spans):
    return spans[:, 1::2] - spans[:, ::2]


def test_following_sentences():
    # Sentences of 3, 4, 5, 6 tokens against a target of 10: the chunk is the first three.
    # Draws: no short target; A has 1 + int(0.6 * 2) = 2 sentences; 0.9: B follows. Then one
    # sentence is left, whose B is random: other document (the only one), sentence int(0.5 * 2) = 1.
    draws = [0.5, 0.6, 0.9, 0.0, 0.5] + [0.5, 0.0, 0.9]
    result, spans = cut(make_piece([3, 4, 5, 6], [2, 2]), settings(10), Scripted(draws))
    # 7 + 5 tokens: A loses two.
    assert spans[:2].tolist() == [[0, 5, 7, 12], [12, 18, 20, 22]]
    assert result.cut.tolist() == [2, 0, 0]
    # The last document comes whole: 2 + 2 tokens do not reach the target.
    assert spans[2].tolist() == [18, 20, 20, 22]
    assert result.labels.tolist() == [0, 1, 0]


def test_random_sentences_put_the_rest_back():
    # Chunk 3 + 4 + 5; A has 1 sentence; 0.1: B is random, from sentence int(0.9 * 3) = 2 of the
    # other document on (2 tokens: it ends there though 7 were wanted). The sentences of 4 and 5
    # tokens go back: the next chunk is 4 + 5 + 6.
    # A takes 1 + int(0.9 * 2) = 2 of it and 0.5 lets B follow. Then the other document.
    draws = [0.5, 0.0, 0.1, 0.0, 0.9] + [0.9, 0.5] + [0.5, 0.0, 0.9]
    result, spans = cut(
        make_piece([3, 4, 5, 6], [8, 1, 2]), settings(10, random_next_prob=0.2), Scripted(draws)
    )
    assert spans[0].tolist() == [0, 3, 27, 29]
    assert spans[1].tolist() == [3, 8, 12, 17]
    assert result.labels.tolist() == [1, 0, 0]


def test_short_target():
    # 0.05: a short target, 2 + int(0.25 * 9) = 4: one sentence of 4 tokens is a chunk of its own,
    # so its B is random.
    result, spans = cut(
        make_piece([4, 4], [5]), settings(10), Scripted([0.05, 0.25, 0, 0, 0, 0, 0.5, 0, 0.75])
    )
    assert spans.tolist() == [[0, 4, 8, 13], [4, 8, 8, 13], [8, 13, 4, 8]]
    assert result.labels.tolist() == [1, 1, 1]


def test_a_single_document_is_its_own_other():
    result, spans = cut(make_piece([4]), settings(10), Scripted([0.5, 0.0]))
    assert spans.tolist() == [[0, 4, 0, 4]]
    assert result.labels.tolist() == [1]


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        ((3, 7), (3, 7)),
        ((3, 20), (3, 7)),
        ((20, 3), (7, 3)),
        ((20, 20), (5, 5)),
        ((5, 20), (5, 5)),
        ((6, 5), (5, 5)),
        ((1, 100), (1, 9)),
    ],
)
def test_truncation_takes_from_the_longer(lengths, kept):
    spans = np.array([[100, 100 + lengths[0], 300, 300 + lengths[1]]])
    (result,), cut = pairs.truncate(spans, 10, Scripted([], front=1))
    front = [min(1, n - k) for n, k in zip(lengths, kept, strict=True)]
    assert result.tolist() == [
        100 + front[0], 100 + front[0] + kept[0], 300 + front[1], 300 + front[1] + kept[1]
    ]  # fmt: skip
    assert cut == sum(lengths) - sum(kept)


def test_truncation_takes_from_either_end_alike():
    spans = np.tile([0, 60, 100, 160], (20_000, 1))
    result, _ = pairs.truncate(spans, 80, np.random.default_rng(0))
    front = result[:, ::2] - [0, 100]
    # 20 fair draws for each segment: mean 10, variance 5.
    assert np.abs(front.mean(axis=0) - 10).max() < 4 * np.sqrt(5 / 20_000)
    assert np.abs(front.var(axis=0) / 5 - 1).max() < 0.05


@pytest.mark.parametrize("room", [5, 12, 29, 125])
@pytest.mark.parametrize("seed", range(4))
def test_same_as_the_reference(room, seed):
    piece = random_piece(np.random.default_rng(seed))
    how = settings(room, short_seq_prob=0.3, random_next_prob=0.4)
    uniforms = np.random.default_rng(seed).random(100_000)
    result, spans = cut(piece, how, Scripted(uniforms))
    expected = reference(piece, how, iter(uniforms.tolist()).__next__)
    assert result.labels.tolist() == [label for _, _, label, _ in expected]
    assert lengths_of(spans).tolist() == [kept for _, _, _, kept in expected]
    for (a0, a1, b0, b1), (a, b, _, _) in zip(spans.tolist(), expected, strict=True):
        assert set(range(a0, a1)) <= set(a) and set(range(b0, b1)) <= set(b)
    whole = [len(a) + len(b) for a, b, _, _ in expected]
    assert result.cut.tolist() == (np.array(whole) - lengths_of(spans).sum(axis=1)).tolist()


def test_every_sentence_is_used_once():
    """Without truncation the segments A and following B tile the documents."""
    piece = random_piece(np.random.default_rng(5), documents=200)
    result, spans = cut(piece, settings(10_000), np.random.default_rng(1))
    used = np.zeros(len(piece.ids), int)
    for (a0, a1, b0, b1), label in zip(spans, result.labels, strict=True):
        used[a0:a1] += 1
        if not label:
            assert b0 == a1
            used[b0:b1] += 1
    assert (used == 1).all()


def test_random_next_is_from_another_document():
    piece = random_piece(np.random.default_rng(6), documents=200)
    result, spans = cut(piece, settings(60), np.random.default_rng(1))
    sentence_of = np.repeat(np.arange(len(piece.sentences) - 1), np.diff(piece.sentences))
    document_of = np.repeat(np.arange(len(piece.documents) - 1), np.diff(piece.documents))
    document = document_of[sentence_of]
    same = document[spans[:, 0]] == document[spans[:, 2]]
    assert (same == (result.labels == 0)).all()
    counts = np.bincount(document[spans[result.labels == 1, 2]])
    assert (counts > 0).mean() > 0.9  # all documents serve, not a few


@pytest.mark.parametrize("format", ["pairs", "sentence_pairs"])
def test_parts_of_one_document_give_one_another_no_random_segments(format):
    piece = make_piece([5] * 200, [3] * 9, [4] * 5, [5] * 200)
    identities = np.array([[0, 2, -1], [0, 5, 0], [1, 5, 0], [0, 2, -1]])
    piece = dataclasses.replace(piece, identities=identities, parts=np.array([1, 0, 0, 4]))
    result, spans = cut(piece, settings(30, format=format), np.random.default_rng(1))
    own = lambda places: (places < 1000) | (places >= 1047)  # noqa: E731
    random = (result.labels == 1) & own(spans[:, 0])
    assert random.sum() > 20 and not own(spans[random, 2]).any()
    assert own(spans[(result.labels == 0) & own(spans[:, 0]), 2]).all()
    # All sentences of the others serve, and they get random ones of the long document.
    assert len(np.unique(spans[random, 2])) > 10
    alone = dataclasses.replace(piece, identities=np.tile(identities[:1], (4, 1)))
    result, _ = cut(alone, settings(30, format=format), np.random.default_rng(1))
    assert 0 < result.labels.sum() < len(result)


def test_histogram_of_lengths():
    rng = np.random.default_rng(2)
    piece = make_piece(*(rng.integers(1, 40, 50).tolist() for _ in range(200)))
    uniforms = rng.random(200_000)
    result, spans = cut(piece, settings(125), Scripted(uniforms))
    expected = reference(piece, settings(125), iter(uniforms.tolist()).__next__)
    lengths = lengths_of(spans)
    assert lengths.min() >= 1 and lengths.sum(axis=1).max() == 125
    histogram = np.bincount([sum(kept) for _, _, _, kept in expected])
    assert np.bincount(lengths.sum(axis=1)).tolist() == histogram.tolist()
    # Whatever the draws, the shares are alike.
    other = lengths_of(cut(piece, settings(125), rng)[1]).sum(axis=1)
    shares = np.add.reduceat(histogram, range(0, 126, 21)) / histogram.sum()
    others = np.add.reduceat(np.bincount(other), range(0, 126, 21)) / len(other)
    assert np.abs(shares - others).max() < 0.03


def test_half_of_the_pairs_are_random():
    """Of chunks of two sentences and more: a chunk of one always has a random B."""
    piece = make_piece(*([9] * 6 for _ in range(20_000)))
    result, spans = cut(piece, settings(18, short_seq_prob=0.0), np.random.default_rng(3))
    # A document of six equal sentences is chunks of two until one sentence is left or none: each
    # chunk of two is random with probability 1/2.
    last = np.isin(spans[:, 0] % 54, 45)
    pairs = result.labels[~last]
    assert abs(pairs.mean() - 0.5) < 3 * np.sqrt(0.25 / len(pairs))
    assert result.labels[last].all()


def test_sentence_pairs():
    # Documents of sentences 3 4 5 and 2 2. Of each pair one draw is not used (the first sentence is
    # A). 0.9: the next sentence is B. Then one is left: B is a sentence of the other document,
    # int(0.5 * 2) = 1. Then 0.1: B is random, sentence int(0.4 * 3) = 1, and the last one stays.
    draws = [0.5, 0.0, 0.9, 0.0, 0.5] + [0.5, 0.0, 0.1, 0.0, 0.4] + [0.0, 0.0]
    result, spans = cut(
        make_piece([3, 4, 5], [2, 2]), settings(50, format="sentence_pairs"), Scripted(draws)
    )
    assert spans.tolist() == [[0, 3, 3, 7], [7, 12, 14, 16], [12, 14, 3, 7], [14, 16, 0, 3]]
    assert result.labels.tolist() == [0, 1, 1, 1]


def test_long_sentences_of_a_pair_are_cut():
    how = settings(10, format="sentence_pairs", random_next_prob=0.0)
    result, spans = cut(make_piece([20, 20]), how, Scripted([0.5, 0.0, 0.9], front=1))
    assert spans.tolist() == [[1, 6, 21, 26]] and result.cut.tolist() == [30]


def test_sentence_order():
    # Chunks 3 + 4 + 5 and, as one sentence would be left alone, 5 + 6 again. A has
    # 1 + int(0.6 * 2) = 2 sentences of the first; 0.4: swapped; 0.5: not.
    how = settings(12, relation="sentence_order")
    piece = make_piece([3, 4, 5, 6], [9], [2, 2])
    result, spans = cut(piece, how, Scripted([0.5, 0.6, 0.4, 0.0, 0.5] + [0.5, 0.0, 0.0]))
    assert spans.tolist() == [[7, 12, 0, 7], [7, 12, 12, 18], [29, 31, 27, 29]]
    assert result.labels.tolist() == [1, 0, 1]
    assert result.cut.tolist() == [0, 0, 0]
    assert pairs.left_out(piece, how) == {"documents of one sentence": 1}
    assert pairs.left_out(piece, settings(12)) == {}


def test_sentence_order_by_sentences():
    how = settings(50, relation="sentence_order", format="sentence_pairs")
    draws = [0.9, 0.0, 0.9, 0.0, 0.1] + [0.9, 0.0, 0.2]
    result, spans = cut(make_piece([3, 4, 5], [1], [2, 2]), how, Scripted(draws))
    assert spans.tolist() == [[0, 3, 3, 7], [7, 12, 3, 7], [15, 17, 13, 15]]
    assert result.labels.tolist() == [0, 1, 1]


def test_random_negatives():
    """A sentence alone gets a random B, and counts as swapped."""
    how = settings(10, relation="sentence_order", random_negatives=True)
    piece = make_piece([10, 4, 4], [3])
    # 10 tokens are a chunk alone: B from the other document. 4 + 4: 0.7, in order. Then [3]: B is
    # sentence int(0.4 * 3) = 1 of the other, and the next one, as 7 tokens were wanted.
    draws = [0.5, 0.0, 0.0] + [0.0, 0.7] + [0.5, 0.0, 0.4]
    result, spans = cut(piece, how, Scripted(draws))
    assert result.labels.tolist() == [1, 0, 1]
    assert spans.tolist() == [[0, 7, 18, 21], [10, 14, 14, 18], [18, 21, 10, 17]]
    assert pairs.left_out(piece, how) == {}


@pytest.mark.parametrize("format", ["pairs", "sentence_pairs"])
def test_half_of_the_orders_are_swapped(format):
    rng = np.random.default_rng(4)
    piece = random_piece(rng, documents=2000)
    how = settings(60, relation="sentence_order", format=format)
    result, spans = cut(piece, how, rng)
    (a0, a1, b0, b1), swapped = spans.T, result.labels == 1
    assert abs(swapped.mean() - 0.5) < 3 * np.sqrt(0.25 / len(swapped))
    # Apart from what was cut off, what comes first in the text is A, or B where they are swapped.
    assert (np.where(swapped, b1 <= a0, a1 <= b0)).all()
    document = np.repeat(
        np.arange(len(piece.documents) - 1), np.diff(piece.sentences[piece.documents])
    )
    assert (document[a0] == document[b0]).all()
    # All documents but those of one sentence serve.
    alone = np.diff(piece.documents) == 1
    assert pairs.left_out(piece, how) == {"documents of one sentence": alone.sum()}
    assert set(document[a0]) == set(np.flatnonzero(~alone))


def test_no_relation():
    """B follows; a sentence alone has no B."""
    rows = pairs.cut(
        make_piece([3, 4, 5, 11], [2, 2]), settings(10, relation="none"),
        Scripted([0.5, 0.6, 0.5, 0.0]),
    )  # fmt: skip
    assert rows.runs.tolist() == [[0, 5], [7, 12], [12, 22], [23, 25], [25, 27]]
    assert rows.splits.tolist() == [0, 2, 3, 5]
    assert rows.opens.tolist() == [True] * 5
    assert rows.labels.tolist() == [0, 0, 0] and rows.cut.tolist() == [2, 1, 0]


def test_two_separators_leave_less_room():
    rows = pairs.cut(
        make_piece([8, 9]), settings(10, random_next_prob=0.0), np.random.default_rng(0), between=2
    )
    assert rows.runs[:, 1].sum() - rows.runs[:, 0].sum() == 9
    assert rows.lengths(between=2).tolist() == [13]


def test_nothing_to_cut():
    result, spans = cut(make_piece([0], [0, 0]), settings(10), np.random.default_rng(0))
    assert spans.shape == (0, 4) and len(result) == 0
    result, _ = cut(make_piece([4], [5]), settings(10, relation="sentence_order"), Scripted([]))
    assert len(result) == 0
