import numpy as np
import pytest
import tensorflow as tf

from official.corruption import units
from official.corruption.vocabulary import Vocabulary

PAD, CLS, SEP = 0, 1, 2
VOCABULARY = Vocabulary(20, 3, (0, 1, 2, 3), np.array([i < 15 for i in range(20)]))
BATCH = {
    # From 15 on, pieces continue words.
    "token_ids": tf.constant([[CLS, 5, 15, SEP, 16, 6, SEP], [CLS, 17, 18, 7, SEP, PAD, PAD]]),
    "padding_mask": tf.constant([[True] * 7, [True] * 5 + [False] * 2]),
}


def test_tokens():
    expected = [[-1, 0, 1, -1, 2, 3, -1], [-1, 0, 1, 2, -1, -1, -1]]
    assert units.tokens(VOCABULARY, BATCH).numpy().tolist() == expected


@pytest.mark.parametrize("specials", [0, 1, 8, 9, 40])
def test_tokens_with_any_number_of_special_tokens(specials):
    unknown = specials - 1  # It is in the text, so it is a token like others.
    rng = np.random.default_rng(specials)
    ids = rng.integers(0, 60, (3, 1500), np.int32)
    padding_mask = rng.random((3, 1500)) < 0.9
    vocabulary = Vocabulary(60, 3, tuple(range(specials)), np.ones(60, bool), unk_id=unknown)
    expected = []
    for row, real in zip(ids, padding_mask, strict=True):
        number = 0
        for token, is_real in zip(row, real, strict=True):
            text = is_real and (token >= specials or token == unknown)
            expected.append(number if text else -1)
            number += text
    batch = {"token_ids": tf.constant(ids), "padding_mask": tf.constant(padding_mask)}
    assert units.tokens(vocabulary, batch).numpy().ravel().tolist() == expected


def test_a_word_begins_anew_after_a_special_token():
    expected = [[-1, 0, 0, -1, 1, 2, -1], [-1, 0, 0, 1, -1, -1, -1]]
    assert units.words(VOCABULARY, BATCH).numpy().tolist() == expected


@pytest.mark.parametrize(
    "function, name", [(units.phrases, "phrase_inner"), (units.entities, "entity_inner")]
)
def test_phrases_and_entities(function, name):
    inner = np.zeros((2, 7), bool)
    inner[0, [2, 4]] = True  # the second goes on with nothing: it is after [SEP]
    inner[1, 2:4] = True
    batch = {**BATCH, name: tf.constant(inner)}
    expected = [[-1, 0, 0, -1, 1, 2, -1], [-1, 0, 0, 0, -1, -1, -1]]
    assert function(VOCABULARY, batch).numpy().tolist() == expected


def test_sequences():
    flags = tf.constant([[True, True, False, True], [False, True, True, False]])
    assert units.sequences(flags).numpy().tolist() == [[0, 0, -1, 1], [-1, 0, 0, -1]]


def test_sums_by_column():
    columns = tf.constant([[0, 0, 2], [-1, 1, 1]])
    assert units.sum_at(columns, tf.constant([[1, 2, 3], [4, 5, 6]])).numpy().tolist() == [
        [3, 0, 3],
        [0, 11, 0],
    ]
