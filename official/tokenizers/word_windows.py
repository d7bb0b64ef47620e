"""Tokens of texts that are lists of words, and the windows of long ones.

The tokens are those of the words joined by blanks, so each word has the mark or prefix that the
tokenizer gives to words of running text; or those of the text itself, if its words are its tokens.
A word is read at its first token (Devlin et al., 2019, section 5.3). A window is a row [CLS] part
of the tokens [SEP]. The next window begins half a window later, and the last one contains the end.
A word that is in several windows is read in the one in which its first token has the most context
on its shorter side, or in the first of several equal ones, as in `official.tokenizers.windows`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from official.tokenizers import pair_packing
from official.tokenizers.base import Tokenizer

NO_WORD = -1


class WordTokens(NamedTuple):
    """The tokens of a text.

    Attributes:
      ids: the ids, int32 [K].
      word_ids: the number of the word at the first token of each word, -1 elsewhere, int32 [K].
    """

    ids: np.ndarray
    word_ids: np.ndarray


class Window(NamedTuple):
    """A part of a text.

    Attributes:
      start: the number of its first token.
      end: the number of the token after its last one.
      own_start: the number of the first token that is read in it.
      own_end: the number of the token after the last one that is read in it.
    """

    start: int
    end: int
    own_start: int
    own_end: int


def encode(texts: Sequence[Sequence[str]], tokenizer: Tokenizer) -> list[WordTokens]:
    """Returns the tokens of texts.

    Args:
      texts: the words of each text.
      tokenizer: the tokenizer.

    Returns:
      The tokens of each text. A word that the tokenizer makes nothing of has no token.
    """
    return encode_running(*joined(texts), tokenizer)


def joined(texts: Sequence[Sequence[str]]) -> tuple[list[str], list[np.ndarray]]:
    """Returns the words of each text joined by blanks, and the ends of its words in characters."""
    ends = [np.cumsum([len(word) + 1 for word in words], dtype=np.int64) - 1 for words in texts]
    return [" ".join(words) for words in texts], ends


def encode_running(
    texts: Sequence[str], ends: Sequence[np.ndarray], tokenizer: Tokenizer
) -> list[WordTokens]:
    """Returns the tokens of running texts; a token belongs to the word in which it begins.

    Args:
      texts: the texts.
      ends: the character after the last one of each word of a text, integers [number of words].
      tokenizer: the tokenizer.
    """
    tokens = tokenizer.encode_with_offsets(texts)
    return [
        WordTokens(ids, _first_tokens(ends_of_text, starts))
        for ends_of_text, (ids, starts, _) in zip(ends, tokens, strict=True)
    ]


def _first_tokens(ends: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Returns `word_ids` [K] from the ends of the words and the starts of the tokens [K]."""
    # A token that begins with the blank before a word belongs to this word.
    numbers = np.searchsorted(ends, starts, side="right")
    numbers = np.minimum(numbers, len(ends) - 1)
    first = np.ones(len(numbers), bool)
    first[1:] = numbers[1:] != numbers[:-1]
    return np.where(first, numbers, NO_WORD).astype(np.int32)


def windows(length: int, tokenizer: pair_packing.SpecialIds, max_length: int) -> list[Window]:
    """Returns the windows of a text of `length` tokens; an empty one has one window.

    Args:
      length: the number of tokens of the text.
      tokenizer: has the special ids.
      max_length: the length of the longest window, special tokens counted.
    """
    room = max_length - pair_packing.num_specials(1, tokenizer)
    step = max(1, room // 2)
    count = 1 + max(0, length - room + step - 1) // step
    starts = [number * step for number in range(count)]
    # The first of two windows reads the first half of the tokens that both contain.
    cuts = [(start - step + room - 1 + start) // 2 + 1 for start in starts[1:]]
    bounds = [0, *cuts, length]
    return [
        Window(start, min(start + room, length), bounds[i], bounds[i + 1])
        for i, start in enumerate(starts)
    ]


def pack(tokens: WordTokens, window: Window, tokenizer: pair_packing.SpecialIds) -> WordTokens:
    """Returns the row of a window with its special tokens, and the words that are read in it."""
    ids = tokens.ids[window.start : window.end]
    words = tokens.word_ids[window.start : window.end].copy()
    words[: window.own_start - window.start] = NO_WORD
    words[window.own_end - window.start :] = NO_WORD
    row = np.concatenate([[tokenizer.cls_id], ids, [tokenizer.sep_id]]).astype(np.int32)
    return WordTokens(row, np.pad(words, 1, constant_values=NO_WORD).astype(np.int32))
