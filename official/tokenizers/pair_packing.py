"""Packs one or two texts as [CLS] A [SEP] or [CLS] A [SEP] B [SEP].

The tokenizer defines the form of a pair (`official.tokenizers.pair_forms`): the number of [SEP]
between the texts (RoBERTa's pairs are <s> A </s></s> B </s>), and whether the texts have types.

This is the layout `cls_first`, in which task shards are written. XLNet's layout has the same tokens
in another order. `arrange` rearranges them when shards are read:

  cls_first  [CLS] A [SEP] B [SEP] [PAD] [PAD]    segments  0 0 0 1 1 0 0
  cls_last   [PAD] [PAD] A [SEP] B [SEP] [CLS]    segments  4 4 0 0 1 1 2
  no_cls     A [SEP] B [SEP] [PAD] [PAD]          segments  0 0 1 1 0 0

With a tokenizer that gives one type to all tokens, the segments are 0 but for padding.

In `cls_last`, [CLS] is the last token of every row, right after the text, and rows end as in
pretraining (Yang et al., 2019, section 2.5; the release's classifier_utils.py). These encoders use
only relative positions, and no token attends to padding, so the amount of padding on the left has
no effect. `no_cls` is the layout of T5's texts, whose [SEP] is the end token.

Long examples are cut at the end, or at the beginning if the form has `cut_side: left`: token by
token from the text that is longer at the time (from B if both are equal), as in BERT's fine-tuning.
If the form has `odd_token: longer`, the text that was longer keeps the odd token, or B if both were
equal. With `cut="first"`, A is cut, and B only if nothing is left of A: for a long text followed by
a question and a choice. `cut="second"` does the same for a long text that comes second.

An encoder that reads characters also gets `character_ids`: the characters of each word, of `<S>` in
place of [CLS], and of `</S>` in place of [SEP]. They are 0 for padding.

Shapes: B examples, T tokens of the longest one, C characters of a word; a ragged dimension is
written None.
"""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from official.tokenizers import word_characters
from official.tokenizers.base import Tokenizer
from official.tokenizers.pair_forms import LEFT, LONGER, TWO, PairForm
from official.utils.errors import UserError

LAYOUTS = ("cls_first", "cls_last", "no_cls")
CUTS = ("longer", "first", "second")
# Segment ids of `cls_last`. The texts have the segment ids 0 and 1.
CLS_SEGMENT, PAD_SEGMENT = 2, 4
# The features of words in an example on disk; see `official.shards.features`.
WORD_FEATURES = ("word_lengths", "word_bytes")
# Words are packed by their indices. The first indices stand for padding and the special tokens.
_PADDING, _BEGIN, _END, _FIRST = range(4)


class SpecialIds(Protocol):
    """The properties of a tokenizer that packing needs."""

    @property
    def pad_id(self) -> int: ...  # noqa: D102
    @property
    def cls_id(self) -> int: ...  # noqa: D102
    @property
    def sep_id(self) -> int: ...  # noqa: D102
    @property
    def pairs(self) -> PairForm: ...  # noqa: D102


@dataclasses.dataclass(frozen=True)
class _Specials:
    """Given `SpecialIds`, for another form of pairs or for words that are packed by index."""

    pairs: PairForm
    pad_id: int = _PADDING
    cls_id: int = _BEGIN
    sep_id: int = _END


def telling_apart(tokenizer: SpecialIds) -> SpecialIds:
    """Returns the ids and form of a tokenizer, but with different segment ids for both texts."""
    pairs = dataclasses.replace(tokenizer.pairs, types=TWO)
    return _Specials(pairs, tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id)


def types_of(numbers: tf.Tensor, tokenizer: SpecialIds) -> tf.Tensor:
    """Returns the segment ids of tokens.

    Args:
      numbers: the index of the text of each token, 0 or 1, and 0 for padding, int32.
      tokenizer: has the form of a pair.
    """
    return numbers if tokenizer.pairs.type_of(1) else tf.zeros_like(numbers)


