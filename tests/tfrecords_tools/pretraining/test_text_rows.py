"""Tests of tfrecords_tools.pretraining.text_rows."""

import dataclasses

import numpy as np
import pytest

from official import config as configs
from official.config import Segments
from official.data import ShardDataset
from official.utils.errors import UserError
from tests import small, systems
from tests.tfrecords_tools.pretraining.test_segments import make_piece
from tfrecords_tools.pretraining import segments, text_rows
from tfrecords_tools.pretraining.settings import Settings

SEP = 8


def block_settings(length=8, **options):
    return Segments(format="blocks", max_length=length, **options)


def blocks(piece, how, rng=None):
    """The blocks as lists of ids, and the token after each."""
    text = text_rows.separated(piece, SEP)
    examples_cut = text_rows.cut_blocks(text, how, rng or np.random.default_rng(0))
    ids, splits, (lengths, places) = segments.assemble(text, examples_cut, 7, SEP, between=2)
    actual = [ids[a:b].tolist() for a, b in zip(splits[:-1], splits[1:], strict=True)]
    assert examples_cut.lengths(2).tolist() == lengths.tolist() == [len(row) for row in actual]
    assert places.tolist() == list(range(len(actual) + 1)) and not examples_cut.labels.any()
    return actual, text_rows.next_ids(text, examples_cut).tolist()


def test_documents_in_blocks():
    # 100 … 106 / 107 … 111 / 112 / : 16 tokens, of which the last one is only asked for.
    actual, after = blocks(make_piece([3, 4], [2, 3], [1]), block_settings())
    assert actual == [[*range(100, 107), SEP], [*range(107, 112), SEP, 112]]
    assert after == [107, SEP]


@pytest.mark.parametrize("tokens", range(1, 40))
def test_every_token_but_the_first_is_asked_for(tokens):
    for piece in (make_piece([tokens]), make_piece([1], [tokens], [2, 1])):
        actual, after = blocks(piece, block_settings())
        text = text_rows.separated(piece, SEP).ids.tolist()
        assert [token for row in actual for token in row] == text[:-1]
        assert after == [*(row[0] for row in actual[1:]), text[-1]]
        assert all(len(row) == 8 for row in actual[:-1]) and 1 <= len(actual[-1]) <= 8
        assert text.count(SEP) == len(piece.documents) - 1


def test_an_unfinished_document_has_no_separator():
    piece = dataclasses.replace(make_piece([3], [4]), unfinished=np.array([False, True]))
    assert text_rows.separated(piece, SEP).ids.tolist() == [
        100,
        101,
        102,
        SEP,
        *range(103, 107),
    ]
    assert blocks(piece, block_settings()) == ([[100, 101, 102, SEP, 103, 104, 105]], [106])
    one = dataclasses.replace(make_piece([1]), unfinished=np.array([True]))
    assert blocks(one, block_settings()) == ([], [])
    assert blocks(make_piece([0]), block_settings()) == ([], [])


def test_separators_belong_to_the_sentence_before():
    text = text_rows.separated(make_piece([3, 4], [2], [1, 1]), SEP)
    assert text.sentences.tolist() == [0, 3, 8, 11, 12, 14]
    assert text.documents.tolist() == [0, 2, 3, 5]
    assert text.ids[text.sentences[text.documents[1:]] - 1].tolist() == [SEP] * 3


def test_copies_are_cut_in_different_places():
    piece = make_piece([500], [300])
    firsts = []
    for seed in range(200):
        actual, after = blocks(piece, block_settings(duplicates=2), np.random.default_rng(seed))
        text = text_rows.separated(piece, SEP).ids.tolist()
        assert [token for row in actual for token in row] == text[:-1]
        assert after == [*(row[0] for row in actual[1:]), SEP]
        assert all(len(row) == 8 for row in actual[1:-1])
        firsts.append(len(actual[0]))
    counts = np.bincount(firsts)[1:]
    assert len(counts) == 8 and (abs(counts - 25) < 4 * np.sqrt(25)).all()


def test_what_does_not_suit_blocks_is_refused():
    for options, message in (
        (
            {"packing": 2},
            "packing: 2 is not supported for the format blocks, whose rows are full: take 1",
        ),
        (
            {"relation": "next_sentence"},
            "next_sentence needs two segments, and the format blocks has",
        ),
        ({"rows": 4}, "rows: not supported for the format blocks, only for stream"),
    ):
        with pytest.raises(UserError, match=message):
            small.config(segments={"format": "blocks", "max_length": 16, **options}, objectives=[])
    model_config = small.config(segments={"format": "blocks", "max_length": 16}, objectives=[])
    assert model_config.segments.fields == {"token_ids", "segment_ids", "padding_mask", "next_id"}


