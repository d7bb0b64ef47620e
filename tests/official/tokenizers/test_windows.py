"""Windows of long contexts: what is in them, who owns a token, both layouts."""

import types

import numpy as np
import pytest
import tensorflow as tf

from official.tokenizers import windows
from official.tokenizers.pair_forms import PairForm
from official.utils.errors import UserError

ONE = types.SimpleNamespace(pad_id=0, cls_id=1, sep_id=2, pairs=PairForm())
TWO = types.SimpleNamespace(pad_id=0, cls_id=1, sep_id=2, pairs=PairForm(separators=2))


def packed(tokenizer, queries, contexts, *sizes):
    result = windows.pack_windows(
        tf.ragged.constant(queries, dtype=tf.int32, ragged_rank=1),
        tf.ragged.constant(contexts, dtype=tf.int32, ragged_rank=1),
        tokenizer,
        *sizes,
    )
    return {name: np.array(v) if name != "token_ids" else v.to_list() for name, v in result.items()}


def test_two_windows_by_hand():
    # Of 9 tokens 4 are the question's and the special ones: 5 of the context fit.
    rows = packed(ONE, [[11], [12, 13, 14]], [[21, 22, 23, 24, 25, 26, 27], []], 9, 3, 2)
    assert rows["token_ids"] == [
        [1, 11, 2, 21, 22, 23, 24, 25, 2],
        [1, 11, 2, 24, 25, 26, 27, 2],
        [1, 12, 13, 2, 2],
    ]
    assert rows["segment_lengths"].tolist() == [[3, 6], [3, 5], [4, 1]]
    assert rows["row"].tolist() == [0, 0, 1]
    assert rows["context_start"].tolist() == [3, 3, 4]
    assert rows["context_length"].tolist() == [5, 4, 0]
    assert rows["window_start"].tolist() == [0, 3, 0]
    # Token 3 has none behind it... three before it in the first window, none in the second.
    assert rows["own_start"].tolist() == [0, 4, 0]
    assert rows["own_end"].tolist() == [4, 7, 0]


def test_separators_of_pairs():
    rows = packed(TWO, [[11]], [[21, 22]], 9, 3, 2)
    assert rows["token_ids"] == [[1, 11, 2, 2, 21, 22, 2]]
    assert rows["segment_lengths"].tolist() == [[4, 3]]
    assert rows["context_start"].tolist() == [4]


@pytest.mark.parametrize("stride", [1, 2, 3, 5, 7, 100])
def test_windows_are_those_of_a_loop(stride):
    rng = np.random.default_rng(stride)
    contexts = [list(range(100, 100 + n)) for n in (1, 4, 5, 6, 7, 12, 13, 14, 40)]
    queries = [list(range(10, 10 + int(rng.integers(0, 5)))) for _ in contexts]
    examples_cut = packed(ONE, queries, contexts, 12, stride, 3)
    rows, starts, lengths = [], [], []
    for number, (query, context) in enumerate(zip(queries, contexts, strict=True)):
        room = 12 - 3 - min(3, len(query))
        start = 0
        while True:
            length = min(room, len(context) - start)
            rows.append(number)
            starts.append(start)
            lengths.append(length)
            if start + length == len(context):
                break
            start += min(length, stride)
    assert examples_cut["row"].tolist() == rows
    assert examples_cut["window_start"].tolist() == starts
    assert examples_cut["context_length"].tolist() == lengths
    for number, context in enumerate(contexts):
        mine = [i for i, row in enumerate(rows) if row == number]
        for token in range(len(context)):
            sides = [
                min(token - starts[i], starts[i] + lengths[i] - 1 - token)
                if starts[i] <= token < starts[i] + lengths[i]
                else -1
                for i in mine
            ]
            owners = [
                examples_cut["own_start"][i] <= token < examples_cut["own_end"][i] for i in mine
            ]
            assert owners.index(True) == int(np.argmax(sides)) and sum(owners) == 1
        for i in mine:
            row = examples_cut["token_ids"][i]
            begin = examples_cut["context_start"][i]
            assert row[begin : begin + lengths[i]] == context[starts[i] : starts[i] + lengths[i]]
            assert len(row) == begin + lengths[i] + 1 == examples_cut["segment_lengths"][i].sum()