def pack(
    segments: Sequence[tf.RaggedTensor],
    tokenizer: SpecialIds,
    max_length: int,
    layout: str = "cls_first",
    cut: str = "longer",
    pad: bool = False,
) -> dict[str, tf.Tensor]:
    """Packs a batch with graph operations.

    Args:
      segments: one or two batches of ids, int32 [B, None] each.
      tokenizer: has the special ids.
      max_length: maximum number of tokens in an example, including special tokens.
      layout: one of `LAYOUTS`, the `layout` of the encoder's config.
      cut: one of `CUTS`, which text is cut.
      pad: whether rows are padded to `max_length`, and not only to the longest row.

    Returns:
      token_ids int32 [B, T], segment_ids int32 [B, T] (`cls_first`: 0 for padding as well),
      padding_mask bool [B, T].

    Raises:
      UserError: `max_length` has no room for a token of each text.
    """
    room = _room(len(segments), tokenizer, max_length, layout)
    lengths = [tf.cast(ids.row_lengths(), tf.int32) for ids in segments]
    kept = _kept(lengths, room, tf.minimum, tf.maximum, cut, tokenizer.pairs.odd_token)
    batch = tf.shape(lengths[0])[0]
    first = tf.fill([batch, 1], tf.constant(tokenizer.cls_id, tf.int32))
    last = tf.fill([batch, 1], tf.constant(tokenizer.sep_id, tf.int32))
    parts = [first]
    for ids, keep, after in zip(segments, kept, _separators(len(segments), tokenizer), strict=True):
        keep = tf.cast(keep, ids.row_splits.dtype)
        starts = ids.row_limits() - keep if tokenizer.pairs.cut_side == LEFT else ids.row_starts()
        positions = tf.ragged.range(starts, starts + keep)
        parts += [positions.with_values(tf.gather(ids.values, positions.values)), *[last] * after]
    shape = [None, max_length if pad else None]
    token_ids = tf.concat(parts, axis=1).to_tensor(tokenizer.pad_id, shape=shape)  # [B, T]
    totals = num_specials(len(segments), tokenizer) + sum(kept)
    column = tf.range(tf.shape(token_ids)[1])[None, :]
    padding_mask = column < totals[:, None]
    in_second = (column >= kept[0][:, None] + 1 + tokenizer.pairs.separators) & padding_mask
    batch = {
        "token_ids": token_ids,
        "segment_ids": types_of(tf.cast(in_second, tf.int32), tokenizer),
        "padding_mask": padding_mask,
    }
    return arrange(batch, tokenizer, layout)


