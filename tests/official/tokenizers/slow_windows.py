"""Windows of words, one text and one token at a time, for `official.tokenizers.windows`."""

from typing import NamedTuple

import numpy as np

NO_WORD = -1


class WordTokens(NamedTuple):
    """The ids of a text, and the number of the word at the first token of each word, or -1."""

    ids: np.ndarray
    word_ids: np.ndarray


class Window(NamedTuple):
    """The tokens from `start` to before `end`, of which those from `own_start` on are read here."""

    start: int
    end: int
    own_start: int
    own_end: int


def encode(texts, tokenizer):
    """The tokens of texts, each a list of words."""
    ends = [np.cumsum([len(word) + 1 for word in words], dtype=np.int64) - 1 for words in texts]
    return encode_running([" ".join(words) for words in texts], ends, tokenizer)


def encode_running(texts, ends, tokenizer):
    """The tokens of running texts, whose words end before the characters `ends`."""
    tokens = []
    for word_ends, (ids, starts, _) in zip(ends, tokenizer.encode_with_offsets(texts), strict=True):
        word_ids, last = [], NO_WORD
        for start in starts:
            word = min(int((word_ends <= start).sum()), len(word_ends) - 1)
            word_ids.append(word if word != last else NO_WORD)
            last = word
        tokens.append(WordTokens(ids, np.array(word_ids, np.int32)))
    return tokens


def windows(length, max_length):
    """The windows of a text: each token is read where its shorter side has most context."""
    room = max_length - 2
    starts = [0]
    while starts[-1] + room < length:
        starts.append(starts[-1] + max(1, room // 2))
    ends = [min(start + room, length) for start in starts]
    owners = [
        int(np.argmax([
            min(token - start, end - 1 - token) if start <= token < end else -1
            for start, end in zip(starts, ends, strict=True)
        ]))
        for token in range(length)
    ]  # fmt: skip
    bounds = [*(owners.index(i) for i in range(len(starts))), length] if length else [0, 0]
    return [Window(*each) for each in zip(starts, ends, bounds[:-1], bounds[1:], strict=True)]


def pack(tokens, window, tokenizer):
    """The row of a window with its special tokens, and the words that are read in it."""
    ids = tokens.ids[window.start : window.end]
    words = tokens.word_ids[window.start : window.end].copy()
    words[: window.own_start - window.start] = NO_WORD
    words[window.own_end - window.start :] = NO_WORD
    row = np.concatenate([[tokenizer.cls_id], ids, [tokenizer.sep_id]]).astype(np.int32)
    return WordTokens(row, np.pad(words, 1, constant_values=NO_WORD).astype(np.int32))
