import types

import numpy as np
import pytest

from official.corruption import token_masks
from official.corruption.vocabulary import Vocabulary, check_mask_token
from official.errors import UserError


def test_of_a_tokenizer():
    tokenizer = types.SimpleNamespace(
        vocab_size=6, mask_id=4, special_ids=(0, 4, 5), word_starts=[1, 1, 0, 1, 1, 1]
    )
    vocabulary = Vocabulary.of(tokenizer)
    assert (vocabulary.size, vocabulary.mask_id, vocabulary.special_ids) == (6, 4, (0, 4, 5))
    assert vocabulary.word_starts.dtype == bool
    np.testing.assert_array_equal(vocabulary.word_starts, [1, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(vocabulary.maskable, [0, 1, 1, 1, 0, 0])
    assert vocabulary.counts is None


def test_counts():
    vocabulary = Vocabulary(3, 2, (2,), np.ones(3, bool), np.array([4, 0, 2]))
    assert vocabulary.counted.tolist() == [4, 4, 6]
    with pytest.raises(
        UserError, match="random_tokens: unigram draws tokens as often as the corpu"
    ):
        _ = Vocabulary(3, 2, (2,), np.ones(3, bool)).counted


def test_masks_want_a_mask_token():
    without, with_one = types.SimpleNamespace(mask_id=None), types.SimpleNamespace(mask_id=4)
    message = r"DIR has no mask token, and corruption.mask_prob is 0.8: add one to the vocabulary"
    with pytest.raises(UserError, match=message):
        check_mask_token(token_masks.Config(), without, "DIR")
    check_mask_token(token_masks.Config(), with_one, "DIR")
    check_mask_token(None, without, "DIR")
    check_mask_token(token_masks.Config(mask_prob=0.0, random_prob=0.5), without, "DIR")


def test_of_a_tokenizer_without_a_mask_token():
    tokenizer = types.SimpleNamespace(
        vocab_size=2, mask_id=None, special_ids=(0,), word_starts=[1, 1]
    )
    assert Vocabulary.of(tokenizer).mask_id == -1
