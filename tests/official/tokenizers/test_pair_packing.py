"""Packing: the same in a graph and with numpy, and as BERT cuts pairs."""

import types

import numpy as np
import pytest
import tensorflow as tf

from official.tokenizers import arrange, pack, pack_arrays
from official.tokenizers.pair_forms import PairForm
from official.tokenizers.pair_packing import num_specials
from official.utils.errors import UserError

IDS = types.SimpleNamespace(pad_id=0, cls_id=2, sep_id=3, pairs=PairForm())
TWICE = types.SimpleNamespace(**{**vars(IDS), "pairs": PairForm(separators=2)})


def cut_one_by_one(first, second, room):
    """BERT's procedure, word for word."""
    first, second = list(first), list(second)
    while len(first) + len(second) > room:
        (first if len(first) > len(second) else second).pop()
    return first, second


def expected(first, second, max_length, between):
    a, b = cut_one_by_one(first, second, max_length - 2 - between)
    return [2, *a, *[3] * between, *b, 3], [len(a) + 1 + between, len(b) + 1]


def texts(lengths, start):
    return [list(range(start, start + n)) for n in lengths]


@pytest.mark.parametrize("special", [IDS, TWICE], ids=["one", "two"])
@pytest.mark.parametrize("max_length", [6, 9, 12, 40])
def test_pairs_of_all_lengths(max_length, special):
    sizes = [(a, b) for a in range(12) for b in range(12)]
    first = texts([a for a, _ in sizes], 10)
    second = texts([b for _, b in sizes], 50)
    batch = pack(
        [tf.ragged.constant(first, tf.int32), tf.ragged.constant(second, tf.int32)],
        special,
        max_length,
    )
    longest = 0
    for row, (a, b) in enumerate(zip(first, second, strict=True)):
        ids, lengths = expected(a, b, max_length, special.pairs.separators)
        result = pack_arrays([np.array(a, np.int32), np.array(b, np.int32)], special, max_length)
        assert result[0].tolist() == ids and result[1].tolist() == lengths
        assert result[0].dtype == np.int32
        filled = batch["padding_mask"][row].numpy()
        assert batch["token_ids"][row].numpy()[filled].tolist() == ids
        assert not batch["token_ids"][row].numpy()[~filled].any()
        segments = [0] * lengths[0] + [1] * lengths[1]
        assert batch["segment_ids"][row].numpy()[filled].tolist() == segments
        assert not batch["segment_ids"][row].numpy()[~filled].any()
        longest = max(longest, len(ids))
    assert batch["token_ids"].shape == (len(sizes), longest)
    assert batch["padding_mask"].dtype == tf.bool
    assert batch["token_ids"].dtype == batch["segment_ids"].dtype == tf.int32


def test_single_texts_in_a_graph():
    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1)])
    def packed(ids):
        return pack([ids], IDS, 5)

    batch = packed(tf.ragged.constant([[7, 8], [], [7, 8, 9, 10]], tf.int32))
    assert batch["token_ids"].numpy().tolist() == [
        [2, 7, 8, 3, 0],
        [2, 3, 0, 0, 0],
        [2, 7, 8, 9, 3],
    ]
    assert batch["padding_mask"].numpy().sum(1).tolist() == [4, 2, 5]
    assert not batch["segment_ids"].numpy().any()
    ids, lengths = pack_arrays([np.array([7, 8, 9, 10])], IDS, 5)
    assert ids.tolist() == [2, 7, 8, 9, 3] and lengths.tolist() == [5]


