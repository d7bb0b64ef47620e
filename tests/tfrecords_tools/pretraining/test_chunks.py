"""Tests of tfrecords_tools.pretraining.chunks."""

import itertools

import numpy as np
import pytest

from tfrecords_tools.pretraining import chunks
from tfrecords_tools.text import documents


def document(number, *lengths, continues=False):
    """A document whose sentences say which one it is and where they stand in it."""
    sentences = [f"{number}:{i}".ljust(length) for i, length in enumerate(lengths)]
    return documents.Document(sentences, None, 1, sum(lengths), continues)


def cut(*sizes, size=10):
    actual = list(chunks.cut([document(i, n) for i, n in enumerate(sizes)], size))
    assert [piece.number for piece in actual] == list(range(len(actual)))
    assert not any(piece.continues or piece.unfinished or piece.others for piece in actual)
    return [[len(d[0]) for d in piece.documents] for piece in actual]


def test_pieces_of_short_documents():
    assert cut() == []
    assert cut(3) == [[3]]
    assert cut(30) == [[30]]
    assert cut(4, 4, 4, 4, 4, 4) == [[4, 4, 4], [4, 4, 4]]
    assert cut(30, 4, 30, 4) == [[30, 4], [30, 4]]  # two documents at least
    assert cut(5, 5, 30) == [[5, 5, 30]]  # the last one cannot stand alone
    assert cut(5, 5, 3, 3) == [[5, 5], [3, 3]]
    assert cut(6, 6, 3) == [[6, 6, 3]]
    assert cut(6, 5, 4, 4, size=18) == [[6, 5, 4, 4]]  # too little for a piece
    assert cut(5, 5, 4, 4) == [[5, 5], [4, 4]]


def parts(number, *sizes):
    return [document(number, size, continues=i > 0) for i, size in enumerate(sizes)]


def numbers(texts):
    return [{int(sentence.partition(":")[0]) for sentence in text} for text in texts]


def test_a_document_of_several_pieces():
    read = [
        *parts(0, 8, 6),
        *parts(1, 12, 12, 12),
        *parts(2, 5),
        *parts(3, 5, 20, 20),
        *parts(4, 3),
    ]
    actual = list(chunks.cut(read, 10, again=lambda: read))
    shape = [
        (numbers(piece.documents), piece.continues, piece.unfinished, numbers(piece.others))
        for piece in actual
    ]
    assert shape == [
        ([{0}, {1}], False, True, []),  # [14, 12]
        ([{1}], True, True, [{0}]),
        ([{1}, {2}], True, False, []),  # [12, 5]
        ([{3}], False, True, [{2}]),  # [25]
        ([{3}, {4}], True, False, []),  # [20, 3]
    ]
    # The parts of a document are one text, whichever piece has them.
    assert [len(text) for text in actual[0].documents] == [2, 1]


def test_the_first_document_is_longer_than_a_piece():
    """What others there are is looked for behind it."""
    read = [*parts(0, 12, 12, 12), *parts(1, 3), *parts(2, 3)]
    actual = list(chunks.cut(read, 10, again=lambda: read))
    assert [numbers(piece.documents) for piece in actual] == [[{0}], [{0}], [{0}, {1}, {2}]]
    assert [numbers(piece.others) for piece in actual] == [[{1}], [{1}], []]
    alone = list(chunks.cut(read[:3], 10, again=lambda: read[:3]))
    assert [(numbers(p.documents), list(p.others)) for p in alone] == [([{0}], [])] * 3


def test_the_end_of_a_long_document_joins_the_piece_before():
    read = [*parts(0, 3), *parts(1, 12, 12, 2)]
    actual = list(chunks.cut(read, 10))
    assert [(len(p.documents), p.continues, p.unfinished) for p in actual] == [
        (2, False, True), (1, True, False)
    ]  # fmt: skip
    assert [len(sentence) for sentence in actual[1].documents[0]] == [12, 3]
    assert numbers(actual[1].others) == [{0}]


def test_others_are_the_last_sentences_and_few():
    long = document(0, *[10] * 50)
    read = [long, document(1, 5), *parts(2, 100, 100, 100)]
    actual = list(chunks.cut(read, 100))
    assert [numbers(piece.documents) for piece in actual] == [[{0}, {1}], [{2}], [{2}], [{2}]]
    for piece in actual[1:]:
        assert [[len(s) for s in text] for text in piece.others] == [[10, 10], [5]]
        assert list(piece.others[0]) == long.sentences[-2:]


@pytest.mark.parametrize("seed", range(3))
def test_every_part_comes_once_and_pieces_are_bounded(seed):
    rng = np.random.default_rng(seed)
    read = []
    for number in range(60):
        count = int(rng.integers(1, 12)) if rng.random() < 0.2 else 1
        sizes = [*rng.integers(100, 130, count - 1), int(rng.integers(3, 100))]
        read += parts(number, *map(int, sizes))
    actual = list(chunks.cut(iter(read), 100, again=lambda: read))
    texts = []
    for piece in actual:
        assert piece.continues == bool(texts and texts[-1][1])
        for i, text in enumerate(piece.documents):
            goes_on = piece.unfinished and i == len(piece.documents) - 1
            if piece.continues and i == 0:
                texts[-1] = (texts[-1][0] + list(text), goes_on)
            else:
                texts.append((list(text), goes_on))
        size = sum(len(sentence) for text in piece.documents for sentence in text)
        assert size < 2 * (100 + 130)
        own, others = set().union(*numbers(piece.documents)), numbers(piece.others)
        if len(piece.documents) == 1:
            assert others and not own & set().union(*others)
        else:
            assert not others and len(own) > 1
    expected = [
        list(itertools.chain(*(part.sentences for part in group)))
        for _, group in itertools.groupby(read, lambda part: part.sentences[0].partition(":")[0])
    ]
    assert [text for text, _ in texts] == expected and not texts[-1][1]
