"""Tests of tfrecords_tools.pretraining.blocks."""

import dataclasses

import numpy as np
import pytest

from official.config import Segments
from official.utils.errors import UserError
from tests import small
from tests.tfrecords_tools.pretraining.test_segments import make_piece
from tfrecords_tools.pretraining import blocks, segments

SEP = 8


def settings(length=8, **options):
    return Segments(format="blocks", max_length=length, **options)


def rows(piece, how, rng=None):
    """The blocks as lists of ids, and the token after each."""
    text = blocks.separated(piece, SEP)
    examples_cut = blocks.cut(text, how, rng or np.random.default_rng(0))
    ids, splits, (lengths, places) = segments.assemble(text, examples_cut, 7, SEP, between=2)
    actual = [ids[a:b].tolist() for a, b in zip(splits[:-1], splits[1:], strict=True)]
    assert examples_cut.lengths(2).tolist() == lengths.tolist() == [len(row) for row in actual]
    assert places.tolist() == list(range(len(actual) + 1)) and not examples_cut.labels.any()
    return actual, blocks.next_ids(text, examples_cut).tolist()


def test_documents_in_blocks():
    # 100 … 106 / 107 … 111 / 112 / : 16 tokens, of which the last one is only asked for.
    actual, after = rows(make_piece([3, 4], [2, 3], [1]), settings())
    assert actual == [[*range(100, 107), SEP], [*range(107, 112), SEP, 112]]
    assert after == [107, SEP]


@pytest.mark.parametrize("tokens", range(1, 40))
def test_every_token_but_the_first_is_asked_for(tokens):
    for piece in (make_piece([tokens]), make_piece([1], [tokens], [2, 1])):
        actual, after = rows(piece, settings())
        text = blocks.separated(piece, SEP).ids.tolist()
        assert [token for row in actual for token in row] == text[:-1]
        assert after == [*(row[0] for row in actual[1:]), text[-1]]
        assert all(len(row) == 8 for row in actual[:-1]) and 1 <= len(actual[-1]) <= 8
        assert text.count(SEP) == len(piece.documents) - 1


def test_an_unfinished_document_has_no_separator():
    piece = dataclasses.replace(make_piece([3], [4]), unfinished=np.array([False, True]))
    assert blocks.separated(piece, SEP).ids.tolist() == [
        100,
        101,
        102,
        SEP,
        *range(103, 107),
    ]
    assert rows(piece, settings()) == ([[100, 101, 102, SEP, 103, 104, 105]], [106])
    one = dataclasses.replace(make_piece([1]), unfinished=np.array([True]))
    assert rows(one, settings()) == ([], [])
    assert rows(make_piece([0]), settings()) == ([], [])


def test_separators_belong_to_the_sentence_before():
    text = blocks.separated(make_piece([3, 4], [2], [1, 1]), SEP)
    assert text.sentences.tolist() == [0, 3, 8, 11, 12, 14]
    assert text.documents.tolist() == [0, 2, 3, 5]
    assert text.ids[text.sentences[text.documents[1:]] - 1].tolist() == [SEP] * 3


def test_copies_are_cut_in_different_places():
    piece = make_piece([500], [300])
    firsts = []
    for seed in range(200):
        actual, after = rows(piece, settings(duplicates=2), np.random.default_rng(seed))
        text = blocks.separated(piece, SEP).ids.tolist()
        assert [token for row in actual for token in row] == text[:-1]
        assert after == [*(row[0] for row in actual[1:]), SEP]
        assert all(len(row) == 8 for row in actual[1:-1])
        firsts.append(len(actual[0]))
    counts = np.bincount(firsts)[1:]
    assert len(counts) == 8 and (abs(counts - 25) < 4 * np.sqrt(25)).all()


def test_what_does_not_suit_blocks_is_refused():
    for options, message in (
        ({"packing": 2}, "packing: 2 is not for the format blocks, whose rows are full: take 1"),
        ({"relation": "next_sentence"}, "next_sentence is one of two segments, and blocks has one"),
        ({"rows": 4}, "rows: has a meaning for the format stream, not blocks"),
    ):
        with pytest.raises(UserError, match=message):
            small.config(segments={"format": "blocks", "max_length": 16, **options}, objectives=[])
    model_config = small.config(segments={"format": "blocks", "max_length": 16}, objectives=[])
    assert model_config.segments.fields == {"token_ids", "segment_ids", "padding_mask", "next_id"}
