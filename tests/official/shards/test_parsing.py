"""Examples whose numbers are out of range are refused, each by its rule."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official.shards import features, parsing
from official.utils.errors import UserError

LIMITS = parsing.Limits("shards", ids=10, labels=3, tokens=6, targets=2)
ROW = {
    "token_ids": [2, 5, 3, 9, 3],
    "segment_lengths": [3, 2],
    "masked_positions": [1, 3],
    "masked_ids": [4, 0],
    "next_sentence_label": 1,
    "label": 2,
    "target_ids": [4],
    "word_ids": [-1, 0, -1, 1, -1],
    "tag_ids": [-1, 2, -1, 0, -1],
    "score": 0.5,
    "answer_start": -1,
    "context_start": 4,
}
PARTS = {"token_ids": [2, 5, 3, 9, 3], "part_lengths": [3, 2], "next_sentence_label": [1, 0]}
CHOICES = {
    "token_ids": [2, 5, 3, 2, 3], "sequence_lengths": [3, 2], "segment_lengths": [3, 2],
    "answer": 1,
}  # fmt: skip
WORDS = {"token_ids": [0, 5, 1], "word_lengths": [0, 2, 0], "word_bytes": b"ab"}


def rules(example, limits=LIMITS, changed=None):
    """The rules that the second of two examples breaks; the first one is whole."""
    records = features.serialize([example, {**example, **(changed or {})}])
    parsed = parsing.parse_wide(tf.constant(records), example)
    return [rule for rule, found in parsing.broken(parsed, limits).items() if found]


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({}, None),
        ({"token_ids": [2, 5, 3, 10, 3]}, "token_ids: a number is not from 0 to 9"),
        ({"token_ids": [2, 5, 3, -1, 3]}, "token_ids: a number is not from 0 to 9"),
        ({"token_ids": [2, 5, 3, (1 << 40) + 7, 3]}, "token_ids: a number is not from 0 to 9"),
        ({"masked_ids": [4, 10]}, "masked_ids: a number is not from 0 to 9"),
        ({"target_ids": [10]}, "target_ids: a number is not from 0 to 9"),
        ({"masked_positions": [1, 5]}, "masked_positions: a number is not from 0 to the last"),
        ({"masked_positions": [-1, 3]}, "masked_positions: a number is not from 0 to the last"),
        ({"context_start": 5}, "context_start: a number is not from 0 to the last token"),
        ({"next_sentence_label": 2}, "next_sentence_label: a number is not from 0 to 1"),
        ({"label": 3}, "label: a number is not from 0 to 2"),
        ({"label": -1}, "label: a number is not from 0 to 2"),
        ({"tag_ids": [-1, 3, -1, 0, -1]}, "tag_ids: a number is not from -1 to 2"),
        ({"word_ids": [-2, 0, -1, 1, -1]}, "word_ids: a number is not from -1 to 2,147,483,647"),
        ({"answer_start": 1 << 31}, "answer_start: a number is not from -1 to 2,147,483,647"),
        ({"score": float("nan")}, "score: a number is not finite"),
        ({"segment_lengths": [3, 3]}, "segment_lengths: the sum is not the length of token_ids"),
        ({"masked_ids": [4]}, "masked_ids: the number of values is not the length of masked_pos"),
        ({"word_ids": [-1, 0]}, "word_ids: the number of values is not the length of token_ids"),
        ({"target_ids": [4, 4, 4]}, "target_ids: more than 2 tokens"),
    ],
)
def test_numbers_and_lengths(changed, rule):
    found = rules(ROW, changed=changed)
    assert len(found) == bool(rule) and all(each.startswith(rule) for each in found)


@pytest.mark.parametrize(
    ("example", "changed", "rule"),
    [
        (PARTS, {}, None),
        (PARTS, {"part_lengths": [2, 2]}, "part_lengths: the sum is not the length of token_ids"),
        (PARTS, {"next_sentence_label": [1]}, "next_sentence_label: the number of values is not"),
        (PARTS, {"part_lengths": [1, 2, 2], "next_sentence_label": [1, 0, 1]},
         "part_lengths: more than 2 parts"),
        (CHOICES, {}, None),
        (CHOICES, {"answer": 2}, "answer: a number is not from 0 to 1"),
        (CHOICES, {"sequence_lengths": [3, 1]}, "sequence_lengths: the sum is not the length"),
        (CHOICES, {"sequence_lengths": [5]}, "sequence_lengths: not 2 sequences"),
        (CHOICES, {"segment_lengths": [3, 1, 1]}, "segment_lengths: not as many in each"),
        (WORDS, {}, None),
        (WORDS, {"word_bytes": b"abc"}, "word_lengths: the sum is not the length of word_bytes"),
        (WORDS, {"word_lengths": [0, 2]}, "word_lengths: the number of values is not the length"),
        (WORDS, {"word_lengths": [0, 49, 0], "word_bytes": b"a" * 49},
         "word_lengths: a number is not from 0 to 48"),
        ({"token_ids": [1]}, {"token_ids": []}, "token_ids: not from 1 to 6 tokens"),
        ({"token_ids": [1]}, {"token_ids": [1] * 7}, "token_ids: not from 1 to 6 tokens"),
        ({"segment_lengths": [6]}, {"segment_lengths": [3, 4]}, "segment_lengths: more than 6"),
        ({"sequence_lengths": [6, 1]}, {"sequence_lengths": [7, 1]},
         "sequence_lengths: more than 6 tokens"),
    ],
)  # fmt: skip
def test_rows_of_several_parts(example, changed, rule):
    several = "sequence_lengths" in example
    limits = dataclasses.replace(LIMITS, sequences=2 if several else None, parts=2)
    found = rules(example, limits, changed)
    assert len(found) == bool(rule) and all(each.startswith(rule) for each in found)


def test_a_graph_stops_and_says_why():
    """Also in a pipeline; on a GPU or TPU the model would read some vector for the id."""
    good, bad = ([{"token_ids": ids}] for ids in ([1, 2], [1, (1 << 40) + 7]))

    def batches(examples):
        data = tf.data.Dataset.from_tensor_slices(features.serialize(examples)).batch(2)
        return data.map(lambda records: parsing.parse(records, ["token_ids"], LIMITS))

    with parsing.reported("train"):
        (batch,) = batches(good + good)
        np.testing.assert_array_equal(batch["token_ids"].to_tensor(), [[1, 2]] * 2)
    with pytest.raises(UserError) as error, parsing.reported("train"):
        list(batches(good + bad))
    assert str(error.value).startswith(
        "shards: token_ids: a number is not from 0 to 9: the examples do not match the"
    )


def feature(**lists):
    return tf.train.Example(
        features=tf.train.Features(feature={"next_id": tf.train.Feature(**lists)})
    ).SerializeToString()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            feature(float_list=tf.train.FloatList(value=[1.0])),
            "next_id.*Data types don't match.*int64: the examples",
        ),
        (feature(int64_list=tf.train.Int64List(value=[1, 2])), "next_id.*[Nn]umber of.*values"),
        (feature(), "next_id"),
        (b"\xff\xff no example", ""),
    ],
)
def test_what_cannot_be_parsed_is_said(record, message):
    with pytest.raises(UserError, match=f"train: an example cannot be parsed.*{message}"):
        with parsing.reported("train"):
            parsing.parse(tf.constant([record]), ["next_id"], LIMITS)


def test_other_errors_are_not_reported_as_those_of_examples():
    with pytest.raises(tf.errors.InvalidArgumentError), parsing.reported("train"):
        tf.reshape(tf.zeros([3]), [2])