def rows(piece, format_, rng=None, **options):
    how = Segments(format=format_, max_length=8, **options)
    examples_cut = text_rows.cut(piece, how, rng or np.random.default_rng(0))
    ids, splits, _ = segments.assemble(piece, examples_cut, 7, 8)
    return [ids[a:b].tolist() for a, b in zip(splits[:-1], splits[1:], strict=True)], examples_cut


def test_joined_documents_have_nothing_between_them():
    actual, cut = rows(make_piece([3, 4], [2, 3], [1, 5]), "joined")
    assert actual == [[*range(100, 108)], [*range(108, 116)], [116, 117]]
    assert not cut.cut.any()


def test_documents_are_cut_by_themselves():
    actual, cut = rows(make_piece([3, 7], [2, 3], [1], [9]), "documents")
    # Of 10, 5, 1 and 9 tokens; single tokens are left out.
    assert actual == [[*range(100, 108)], [108, 109], [*range(110, 115)], [*range(116, 124)]]
    assert cut.cut.sum() == 2


@pytest.mark.parametrize("tokens", range(1, 30))
def test_no_token_is_lost(tokens):
    for format_ in ("joined", "documents"):
        actual, cut = rows(make_piece([tokens]), format_)
        kept = [token for row in actual for token in row]
        assert kept == list(range(100, 100 + len(kept)))
        assert len(kept) + cut.cut.sum() == tokens or tokens == 1
        assert all(2 <= len(row) <= 8 for row in actual)


def test_copies_are_cut_at_other_positions():
    piece = make_piece([100])
    firsts = {
        len(rows(piece, "joined", np.random.default_rng(seed), duplicates=9)[0][0])
        for seed in range(60)
    }
    assert firsts == set(range(2, 9))


def test_rows_have_the_raw_tokens_that_the_corruption_needs(tmp_path):
    config = small.config(**systems.T5)
    folder = small.shard_folder(tmp_path / "shards", config)
    source = ShardDataset(folder, config)
    raw = config.corruption.row_length(32)
    assert raw == 34 and source.manifest.max_length == raw
    batch = next(iter(source.dataset(4)))
    shapes = {name: tuple(batch[name].shape) for name in ("token_ids", "target_ids")}
    assert shapes == {"token_ids": (4, 32), "target_ids": (4, 8)}
    assert source.tokenizer.sentinel_ids == tuple(range(132, 124, -1))
    other = small.config(**{**systems.T5, "segments": {"format": "joined", "max_length": 40}})
    with pytest.raises(UserError, match="has rows of 34 raw tokens, and corruption.type: sentinel"):
        ShardDataset(folder, other)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(UserError, match="format: joined has rows of plain text, which need a"):
        small.config(**{**systems.T5, "corruption": None})
    with pytest.raises(
        UserError, match="type: sentinels takes rows of plain text, but segments.fo"
    ):
        small.config(**{**systems.T5, "segments": {"format": "pairs", "max_length": 32}})
    with pytest.raises(
        UserError, match="format: joined: token_masks needs rows with special token"
    ):
        small.config(**{**systems.T5, "corruption": {"type": "token_masks", "max_predictions": 5}})
    with pytest.raises(
        UserError, match="packing: 2 is not supported for the format joined, whose rows"
    ):
        small.config(
            **{**systems.T5, "segments": {"format": "joined", "max_length": 32, "packing": 2}}
        )
    with pytest.raises(UserError, match="bucket_lengths: all rows of segments.format: joined have"):
        small.config(**systems.T5, recipe__bucket_lengths=[16, 32])


def test_a_vocabulary_without_sentinels_is_refused(tmp_path):
    plain = small.config(**{**systems.T5, "corruption": {"type": "denoising", "method": "lm"}})
    folder = small.shard_folder(tmp_path / "shards", plain)
    config = small.config(**{**systems.T5, "corruption": {"type": "denoising"}})
    with pytest.raises(
        UserError, match="has 0 sentinels .*: build the vocabulary with --sentinels=1"
    ):
        ShardDataset(folder, config)


def test_settings_without_a_text_to_text_corruption(tmp_path):
    small.tokenizer_folder(tmp_path / "tokenizer")
    config = configs.Config(name="x", segments=Segments(format="joined", max_length=32))
    with pytest.raises(UserError, match="add corruption.type: sentinels or denoising"):
        Settings.from_config(config, tmp_path / "tokenizer")