def arrange(
    batch: dict[str, tf.Tensor], tokenizer: SpecialIds, layout: str
) -> dict[str, tf.Tensor]:
    """Rearranges rows with the layout `cls_first` for another layout.

    Args:
      batch: token_ids int32 [B, T], segment_ids int32 [B, T], padding_mask bool [B, T].
      tokenizer: has the special ids.
      layout: one of `LAYOUTS`.

    Returns:
      The same fields.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout: {layout!r} is not one of {', '.join(LAYOUTS)}")
    if layout == "cls_first":
        return batch
    if layout == "no_cls":
        return {name: values[:, 1:] for name, values in batch.items()}
    mask = batch["padding_mask"]
    width = tf.shape(mask)[1]
    columns = tf.range(width)[None, :]
    start = width - tf.reduce_sum(tf.cast(mask, tf.int32), axis=1, keepdims=True)  # [B, 1]
    real = tf.ensure_shape(columns >= start, mask.shape)
    last = columns == width - 1
    origin = tf.where(last, 0, tf.maximum(columns - start + 1, 0))  # [B, T]

    def moved(name: str, padding: int) -> tf.Tensor:
        return tf.where(real, tf.gather(batch[name], origin, batch_dims=1), padding)

    segment_ids = moved("segment_ids", PAD_SEGMENT)
    return {
        "token_ids": moved("token_ids", tokenizer.pad_id),
        "segment_ids": tf.where(last & real, tokenizer.pairs.type_of(CLS_SEGMENT), segment_ids),
        "padding_mask": real,
    }


def pack_arrays(
    segments: Sequence[np.ndarray],
    tokenizer: SpecialIds,
    max_length: int,
    cut: str = "longer",
) -> tuple[np.ndarray, np.ndarray]:
    """Packs one example in NumPy, with the same ids as `pack`.

    Args:
      segments: the ids of one or two texts.
      tokenizer: has the special ids.
      max_length: maximum number of tokens in the example, including special tokens.
      cut: one of `CUTS`, which text is cut.

    Returns:
      token_ids, int32, unpadded; segment_lengths, int32, the number of tokens in each segment.
      [CLS] belongs to the first segment, and each [SEP] to the segment before it.

    Raises:
      UserError: `max_length` has no room for a token of each text.
    """
    room = _room(len(segments), tokenizer, max_length)
    lengths = [len(ids) for ids in segments]
    kept = _kept(lengths, room, min, max, cut, tokenizer.pairs.odd_token)
    separators = _separators(len(segments), tokenizer)
    parts: list = [[tokenizer.cls_id]]
    for ids, keep, after in zip(segments, kept, separators, strict=True):
        parts += [ids[tokenizer.pairs.kept(len(ids), keep)], [tokenizer.sep_id] * after]
    token_ids = np.concatenate(parts).astype(np.int32)
    sizes = np.array(kept, np.int32) + np.array(separators, np.int32)
    sizes[0] += 1
    return token_ids, sizes


def num_specials(segments: int, tokenizer: SpecialIds, layout: str = "cls_first") -> int:
    """Returns the number of special tokens in an example of one or two texts."""
    return (layout != "no_cls") + sum(_separators(segments, tokenizer))


def pack_texts(
    texts: Sequence[tf.Tensor],
    tokenizer: Tokenizer,
    max_length: int,
    layout: str = "cls_first",
    cut: str = "longer",
    pad: bool = False,
) -> dict[str, tf.Tensor]:
    """Splits and packs texts with graph operations.

    Args:
      texts: one or two batches of UTF-8 strings [B] each.
      tokenizer: the tokenizer.
      max_length: as in `pack`.
      layout: as in `pack`.
      cut: as in `pack`.
      pad: as in `pack`.

    Returns:
      The fields of `pack`, and with a tokenizer of words character_ids int32 [B, T, C].
    """
    if not tokenizer.reads_words:
        ids = [tokenizer.tokenize(t) for t in texts]
        return pack(ids, tokenizer, max_length, layout, cut, pad)
    words = [tokenizer.words(t) for t in texts]
    return pack_words(words, tokenizer, max_length, layout, cut, pad)


def pack_words(
    words: Sequence[tf.RaggedTensor],
    tokenizer: Tokenizer,
    max_length: int,
    layout: str = "cls_first",
    cut: str = "longer",
    pad: bool = False,
) -> dict[str, tf.Tensor]:
    """Packs texts that are split into words, with graph operations.

    Args:
      words: one or two batches of UTF-8 strings [B, None] each.
      tokenizer: the tokenizer, which reads words.
      max_length: as in `pack`.
      layout: as in `pack`.
      cut: as in `pack`.
      pad: as in `pack`.

    Returns:
      The fields of `pack`, and character_ids int32 [B, T, C].
    """
    how = max_length, layout, cut, pad
    batch = pack([tokenizer.numbers(each) for each in words], tokenizer, *how)
    numbered, first = [], _FIRST
    for each in words:
        count = tf.size(each.values)
        numbered.append(each.with_values(tf.range(first, first + count)))
        first += count
    numbers = pack(numbered, _Specials(tokenizer.pairs), *how)["token_ids"]  # [B, T]
    table = [word_characters.of_words(tf.concat([each.values for each in words], 0))]
    specials = np.zeros((_FIRST, word_characters.WIDTH), np.int32)
    specials[_BEGIN] = word_characters.mark(word_characters.SENTENCE_BEGIN)
    specials[_END] = word_characters.mark(word_characters.SENTENCE_END)
    batch["character_ids"] = tf.gather(tf.concat([specials, *table], 0), numbers)
    return batch


def word_features(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Returns the features that `pack_arrays` adds to examples of a tokenizer."""
    return WORD_FEATURES if tokenizer.reads_words else ()


