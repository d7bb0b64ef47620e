"""Tests of tfrecords_tools.pretraining.full_sentences."""

import itertools

import numpy as np
import pytest

from official.config import Segments
from tests.tfrecords_tools.pretraining.test_segments import make_piece
from tfrecords_tools.pretraining import full_sentences


def cut(piece, room, crossing, rng=None, **options):
    format = "full_sentences" if crossing else "doc_sentences"
    how = Segments(format=format, max_length=room + 2, **options)
    return full_sentences.cut(piece, how, rng or np.random.default_rng(0))


def rows(result):
    return [result.runs[a:b].tolist() for a, b in itertools.pairwise(result.splits)]


class Scripted:
    def __init__(self, *draws):
        self.random = iter(draws).__next__


def test_full_sentences():
    # The separator between the documents takes a place: 3 + 4 + 1 + 2 = 10; then 2 + 5 + 1 + 1 = 9
    # (3 more do not fit), then 3.
    examples_cut = cut(make_piece([3, 4], [2, 2, 5], [1, 3]), 10, True, short_seq_prob=0.0)
    assert rows(examples_cut) == [[[0, 7], [7, 9]], [[9, 16], [16, 17]], [[17, 20]]]
    assert examples_cut.opens.tolist() == [True, False, True, False, True]
    assert examples_cut.lengths().tolist() == [12, 11, 5]
    # Room for one less: the sentence of two does not follow the separator.
    examples_cut = cut(make_piece([3, 4], [2, 2, 5], [1, 3]), 9, True, short_seq_prob=0.0)
    assert rows(examples_cut) == [[[0, 7]], [[7, 16]], [[16, 20]]]


def test_doc_sentences():
    examples_cut = cut(make_piece([3, 4], [2, 2, 5], [1, 3]), 10, False, short_seq_prob=0.0)
    assert rows(examples_cut) == [[[0, 7]], [[7, 16]], [[16, 20]]]
    examples_cut = cut(make_piece([3, 4], [2, 2, 5], [1, 3]), 8, False, short_seq_prob=0.0)
    assert rows(examples_cut) == [[[0, 7]], [[7, 11]], [[11, 16]], [[16, 20]]]


def test_long_sentences_are_cut_into_parts():
    examples_cut = cut(make_piece([23, 4], [10]), 10, False, short_seq_prob=0.0)
    assert rows(examples_cut) == [[[0, 10]], [[10, 20]], [[20, 27]], [[27, 37]]]
    assert examples_cut.cut.tolist() == [0] * 4


def test_short_targets_are_drawn_for_each_example():
    # 0.05: short, 2 + int(0.5 * 9) = 6 tokens: 3 (and 4 more do not fit); 0.9: 4 + 5; 0.0: short,
    # 2 tokens: one sentence at least.
    examples_cut = cut(make_piece([3, 4, 5, 6]), 10, True, Scripted(0.05, 0.5, 0.9, 0.0, 0.0))
    assert rows(examples_cut) == [[[0, 3]], [[3, 12]], [[12, 18]]]


@pytest.mark.parametrize("crossing", [False, True])
def test_same_as_a_walk_sentence_by_sentence(crossing):
    rng = np.random.default_rng(3)
    documents = [rng.integers(1, 25, rng.integers(1, 12)).tolist() for _ in range(300)]
    room, expected, row, used, place = 30, [], [], 0, 0
    for document in documents:
        if row and not crossing:
            expected.append(row)
            row, used = [], 0
        new = True
        for length in document:
            if row and used + length + (crossing and new) > room:
                expected.append(row)
                row, used = [], 0
            if row and not new:
                row[-1][1] += length
            else:
                used += bool(row)
                row.append([place, place + length])
            used += length
            place += length
            new = False
    expected.append(row)
    examples_cut = cut(make_piece(*documents), room, crossing, short_seq_prob=0.0)
    assert rows(examples_cut) == expected
    assert examples_cut.lengths().max() == room + 2
    assert not examples_cut.labels.any()


def test_every_token_is_used_once_whatever_the_targets():
    rng = np.random.default_rng(5)
    documents = [rng.integers(1, 60, rng.integers(1, 12)).tolist() for _ in range(300)]
    for crossing in (False, True):
        examples_cut = cut(make_piece(*documents), 30, crossing, rng, short_seq_prob=0.4)
        bounds = examples_cut.runs.ravel().tolist()
        assert bounds[0] == 0 and bounds[-1] == sum(map(sum, documents))
        assert bounds[1:-1:2] == bounds[2::2]
        assert examples_cut.lengths().max() <= 32


def test_nothing_to_cut():
    examples_cut = cut(make_piece([0]), 10, True)
    assert len(examples_cut) == 0 and examples_cut.runs.shape == (0, 2)
