import numpy as np
import pytest
import tensorflow as tf

from official.shards import features, parsing
from official.utils.errors import UserError

EXAMPLES = [
    {
        "token_ids": np.array([2, 30521, 5, 3, 7, 3], np.int32),
        "segment_lengths": [4, 2],
        "next_sentence_label": 1,
        "score": 2.5,
    },
    {"token_ids": [2, 3], "segment_lengths": [2], "next_sentence_label": 0, "score": -1.0},
]


def test_labels_of_parts():
    """One number, or as many as there are parts."""
    packed = {"token_ids": [2, 3], "part_lengths": [1, 1], "sentence_order_label": [1, 0]}
    single = {"token_ids": [2], "part_lengths": [1], "sentence_order_label": 0}
    serialized = tf.constant(features.serialize([packed, single]))
    parsed = parsing.parse(serialized, ["part_lengths", "sentence_order_label"])
    assert parsed["sentence_order_label"].to_list() == [[1, 0], [0]]
    assert parsed["part_lengths"].to_list() == [[1, 1], [1]]
    alone = parsing.parse(serialized[1:], ["sentence_order_label"])
    assert alone["sentence_order_label"].numpy().tolist() == [0]


def test_what_is_written_is_parsed():
    serialized = tf.constant(features.serialize(EXAMPLES))
    parsed = parsing.parse(serialized, EXAMPLES[0])
    assert parsed["token_ids"].to_list() == [[2, 30521, 5, 3, 7, 3], [2, 3]]
    assert parsed["segment_lengths"].to_list() == [[4, 2], [2]]
    np.testing.assert_array_equal(parsed["next_sentence_label"], [1, 0])
    np.testing.assert_array_equal(parsed["score"], [2.5, -1.0])
    assert parsed["token_ids"].dtype == parsed["next_sentence_label"].dtype == tf.int32
    assert parsed["score"].dtype == tf.float32


def test_only_the_features_named_are_parsed_in_a_graph():
    serialized = tf.constant(features.serialize(EXAMPLES))
    parsed = tf.function(lambda s: parsing.parse(s, ["segment_lengths"]))(serialized)
    assert list(parsed) == ["segment_lengths"]
    assert parsed["segment_lengths"].to_list() == [[4, 2], [2]]


def test_the_bytes_are_a_tf_train_example_without_padding():
    [data] = features.serialize(EXAMPLES[:1])
    record = tf.train.Example.FromString(data)
    assert list(record.features.feature["token_ids"].int64_list.value) == [2, 30521, 5, 3, 7, 3]
    assert sorted(record.features.feature) == sorted(EXAMPLES[0])
    reordered = dict(reversed(EXAMPLES[0].items()))
    assert features.serialize([reordered]) == [data]


def test_neighbors_may_have_different_features():
    labeled = {"token_ids": [2, 3], "label": 1}
    mixed = [labeled, {"token_ids": [2]}, {"token_ids": [4]}, {**labeled, "answer_start": -1}]
    written = features.serialize(mixed)
    assert written == [features.serialize([example])[0] for example in mixed]
    last = tf.train.Example.FromString(written[-1]).features.feature
    assert list(last["answer_start"].int64_list.value) == [-1]
    assert features.serialize([]) == []


def test_at_most_three_bytes_a_token():
    # Ids by rank are Zipf-like in text: about a third under 128 (one byte), few over 16383 (three).
    rng = np.random.default_rng(0)
    ids = np.exp(rng.uniform(0, np.log(30522), (100, 128))).astype(int)
    written = features.serialize(
        {"token_ids": row, "segment_lengths": [64, 64], "next_sentence_label": 0} for row in ids
    )
    assert sum(map(len, written)) / ids.size < 3


def test_unknown_feature():
    with pytest.raises(UserError, match=r"'lable' is not a feature .*token_ids"):
        features.serialize([{"lable": 1}])


def test_absent_feature_is_an_error_not_a_default():
    serialized = tf.constant(features.serialize([{"token_ids": [1]}]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="label"):
        parsing.parse(serialized, ["token_ids", "label"])
