import types

import numpy as np
import pytest

from official.config.corruptions import TokenMasksConfig
from official.corruption.vocabulary import Vocabulary, check_tokens
from official.utils.errors import UserError


def tokenizer(**changes):
    """Of six pieces: padding, unknown, two words, mask and separator."""
    ids = {"pad_id": 0, "unk_id": 1, "cls_id": 5, "sep_id": 5, "mask_id": 4, **changes}
    return types.SimpleNamespace(
        vocab_size=6,
        special_ids=tuple(sorted({i for i in ids.values() if i is not None})),
        word_starts_by=lambda rule: np.array([1, 1, rule == "blank", 1, 1, 1], bool),
        word_ends=np.array([0, 0, 0, 1, 0, 0], bool),
        sentinel_ids=(),
        added={},
        **ids,
    )


def test_of_a_tokenizer():
    vocabulary = Vocabulary.from_tokenizer(tokenizer())
    assert (vocabulary.size, vocabulary.mask_id, vocabulary.unk_id) == (6, 4, 1)
    assert vocabulary.special_ids == (0, 1, 4, 5)
    np.testing.assert_array_equal(vocabulary.word_starts, [1, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(vocabulary.word_ends, [0, 0, 0, 1, 0, 0])
    # An unknown token stands for a token of the text.
    np.testing.assert_array_equal(vocabulary.maskable, [0, 1, 1, 1, 0, 0])
    np.testing.assert_array_equal(vocabulary.text_ids, [2, 3])
    assert vocabulary.counts is None


def test_words_begin_as_the_corruption_says():
    loaded = Vocabulary.from_tokenizer(
        tokenizer(), corruption=TokenMasksConfig(word_starts="blank")
    )
    np.testing.assert_array_equal(loaded.word_starts, [1, 1, 1, 1, 1, 1])


def test_an_unknown_token_that_serves_for_others_is_not_hidden():
    """GPT-2 has one token for all purposes."""
    ids = dict.fromkeys(("pad_id", "unk_id", "cls_id", "sep_id"), 5)
    vocabulary = Vocabulary.from_tokenizer(tokenizer(**ids, mask_id=None))
    assert (vocabulary.mask_id, vocabulary.unk_id) == (-1, -1)
    np.testing.assert_array_equal(vocabulary.maskable, [1, 1, 1, 1, 1, 0])


def test_counts():
    vocabulary = Vocabulary(3, 2, (2,), np.ones(3, bool), np.array([4, 0, 2]))
    assert vocabulary.counted.tolist() == [4, 4, 6]
    with pytest.raises(
        UserError, match="random_tokens: unigram draws tokens as often as the corpu"
    ):
        _ = Vocabulary(3, 2, (2,), np.ones(3, bool)).counted


def test_masks_want_a_mask_token():
    without, with_one = (types.SimpleNamespace(mask_id=i, sentinel_ids=()) for i in (None, 4))
    message = r"DIR has no mask token, and corruption.mask_prob is 0.8: name another with"
    with pytest.raises(UserError, match=message):
        check_tokens(TokenMasksConfig(), without, "DIR")
    check_tokens(TokenMasksConfig(), with_one, "DIR")
    check_tokens(None, without, "DIR")
    check_tokens(TokenMasksConfig(mask_prob=0.0, random_prob=0.5), without, "DIR")