@pytest.mark.parametrize("max_length", [6, 9, 40])
def test_the_layout_of_xlnet(max_length):
    sizes = [(a, b) for a in (0, 1, 2, 7) for b in (0, 1, 5, 11)]
    first = texts([a for a, _ in sizes], 10)
    second = texts([b for _, b in sizes], 50)
    ragged = [tf.ragged.constant(part, tf.int32) for part in (first, second)]
    # As in XLNet's release: text by text with its separator, then [CLS], padding in front.
    for parts, (batch, plain) in {
        1: [pack(ragged[:1], IDS, max_length, *layout) for layout in (["cls_last"], [])],
        2: [pack(ragged, IDS, max_length, *layout) for layout in (["cls_last"], [])],
    }.items():
        assert {name: value.shape for name, value in batch.items()} == {
            name: value.shape for name, value in plain.items()
        }
        assert {name: value.dtype for name, value in batch.items()} == {
            name: value.dtype for name, value in plain.items()
        }
        width = batch["token_ids"].shape[1]
        for row, (a, b) in enumerate(zip(first, second, strict=True)):
            if parts == 2:
                a, b = cut_one_by_one(a, b, max_length - 3)
                ids, segments = [*a, 3, *b, 3, 2], [0] * (len(a) + 1) + [1] * (len(b) + 1) + [2]
            else:
                a = a[: max_length - 2]
                ids, segments = [*a, 3, 2], [0] * (len(a) + 1) + [2]
            fill = width - len(ids)
            assert batch["token_ids"][row].numpy().tolist() == [0] * fill + ids
            assert batch["segment_ids"][row].numpy().tolist() == [4] * fill + segments
            assert batch["padding_mask"][row].numpy().tolist() == [False] * fill + [True] * len(ids)


def test_the_layout_of_t5():
    first, second = texts([0, 1, 7], 10), texts([3, 0, 5], 50)
    ragged = [tf.ragged.constant(part, tf.int32) for part in (first, second)]
    one, two = (pack(parts, IDS, 6, "no_cls") for parts in (ragged[:1], ragged))
    assert num_specials(1, IDS, "no_cls") == 1
    for row, (a, b) in enumerate(zip(first, second, strict=True)):
        whole = [*a[:5], 3]
        a, b = cut_one_by_one(a, b, 4)
        for batch, ids, split in ((one, whole, len(whole)), (two, [*a, 3, *b, 3], len(a) + 1)):
            width = batch["token_ids"].shape[1]
            fill, real = [0] * (width - len(ids)), len(ids)
            assert batch["token_ids"][row].numpy().tolist() == [*ids, *fill]
            assert batch["padding_mask"][row].numpy().tolist() == [True] * real + [False] * len(
                fill
            )
            segments = [int(split <= i < real) for i in range(width)]
            assert batch["segment_ids"][row].numpy().tolist() == segments


def test_a_row_of_nothing_but_padding_stays_one():
    """The reader fills batches up with such rows."""
    batch = {
        "token_ids": tf.constant([[2, 7, 3, 9], [9, 9, 9, 9]]),
        "segment_ids": tf.zeros([2, 4], tf.int32),
        "padding_mask": tf.constant([[True, True, True, False], [False] * 4]),
    }
    ids = types.SimpleNamespace(**{**vars(IDS), "pad_id": 9})
    actual = arrange(batch, ids, "cls_last")
    assert actual["token_ids"].numpy().tolist() == [[9, 7, 3, 2], [9, 9, 9, 9]]
    assert actual["segment_ids"].numpy().tolist() == [[4, 0, 0, 2], [4, 4, 4, 4]]
    assert actual["padding_mask"].numpy().tolist() == [[False, True, True, True], [False] * 4]
    assert arrange(batch, ids, "cls_first") is batch
    with pytest.raises(ValueError, match="layout: 'last' is not one of cls_first, cls_last"):
        arrange(batch, ids, "last")


def test_pairs_as_roberta_has_them():
    ids, lengths = pack_arrays([np.array([7, 8]), np.array([9])], TWICE, 9)
    assert ids.tolist() == [2, 7, 8, 3, 3, 9, 3] and lengths.tolist() == [5, 2]
    assert pack_arrays([np.array([7, 8])], TWICE, 9)[0].tolist() == [2, 7, 8, 3]


