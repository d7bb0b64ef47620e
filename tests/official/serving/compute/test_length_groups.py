import types

import numpy as np
import pytest
import tensorflow as tf

from official.serving.compute import length_groups


def batch_of(lengths, width, layout):
    """Rows of ids 1, 2, ... on the side where the layout has them; the rest is padding, 0."""
    ids = np.zeros((len(lengths), width), np.int32)
    for row, length in enumerate(lengths):
        place = slice(width - length, None) if layout == "cls_last" else slice(length)
        ids[row, place] = np.arange(1, length + 1) * (row + 1)
    return {"token_ids": ids, "segment_ids": ids % 2, "padding_mask": ids > 0}


def encoder(layout):
    # Of this size a group has up to 3 places of padding.
    return types.SimpleNamespace(layout=layout, hidden_size=10, reads_characters=False)


@pytest.fixture
def seen(monkeypatch):
    """The shapes that were scored."""
    monkeypatch.setattr(length_groups, "READING", 2)
    monkeypatch.setattr(length_groups, "STARTING", 100)
    monkeypatch.setattr(length_groups, "POSITIONS", 24)
    shapes = []

    def score(batch):
        ids = batch["token_ids"]

        def note(value):
            shapes.append(value.shape)
            return value

        ids = tf.ensure_shape(tf.numpy_function(note, [ids], tf.int32), ids.shape)
        total = tf.reduce_sum(ids * (batch["segment_ids"] + 1), axis=1)
        states = tf.cast(ids, tf.float32)[:, :, None] * tf.constant([1.0, -1.0])
        first = {"first": batch["context_start"]} if "context_start" in batch else {}
        return {"total": total, "states": states, **first}

    return shapes, score


@pytest.mark.parametrize("layout", ["cls_first", "cls_last"])
def test_rows_of_like_length_are_read_together_and_put_back(seen, layout):
    shapes, score = seen
    lengths = [2, 9, 5, 8, 1, 5, 0, 7]
    batch = batch_of(lengths, 12, layout)
    left = layout == "cls_last"
    start = np.array([12 - n if left else 1 for n in lengths], np.int32)
    scored = length_groups.scorer(score, encoder(layout), ("context_start",))
    actual = tf.function(scored)({**batch, "context_start": start})
    # 9 and 8: no more than 24 places. 7 and 5: another 5 would be 4 places of padding. 5 and 2.
    assert shapes == [(2, 9), (2, 7), (2, 5), (2, 1)]
    ids = batch["token_ids"]
    np.testing.assert_array_equal(actual["total"], (ids * (ids % 2 + 1)).sum(axis=1))
    np.testing.assert_array_equal(actual["states"], ids[:, :, None] * [1, -1])
    widths = np.array([5, 9, 7, 9, 1, 5, 1, 7])
    expected = start - (12 - widths) if left else start
    np.testing.assert_array_equal(actual["first"], expected)


def test_a_row_that_is_longer_than_a_group_may_be_is_read_alone(seen):
    shapes, score = seen
    batch = batch_of([30, 30, 1], 30, "cls_first")
    actual = length_groups.scorer(score, encoder("cls_first"))(batch)
    assert shapes == [(1, 30), (1, 30), (1, 1)]
    np.testing.assert_array_equal(actual["states"][1, :, 0], batch["token_ids"][1])


@pytest.mark.parametrize("width", [0, 4])
def test_no_rows(seen, width):
    shapes, score = seen
    actual = length_groups.scorer(score, encoder("cls_first"))(batch_of([], width, "cls_first"))
    assert shapes == [(0, 1)]
    assert actual["total"].shape == (0,)
    assert actual["states"].shape == (0, max(width, 1), 2)


def test_gaps_in_a_row_are_no_padding(seen):
    _, score = seen
    batch = batch_of([6, 3], 8, "cls_first")
    batch["padding_mask"][0, [1, 3]] = False
    actual = length_groups.scorer(score, encoder("cls_first"))(batch)
    np.testing.assert_array_equal(actual["states"][:, :, 0], batch["token_ids"])
