"""A question and the text that may answer it, in windows where that text is long, in a graph.

A window is a row [CLS] question [SEP] some of the context [SEP], with the separators of the
tokenizer's pairs. The next one begins `stride` tokens on (or where this one ends, if that comes
first), until one holds the end of the context (BERT's release, run_squad.py: doc_stride,
max_query_length). A token that several windows hold is owned by one: that in which fewer of its
neighbours are missing, the first of them where several are as good. (The release adds a hundredth
of the window's length to that, which matters next to a shorter, last window only.)

Encoders of the layout `cls_last` read the context first: context [SEP] question [SEP] [CLS], as
XLNet's release has it. Tokens of the context are counted through from its beginning, so that their
numbers depend neither on the window nor on the layout.

Shapes: N questions, W windows of all of them, B windows of a batch, T tokens of the longest one.
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from official.tokenizers import packing
from official.utils.errors import UserError

# What `pack_windows` says of each window beside its tokens; see `official.shards.features`.
PLACES = ("context_start", "context_length", "window_start", "own_start", "own_end")


def check(tokenizer: packing.SpecialIds, max_length: int, stride: int, max_query: int) -> None:
    """Refuses sizes with which no window has room for its question and a token of the context."""
    specials = packing.num_specials(2, tokenizer)
    if stride < 1:
        raise UserError(f"doc_stride: {stride} is less than 1: windows would not go on")
    if max_query < 1:
        raise UserError(f"max_query_length: {max_query} is less than 1")
    if max_length < specials + max_query + 1:
        raise UserError(
            f"max_length: {max_length} has no room for a question of {max_query} tokens "
            f"(max_query_length), {specials} special tokens and a token of the context: at least "
            f"{specials + max_query + 1} is wanted"
        )


def pack_windows(
    questions: tf.RaggedTensor,
    contexts: tf.RaggedTensor,
    tokenizer: packing.SpecialIds,
    max_length: int,
    stride: int,
    max_query: int,
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """Cuts contexts into windows, each with the question that is asked of it.

    Args:
      questions: ids, int32 [N, None]; those of more than `max_query` tokens are cut at the end.
      contexts: ids, int32 [N, None]; an empty one has one window, without a token of it.
      tokenizer: has the special ids.
      max_length: the most tokens of a window, special ones counted.
      stride: tokens from the start of a window to that of the next.
      max_query: the most tokens of a question.

    Returns:
      token_ids int32 [W, None], unpadded, and segment_lengths int32 [W, 2] as `pack_arrays` gives
      them; and int32 [W] each: `row`, the number of the question; `context_start`, where the row
      has the first token of the context; `context_length`, how many it has; `window_start`, the
      number of the first in the whole context; `own_start` and `own_end`, the numbers of the first
      token that the window owns and of the one behind the last.
    """
    between = tokenizer.pair_separators
    asked = tf.minimum(tf.cast(questions.row_lengths(), tf.int32), max_query)  # [N]
    lengths = tf.cast(contexts.row_lengths(), tf.int32)  # [N]
    room = max_length - packing.num_specials(2, tokenizer) - asked  # [N]
    step = tf.minimum(room, stride)
    counts = 1 + tf.maximum(lengths - room + step - 1, 0) // step  # [N]
    row = tf.repeat(tf.range(tf.size(counts)), counts)  # [W]
    number = tf.ragged.range(counts).values  # [W], of the window
    step, room, lengths, asked = (tf.gather(v, row) for v in (step, room, lengths, asked))
    start = number * step
    length = tf.minimum(room, lengths - start)
    last = tf.equal(start + length, lengths)
    # Of what two neighbours share, the first one owns the first half.
    own_start = tf.where(number > 0, (start - step + room - 1 + start) // 2 + 1, 0)
    own_end = tf.where(last, lengths, (start + room - 1 + start + step) // 2 + 1)

    def taken(ids: tf.RaggedTensor, first: tf.Tensor | int, size: tf.Tensor) -> tf.RaggedTensor:
        begin = tf.cast(tf.gather(ids.row_starts(), row), tf.int32) + first
        places = tf.ragged.range(begin, begin + size)
        return places.with_values(tf.gather(ids.values, places.values))

    first, sep = (
        tf.fill([tf.size(row), 1], tf.constant(i, tf.int32))
        for i in (tokenizer.cls_id, tokenizer.sep_id)
    )
    parts = [first, taken(questions, 0, asked), *[sep] * between, taken(contexts, start, length)]
    return {
        "token_ids": tf.concat([*parts, sep], axis=1),
        "segment_lengths": tf.stack([1 + asked + between, length + 1], axis=1),
        "row": row,
        "context_start": 1 + asked + between,
        "context_length": length,
        "window_start": start,
        "own_start": own_start,
        "own_end": own_end,
    }


def arrange_windows(
    batch: Mapping[str, tf.Tensor], tokenizer: packing.SpecialIds, layout: str
) -> dict[str, tf.Tensor]:
    """Brings padded windows into a layout.

    Args:
      batch: token_ids int32 [B, T], segment_ids int32 [B, T], padding_mask bool [B, T], and
        context_start and context_length int32 [B].
      tokenizer: has the special ids.
      layout: one of `packing.LAYOUTS`.

    Returns:
      token_ids, segment_ids, padding_mask and context_start.
    """
    fields = ("token_ids", "segment_ids", "padding_mask")
    start, length = batch["context_start"][:, None], batch["context_length"][:, None]  # [B, 1]
    mask = batch["padding_mask"]
    total = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1, keepdims=True)  # [B, 1]
    if layout == "cls_last":
        # [CLS] Q [SEP] C [SEP] becomes [CLS] C [SEP] Q [SEP], and then is laid out as any pair.
        between = tokenizer.pair_separators
        asked = start - 1 - between
        place = tf.range(tf.shape(mask)[1])[None, :]
        after = 1 + length + between  # where the question begins
        origin = tf.where(place < 1 + length, place - 1 + start, place - 1 - length + 1 + asked)
        origin = tf.where(place < after, origin, place - after + 1)
        origin = tf.where((place == 0) | (place >= total - 1), place, origin)
        second = (place >= after) & mask
        origin = tf.clip_by_value(origin, 0, tf.shape(mask)[1] - 1)
        batch = {
            "token_ids": tf.gather(batch["token_ids"], origin, batch_dims=1),
            "segment_ids": tf.cast(second, tf.int32),
            "padding_mask": mask,
        }
        start = tf.shape(mask)[1] - total  # behind the padding
    moved = packing.arrange({name: batch[name] for name in fields}, tokenizer, layout)
    return {**moved, "context_start": start[:, 0]}


def answer_tokens(
    starts: np.ndarray, ends: np.ndarray, answer_start: int, answer_end: int
) -> tuple[int, int] | None:
    """The tokens that cover an answer, the first and the last; None where none has any of it.

    Args:
      starts: where the tokens of the context begin, in characters.
      ends: where they end.
      answer_start: the answer's first character.
      answer_end: behind its last one.
    """
    inside = np.flatnonzero((ends > answer_start) & (starts < answer_end))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None
