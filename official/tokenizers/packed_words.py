"""Packs the words of texts as `official.tokenizers.packing` packs their ids.

An encoder that reads characters gets `character_ids` beside the ids: the characters of each word,
of `<S>` in the place of [CLS], and of `</S>` in the place of [SEP]. Padding has 0.

Shapes: B examples, T tokens of the longest one, C characters of a word; a ragged dimension is
written None.
"""

import types
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from official.tokenizers import packing, word_characters
from official.tokenizers.base import Tokenizer
from official.tokenizers.word_characters import Characters

# The features of an example on disk; see `official.shards.features`.
FEATURES = ("word_lengths", "word_bytes")
# Words are packed by their numbers. These numbers stand for the special tokens.
_PADDING, _BEGIN, _END, _FIRST = range(4)
_NUMBERS = types.SimpleNamespace(pad_id=_PADDING, cls_id=_BEGIN, sep_id=_END, pair_separators=1)


def pack_texts(
    texts: Sequence[tf.Tensor],
    tokenizer: Tokenizer,
    max_length: int,
    layout: str = "cls_first",
    cut: str = "longer",
) -> dict[str, tf.Tensor]:
    """Splits and packs texts with graph operations.

    Args:
      texts: one or two batches of UTF-8 strings [B] each.
      tokenizer: the tokenizer.
      max_length: as in `packing.pack`.
      layout: as in `packing.pack`.
      cut: as in `packing.pack`.

    Returns:
      The fields of `packing.pack`, and with a tokenizer of words character_ids int32 [B, T, C].
    """
    if not isinstance(tokenizer, Characters):
        return packing.pack(
            [tokenizer.tokenize(t) for t in texts], tokenizer, max_length, layout, cut
        )
    return pack_words([tokenizer.words(t) for t in texts], tokenizer, max_length, layout, cut)


def pack_words(
    words: Sequence[tf.RaggedTensor],
    tokenizer: Characters,
    max_length: int,
    layout: str = "cls_first",
    cut: str = "longer",
) -> dict[str, tf.Tensor]:
    """Packs texts that are split into words, with graph operations.

    Args:
      words: one or two batches of UTF-8 strings [B, None] each.
      tokenizer: the tokenizer.
      max_length: as in `packing.pack`.
      layout: as in `packing.pack`.
      cut: as in `packing.pack`.

    Returns:
      The fields of `packing.pack`, and character_ids int32 [B, T, C].
    """
    batch = packing.pack(
        [tokenizer.numbers(each) for each in words], tokenizer, max_length, layout, cut
    )
    numbered, first = [], _FIRST
    for each in words:
        count = tf.size(each.values)
        numbered.append(each.with_values(tf.range(first, first + count)))
        first += count
    numbers = packing.pack(numbered, _NUMBERS, max_length, layout, cut)["token_ids"]  # [B, T]
    table = [word_characters.of_words(tf.concat([each.values for each in words], 0))]
    specials = np.zeros((_FIRST, word_characters.WIDTH), np.int32)
    specials[_BEGIN] = word_characters.mark(word_characters.SENTENCE_BEGIN)
    specials[_END] = word_characters.mark(word_characters.SENTENCE_END)
    batch["character_ids"] = tf.gather(tf.concat([specials, *table], 0), numbers)
    return batch


def features(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Returns the features that `pack_arrays` adds to examples of a tokenizer."""
    return FEATURES if isinstance(tokenizer, Characters) else ()


def split_words(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[bytes]] | None:
    """Returns the words of each text in UTF-8; None if the tokenizer is not one of words."""
    if not isinstance(tokenizer, Characters):
        return None
    _, splits, words = tokenizer.encode_words(texts)
    return [words[a:b].tolist() for a, b in zip(splits[:-1], splits[1:], strict=True)]


def pack_arrays(
    segments: Sequence[Sequence[bytes]], max_length: int, cut: str = "longer"
) -> dict[str, np.ndarray | bytes]:
    """Packs the words of one example, at the positions of `packing.pack_arrays`.

    Args:
      segments: the words of one or two texts, in UTF-8.
      max_length: maximum number of tokens in the example, including special tokens.
      cut: one of `packing.CUTS`.

    Returns:
      The features `FEATURES`: the number of bytes of each token, 0 for a special token, and the
      bytes of all words, at most `word_characters.MAX_BYTES` of each.
    """
    words = [word[: word_characters.MAX_BYTES] for segment in segments for word in segment]
    bounds = _FIRST + np.cumsum([0, *map(len, segments)])
    numbered = [np.arange(*pair) for pair in zip(bounds[:-1], bounds[1:], strict=True)]
    numbers, _ = packing.pack_arrays(numbered, _NUMBERS, max_length, cut)
    kept = [words[n - _FIRST] if n >= _FIRST else b"" for n in numbers.tolist()]
    lengths = np.array([len(word) for word in kept], np.int64)
    return {"word_lengths": lengths, "word_bytes": b"".join(kept)}
