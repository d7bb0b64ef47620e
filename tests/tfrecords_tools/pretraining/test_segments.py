"""Tests of tfrecords_tools.pretraining.segments."""

import itertools

import numpy as np
import pytest

from tests import small
from tfrecords_tools.pretraining import segments
from tfrecords_tools.pretraining.segments import Examples


def make_piece(*documents):
    """A piece of documents given as sentence lengths; token i of the piece has id 100 + i."""
    lengths = np.array(list(itertools.chain(*documents)), int)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.arange(100, 100 + splits[-1], dtype=np.int32)
    return small.tokenized(ids, splits, [len(document) for document in documents])


def make_examples(*examples):
    """Examples given as lists of (begin, end, whether a segment opens); label = number of runs."""
    counts = [len(example) for example in examples]
    runs = np.array([run[:2] for example in examples for run in example])
    opens = np.array([bool(run[2]) for example in examples for run in example])
    splits, labels = np.concatenate([[0], np.cumsum(counts)]), np.array(counts)
    return Examples(runs, opens, splits, labels, labels, closed=np.ones(len(runs), bool))


def test_piece_leaves_out_what_is_empty():
    piece = make_piece([0, 2, 0], [], [0], [3, 1])
    assert piece.sentences.tolist() == [0, 2, 5, 6]
    assert piece.documents.tolist() == [0, 1, 3]
    piece = make_piece([0], [0, 0])
    assert piece.documents.tolist() == [0]


EXAMPLES = make_examples(
    [(0, 3, 1), (3, 5, 1)], [(6, 9, 1)], [(1, 2, 1), (4, 6, 0), (0, 1, 0)], [(6, 9, 1), (0, 1, 1)]
)
TEXTS = {
    1: [
        [7, 100, 101, 102, 8, 103, 104, 8],
        [7, 106, 107, 108, 8],
        [7, 101, 8, 104, 105, 8, 100, 8],
        [7, 106, 107, 108, 8, 100, 8],
    ],
    2: [
        [7, 100, 101, 102, 8, 8, 103, 104, 8],
        [7, 106, 107, 108, 8],
        [7, 101, 8, 104, 105, 8, 100, 8],
        [7, 106, 107, 108, 8, 8, 100, 8],
    ],
}


@pytest.mark.parametrize("between", [1, 2])
def test_assemble(between):
    ids, row_splits, (lengths, splits) = segments.assemble(
        make_piece([3, 2], [4]), EXAMPLES, 7, 8, between
    )
    assert ids.dtype == np.int32
    rows = [ids[a:b].tolist() for a, b in itertools.pairwise(row_splits)]
    assert rows == TEXTS[between]
    actual = [lengths[a:b].tolist() for a, b in itertools.pairwise(splits)]
    assert actual == [[4 + between, 3], [5], [8], [4 + between, 2]]
    assert EXAMPLES.lengths(between).tolist() == [len(row) for row in rows]


def test_taken():
    index, splits = segments.select_rows(np.array([0, 2, 2, 5]), np.array([2, 0, 1, 2]))
    assert index.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert splits.tolist() == [0, 3, 5, 5, 8]


def test_concatenate_and_select():
    both = segments.concatenate([EXAMPLES, EXAMPLES[np.array([2])]])
    assert len(both) == 5
    picked = both[np.array([4, 0])]
    assert picked.runs.tolist() == [[1, 2], [4, 6], [0, 1], [0, 3], [3, 5]]
    assert picked.opens.tolist() == [True, False, False, True, True]
    assert picked.splits.tolist() == [0, 3, 5]
    assert picked.labels.tolist() == picked.cut.tolist() == [3, 2]