def split_words(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[bytes]] | None:
    """Returns the words of each text in UTF-8; None if the tokenizer does not read words."""
    if not tokenizer.reads_words:
        return None
    _, splits, words = tokenizer.encode_words(texts)
    return [words[a:b].tolist() for a, b in zip(splits[:-1], splits[1:], strict=True)]


def pack_word_arrays(
    segments: Sequence[Sequence[bytes]],
    max_length: int,
    cut: str = "longer",
    pairs: PairForm = Tokenizer.pairs,
) -> dict[str, np.ndarray | bytes]:
    """Packs the words of one example, at the positions of `pack_arrays`.

    Args:
      segments: the words of one or two texts, in UTF-8.
      max_length: maximum number of tokens in the example, including special tokens.
      cut: one of `CUTS`.
      pairs: the form of a pair of the tokenizer.

    Returns:
      The features `WORD_FEATURES`: the number of bytes of each token, 0 for a special token, and
      the bytes of all words, at most `word_characters.MAX_BYTES` of each word.
    """
    words = [word[: word_characters.MAX_BYTES] for segment in segments for word in segment]
    bounds = _FIRST + np.cumsum([0, *map(len, segments)])
    numbered = [np.arange(*pair) for pair in zip(bounds[:-1], bounds[1:], strict=True)]
    numbers, _ = pack_arrays(numbered, _Specials(pairs), max_length, cut)
    kept = [words[n - _FIRST] if n >= _FIRST else b"" for n in numbers.tolist()]
    lengths = np.array([len(word) for word in kept], np.int64)
    return {"word_lengths": lengths, "word_bytes": b"".join(kept)}


def _separators(segments: int, tokenizer: SpecialIds) -> tuple[int, ...]:
    """Returns the number of [SEP] after each text."""
    if segments not in (1, 2):
        raise ValueError(f"expected one or two texts, got {segments}")
    return (1,) if segments == 1 else (tokenizer.pairs.separators, 1)


def _room(segments: int, tokenizer: SpecialIds, max_length: int, layout: str = "cls_first") -> int:
    specials = num_specials(segments, tokenizer, layout)
    if max_length < specials + segments:
        what = "a text" if segments == 1 else "two texts"
        raise UserError(
            f"max_length={max_length} has no room for {what} and {specials} special tokens: "
            f"at least {specials + segments} is needed"
        )
    return max_length - specials


def _kept(lengths, room, smaller, larger, cut, odd_token):
    """Returns the lengths after tokens are cut one by one from the longer text."""
    if cut not in CUTS:
        raise ValueError(f"cut: {cut!r} is not one of {', '.join(CUTS)}")
    if len(lengths) == 1:
        return [smaller(lengths[0], room)]
    if cut == "first":
        second = smaller(lengths[1], room)
        return [smaller(lengths[0], room - second), second]
    if cut == "second":
        first = smaller(lengths[0], room)
        return [first, smaller(lengths[1], room - first)]
    # A text of at most half the room is not cut; the other text gets the remaining room.
    first, second = lengths
    half = (room + 1) // 2
    if odd_token == LONGER:
        # 1 less for the first text if the room is odd and the second text is as long or longer.
        half -= smaller(room % 2, larger(0, second - first + 1))
    return [
        smaller(first, larger(half, room - second)),
        smaller(second, larger(room - half, room - first)),
    ]
