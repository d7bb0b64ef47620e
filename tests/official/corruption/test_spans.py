import numpy as np
import tensorflow as tf

from official.config.corruptions import SPAN_FIELDS
from official.corruption import token_masks
from official.corruption.vocabulary import Vocabulary

PAD, CLS, SEP, MASK = range(4)
VOCABULARY = Vocabulary(20, MASK, (PAD, CLS, SEP, MASK), np.ones(20, bool))
ROWS = [
    [CLS, 5, MASK, 6, 7, MASK, SEP, 8, 9, MASK, 11, SEP],
    [CLS, MASK, 5, 6, MASK, 7, MASK, SEP, PAD, PAD, PAD, PAD],
]
HIDDEN = [[2, 3, 5, 9], [1, 4, 6]]  # a hidden token may stay as it is: 6 in the first row


def test_boundaries():
    positions = np.zeros((2, 5), np.int32)
    weights = np.zeros((2, 5), np.float32)
    for i, row in enumerate(HIDDEN):
        positions[i, : len(row)], weights[i, : len(row)] = row, 1
    token_ids = tf.constant(ROWS)
    result = token_masks.boundaries(
        VOCABULARY,
        {
            "token_ids": token_ids,
            "padding_mask": token_ids != PAD,
            "masked_positions": tf.constant(positions),
            "masked_weights": tf.constant(weights),
        },
    )
    assert result.keys() == SPAN_FIELDS
    # Before [SEP] (5 in the first row; 6 in the second) and after [CLS] (1) there is no word.
    assert result["span_weights"].numpy().tolist() == [[1, 1, 0, 1, 0], [0, 1, 0, 0, 0]]
    assert result["span_left"].numpy().tolist() == [[1, 1, 0, 8, 0], [0, 3, 0, 0, 0]]
    assert result["span_right"].numpy().tolist() == [[4, 4, 0, 10, 0], [0, 5, 0, 0, 0]]
    assert result["span_offset"].numpy().tolist() == [[0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]


def test_a_span_at_the_end_of_a_row_without_padding():
    result = token_masks.boundaries(
        VOCABULARY,
        {
            "token_ids": tf.constant([[5, 6, MASK]]),
            "padding_mask": tf.constant([[True] * 3]),
            "masked_positions": tf.constant([[0, 2]]),
            "masked_weights": tf.constant([[1.0, 1.0]]),
        },
    )
    assert result["span_weights"].numpy().tolist() == [[0, 0]]
