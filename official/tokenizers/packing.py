"""Packs one or two texts as [CLS] A [SEP] or [CLS] A [SEP] B [SEP].

The tokenizer defines the number of [SEP] between the texts of a pair: RoBERTa's pairs are
<s> A </s></s> B </s>.

This is the layout `cls_first`, in which task shards are written. XLNet's layout has the same tokens
in another order. `arrange` rearranges them when shards are read:

  cls_first  [CLS] A [SEP] B [SEP] [PAD] [PAD]    segments  0 0 0 1 1 0 0
  cls_last   [PAD] [PAD] A [SEP] B [SEP] [CLS]    segments  4 4 0 0 1 1 2
  no_cls     A [SEP] B [SEP] [PAD] [PAD]          segments  0 0 1 1 0 0

In `cls_last`, [CLS] is the last token of all rows, next to the text and never next to padding, and
rows end as in pretraining (Yang et al., 2019, section 2.5; the release's classifier_utils.py).
These encoders use only distances, and no token attends to padding, so the amount of padding on the
left has no effect. `no_cls` is the layout of T5's texts, whose [SEP] is the end token.

Long examples are cut at the end, token by token from the text that is longer at the time (from B if
both are equal), as in BERT's fine-tuning. With `cut="first"` only A is cut, and B only if nothing
is left of A. This is for a question and a choice next to a long text.

Shapes: B examples, T tokens of the longest one.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from official.utils.errors import UserError

LAYOUTS = ("cls_first", "cls_last", "no_cls")
CUTS = ("longer", "first")
# Segment ids of `cls_last`. The texts have the segment ids 0 and 1.
CLS_SEGMENT, PAD_SEGMENT = 2, 4


class SpecialIds(Protocol):
    """The properties of a tokenizer that packing needs."""

    pad_id: int
    cls_id: int
    sep_id: int
    pair_separators: int


def pack(
    segments: Sequence[tf.RaggedTensor],
    tokenizer: SpecialIds,
    max_length: int,
    layout: str = "cls_first",
    cut: str = "longer",
) -> dict[str, tf.Tensor]:
    """Packs a batch with graph operations.

    Args:
      segments: one or two batches of ids, int32 [B, None] each.
      tokenizer: has the special ids.
      max_length: maximum number of tokens in an example, including special tokens.
      layout: one of `LAYOUTS`, the `layout` of the encoder's config.
      cut: one of `CUTS`, which text is cut.

    Returns:
      token_ids int32 [B, T], segment_ids int32 [B, T] (`cls_first`: 0 for padding as well),
      padding_mask bool [B, T].

    Raises:
      UserError: `max_length` has no room for a token of each text.
    """
    room = _room(len(segments), tokenizer, max_length, layout)
    lengths = [tf.cast(ids.row_lengths(), tf.int32) for ids in segments]
    kept = _kept(lengths, room, tf.minimum, tf.maximum, cut)
    batch = tf.shape(lengths[0])[0]
    first = tf.fill([batch, 1], tf.constant(tokenizer.cls_id, tf.int32))
    last = tf.fill([batch, 1], tf.constant(tokenizer.sep_id, tf.int32))
    parts = [first]
    for ids, keep, after in zip(segments, kept, _separators(len(segments), tokenizer), strict=True):
        starts = ids.row_starts()
        positions = tf.ragged.range(starts, starts + tf.cast(keep, starts.dtype))
        parts += [positions.with_values(tf.gather(ids.values, positions.values)), *[last] * after]
    token_ids = tf.concat(parts, axis=1).to_tensor(tokenizer.pad_id)  # [B, T]
    totals = num_specials(len(segments), tokenizer) + sum(kept)
    column = tf.range(tf.shape(token_ids)[1])[None, :]
    padding_mask = column < totals[:, None]
    in_second = (column >= kept[0][:, None] + 1 + tokenizer.pair_separators) & padding_mask
    batch = {
        "token_ids": token_ids,
        "segment_ids": tf.cast(in_second, tf.int32),
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
        "segment_ids": tf.where(last & real, CLS_SEGMENT, segment_ids),
        "padding_mask": real,
    }


def pack_arrays(
    segments: Sequence[np.ndarray],
    tokenizer: SpecialIds,
    max_length: int,
    cut: str = "longer",
) -> tuple[np.ndarray, np.ndarray]:
    """Packs one example with numpy, with the same ids as `pack`.

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
    kept = _kept([len(ids) for ids in segments], room, min, max, cut)
    separators = _separators(len(segments), tokenizer)
    parts: list = [[tokenizer.cls_id]]
    for ids, keep, after in zip(segments, kept, separators, strict=True):
        parts += [ids[:keep], [tokenizer.sep_id] * after]
    token_ids = np.concatenate(parts).astype(np.int32)
    lengths = np.array(kept, np.int32) + np.array(separators, np.int32)
    lengths[0] += 1
    return token_ids, lengths


def num_specials(segments: int, tokenizer: SpecialIds, layout: str = "cls_first") -> int:
    """Returns the number of special tokens in an example of one or two texts."""
    return (layout != "no_cls") + sum(_separators(segments, tokenizer))


def _separators(segments: int, tokenizer: SpecialIds) -> tuple[int, ...]:
    """Returns the number of [SEP] after each text."""
    if segments not in (1, 2):
        raise ValueError(f"one or two texts are wanted, not {segments}")
    return (1,) if segments == 1 else (tokenizer.pair_separators, 1)


def _room(segments: int, tokenizer: SpecialIds, max_length: int, layout: str = "cls_first") -> int:
    specials = num_specials(segments, tokenizer, layout)
    if max_length < specials + segments:
        what = "a text" if segments == 1 else "two texts"
        raise UserError(
            f"max_length={max_length} has no room for {what} and {specials} special tokens: "
            f"at least {specials + segments} is wanted"
        )
    return max_length - specials


def _kept(lengths, room, smaller, larger, cut):
    """Returns the lengths after tokens are cut one by one from the longer text."""
    if cut not in CUTS:
        raise ValueError(f"cut: {cut!r} is not one of {', '.join(CUTS)}")
    if len(lengths) == 1:
        return [smaller(lengths[0], room)]
    if cut == "first":
        second = smaller(lengths[1], room)
        return [smaller(lengths[0], room - second), second]
    # A text within its half is not cut; the other text gets the rest of the room.
    first, second = lengths
    return [
        smaller(first, larger((room + 1) // 2, room - second)),
        smaller(second, larger(room // 2, room - first)),
    ]