def test_empty_batch():
    batch = pack([tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int32), [0])], IDS, 8)
    assert batch["token_ids"].shape == batch["padding_mask"].shape == (0, 0)
    nothing = tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int32), [0])
    batch = pack([nothing], IDS, 8, "cls_last")
    assert batch["token_ids"].shape == batch["padding_mask"].shape == (0, 0)


@pytest.mark.parametrize(
    "special, count, max_length, message",
    [
        (
            IDS,
            1,
            2,
            "max_length=2 has no room for a text and 2 special tokens: at least 3 is needed",
        ),
        (IDS, 2, 4, "max_length=4 has no room for two texts and 3 special tokens: at least 5"),
        (TWICE, 2, 5, "max_length=5 has no room for two texts and 4 special tokens: at least 6"),
    ],
)
def test_no_room(special, count, max_length, message):
    with pytest.raises(UserError, match=message):
        pack_arrays([np.array([7])] * count, special, max_length)
    with pytest.raises(UserError, match=message):
        pack([tf.ragged.constant([[7]])] * count, special, max_length)


def test_three_texts():
    with pytest.raises(ValueError, match="expected one or two texts, got 3"):
        pack_arrays([np.array([7])] * 3, IDS, 10)


@pytest.mark.parametrize("special", [IDS, TWICE], ids=["one", "two"])
@pytest.mark.parametrize("max_length", [6, 9, 12, 40])
@pytest.mark.parametrize("cut", ["first", "second"])
def test_one_text_alone_is_cut(max_length, special, cut):
    sizes = [(a, b) for a in range(12) for b in range(12)]
    first = texts([a for a, _ in sizes], 10)
    second = texts([b for _, b in sizes], 50)
    ragged = [tf.ragged.constant(part, tf.int32) for part in (first, second)]
    batch = pack(ragged, special, max_length, cut=cut)
    between = special.pairs.separators
    for row, (a, b) in enumerate(zip(first, second, strict=True)):
        arrays = [np.array(a, np.int32), np.array(b, np.int32)]
        result, lengths = pack_arrays(arrays, special, max_length, cut=cut)
        while len(a) + len(b) > max_length - 2 - between:
            (a or b if cut == "first" else b or a).pop()
        assert result.tolist() == [2, *a, *[3] * between, *b, 3]
        assert lengths.tolist() == [len(a) + 1 + between, len(b) + 1]
        assert (
            batch["token_ids"][row].numpy()[batch["padding_mask"][row]].tolist() == result.tolist()
        )
    with pytest.raises(ValueError, match="cut: 'both' is not one of longer, first, second"):
        pack_arrays(arrays, special, max_length, cut="both")


def test_the_left_is_cut_where_the_tokenizer_says_so():
    """As transformers cuts with `truncation_side` left: as many tokens, but from the left."""
    left = types.SimpleNamespace(**{**vars(IDS), "pairs": PairForm(cut_side="left")})
    texts = [[10, 11, 12, 13, 14], [20, 21, 22]]
    rows = {
        (6, 1): [2, 11, 12, 13, 14, 3],
        (7, 2): [2, 13, 14, 3, 21, 22, 3],
        (20, 2): [2, 10, 11, 12, 13, 14, 3, 20, 21, 22, 3],
    }
    for (length, count), expected in rows.items():
        segments = [np.array(text, np.int32) for text in texts[:count]]
        ids, lengths = pack_arrays(segments, left, length)
        assert ids.tolist() == expected and lengths.sum() == len(expected)
        batch = [tf.RaggedTensor.from_row_lengths(s, [len(s)]) for s in segments]
        packed = pack(batch, left, length)
        assert packed["token_ids"].numpy().tolist() == [expected]
    only = pack_arrays([np.arange(10, 15), np.arange(20, 23)], left, 8, "first")[0]
    assert only.tolist() == [2, 13, 14, 3, 20, 21, 22, 3]
    assert [left.pairs.kept(5, n) for n in (0, 2, 9)] == [slice(5, 5), slice(3, 5), slice(0, 5)]