@pytest.mark.parametrize("tokenizer", [ONE, TWO])
def test_the_context_comes_first_where_cls_is_last(tokenizer):
    rows = [[11, 12], [13]], [[21, 22, 23], [24]]
    examples_cut = packed(tokenizer, *rows, 12, 9, 3)
    width = max(map(len, examples_cut["token_ids"])) + 1
    ids = np.array([row + [0] * (width - len(row)) for row in examples_cut["token_ids"]])
    lengths = examples_cut["segment_lengths"]
    batch = {
        "token_ids": tf.constant(ids, tf.int32),
        "segment_ids": tf.cast(np.arange(width) >= lengths[:, :1], tf.int32)
        * tf.cast(np.arange(width) < lengths.sum(1)[:, None], tf.int32),
        "padding_mask": tf.constant(np.arange(width) < lengths.sum(1)[:, None]),
        "context_start": examples_cut["context_start"],
        "context_length": examples_cut["context_length"],
    }
    batch = {name: tf.convert_to_tensor(value) for name, value in batch.items()}
    same = windows.arrange_windows(batch, tokenizer, "cls_first")
    for name, value in same.items():
        assert np.array_equal(value, batch[name])
    moved = windows.arrange_windows(batch, tokenizer, "cls_last")
    seps = [2] * tokenizer.pairs.separators
    first = [21, 22, 23, *seps, 11, 12, 2, 1]
    second = [24, *seps, 13, 2, 1]
    pad = [0] * (width - len(first)), [0] * (width - len(second))
    assert moved["token_ids"].numpy().tolist() == [[*pad[0], *first], [*pad[1], *second]]
    k = tokenizer.pairs.separators
    assert moved["segment_ids"].numpy().tolist() == [
        [4] * len(pad[0]) + [0] * (3 + k) + [1] * 3 + [2],
        [4] * len(pad[1]) + [0] * (1 + k) + [1] * 2 + [2],
    ]
    assert moved["context_start"].numpy().tolist() == [len(pad[0]), len(pad[1])]
    assert moved["padding_mask"].numpy().sum(1).tolist() == [len(first), len(second)]


def test_tokens_of_an_answer():
    starts, ends = np.array([0, 4, 8, 8]), np.array([3, 7, 9, 9])
    assert windows.answer_tokens(starts, ends, 4, 9) == (1, 3)
    assert windows.answer_tokens(starts, ends, 5, 6) == (1, 1)  # part of a token: all of it
    assert windows.answer_tokens(starts, ends, 3, 4) is None


@pytest.mark.parametrize(
    "sizes, words",
    [
        ((12, 0, 3), "doc_stride: 0 is less than 1: windows would not advance"),
        ((12, 3, 0), "max_query_length: 0 is less than 1"),
        ((12, 3, 9), "max_length: 12 has no room for a question of 9 tokens .* at least 13"),
    ],
)
def test_sizes_that_cannot_be_are_refused(sizes, words):
    with pytest.raises(UserError, match=words):
        windows.check(ONE, *sizes)
    windows.check(ONE, 13, 1, 9)


LEFT = types.SimpleNamespace(pad_id=0, cls_id=1, sep_id=2, pairs=PairForm(cut_side="left"))


@pytest.mark.parametrize(
    ("tokenizer", "count", "expected"),
    [
        # tokenizers 0.22: a to j, max_length 6, stride 2: abcd, cdef, efgh, ghij.
        (ONE, 9, ["abcd", "cdef", "efgh", "ghij"]),
        (ONE, 3, ["abcd", "cdef", "efgh"]),
        (LEFT, 3, ["cdef", "efgh", "ghij"]),
        (ONE, 1, ["abcd"]),
    ],
)
def test_windows_of_a_text_are_those_of_the_hub(tokenizer, count, expected):
    texts = tf.ragged.constant([[], list(range(97, 107)), [110, 111]], tf.int32)
    reading = windows.TextWindows(count, overlap=2, max_length=6)
    token_ids, numbers = reading.pack(texts, tokenizer)
    rows = token_ids.to_list()
    assert {(row[0], row[-1]) for row in rows} == {(1, 2)}
    assert ["".join(map(chr, row[1:-1])) for row in rows] == ["", *expected, "no"]
    assert numbers.numpy().tolist() == [0, *[1] * len(expected), 2]


def test_the_last_window_of_a_text_is_short():
    texts = tf.ragged.constant([list(range(97, 106))], tf.int32)
    token_ids, _ = windows.TextWindows(9, overlap=2, max_length=6).pack(texts, ONE)
    parts = ["".join(map(chr, row[1:-1])) for row in token_ids.to_list()]
    assert parts == ["abcd", "cdef", "efgh", "ghi"]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((2, 4, 6), "window_overlap: 4: a window of 6 tokens has room for 4 .* from 0 to 3"),
        ((2, -1, 6), "window_overlap: -1"),
        ((2, 0, 2), "window_overlap: 0: a window of 2 tokens has room for 0"),
    ],
)
def test_windows_that_do_not_advance_are_refused(sizes, words):
    with pytest.raises(UserError, match=words):
        windows.TextWindows(*sizes).check(ONE)
    windows.TextWindows(2, 3, 6).check(ONE)
