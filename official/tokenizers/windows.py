"""Cuts long contexts into windows, each with the question about them, inside a graph.

A window is a row [CLS] question [SEP] part of the context [SEP], with the separators that the
tokenizer uses for pairs. The next window begins `stride` tokens later, or where this one ends if
that is earlier. The last window contains the end of the context (BERT's release, run_squad.py:
doc_stride, max_query_length). A token that is in several windows is owned by the one in which it
has the most context on its shorter side, or by the first of several equal ones. (The release adds
a hundredth of the window's length, which matters only next to a shorter, last window.)

Encoders with the layout `cls_last` read the context first, as in XLNet's release: context [SEP]
question [SEP] [CLS]. Tokens of the context are numbered from its beginning, so their numbers depend
neither on the window nor on the layout.

Shapes: N questions, W windows of all of them, B windows of a batch, T tokens of the longest one.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official.tokenizers import pair_packing
from official.utils.errors import UserError

# Fields of `pack_windows` with the position of each window; see `official.shards.features`.
POSITIONS = ("context_start", "context_length", "window_start", "own_start", "own_end")


def check(tokenizer: pair_packing.SpecialIds, max_length: int, stride: int, max_query: int) -> None:
    """Checks that a window has room for its question and at least one token of the context.

    Raises:
      UserError: it has no room, or a size is less than 1.
    """
    specials = pair_packing.num_specials(2, tokenizer)
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
    tokenizer: pair_packing.SpecialIds,
    max_length: int,
    stride: int,
    max_query: int,
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """Cuts contexts into windows, each with its question.

    Args:
      questions: ids, int32 [N, None]; those of more than `max_query` tokens are cut at the end.
      contexts: ids, int32 [N, None]; an empty one has one window.
      tokenizer: has the special ids.
      max_length: maximum number of tokens in a window, including special tokens.
      stride: tokens from the start of a window to the start of the next.
      max_query: maximum number of tokens in a question.

    Returns:
      token_ids int32 [W, None], unpadded, and segment_lengths int32 [W, 2] as `pack_arrays`
      returns them; and int32 [W] each: `row`, the number of the question; `context_start`, the
      position in the row of the first token of the context; `context_length`, the number of tokens
      of the context; `window_start`, the number of the first of them in the whole context;
      `own_start` and `own_end`, the numbers of the first token that the window owns and of the
      token after the last one.
    """
    cut = _cut(questions, contexts, tokenizer, max_length, stride, max_query)
    context_start = 1 + cut.question_length + tokenizer.pair_separators
    return {
        "token_ids": _join(questions, contexts, tokenizer, cut),
        "segment_lengths": tf.stack([context_start, cut.length + 1], axis=1),
        "row": cut.row,
        "context_start": context_start,
        "context_length": cut.length,
        "window_start": cut.start,
        "own_start": cut.own_start,
        "own_end": cut.own_end,
    }


class _Cut(NamedTuple):
    """The windows of all questions, int32 [W] each.

    Attributes:
      row: number of the question.
      question_length: tokens of the question, after it is cut.
      start: first token of the window, counted in the whole context.
      length: tokens of the context in the window.
      own_start: first token that the window owns.
      own_end: the token after the last one that the window owns.
    """

    row: tf.Tensor
    question_length: tf.Tensor
    start: tf.Tensor
    length: tf.Tensor
    own_start: tf.Tensor
    own_end: tf.Tensor


def _cut(
    questions: tf.RaggedTensor,
    contexts: tf.RaggedTensor,
    tokenizer: pair_packing.SpecialIds,
    max_length: int,
    stride: int,
    max_query: int,
) -> _Cut:
    question_length = tf.minimum(tf.cast(questions.row_lengths(), tf.int32), max_query)  # [N]
    lengths = tf.cast(contexts.row_lengths(), tf.int32)  # [N]
    room = max_length - pair_packing.num_specials(2, tokenizer) - question_length  # [N]
    step = tf.minimum(room, stride)
    counts = 1 + tf.maximum(lengths - room + step - 1, 0) // step  # [N]
    row = tf.repeat(tf.range(tf.size(counts)), counts)  # [W]
    number = tf.ragged.range(counts).values  # [W], of the window
    step, room, lengths, question_length = (
        tf.gather(values, row) for values in (step, room, lengths, question_length)
    )
    start = number * step
    length = tf.minimum(room, lengths - start)
    last = tf.equal(start + length, lengths)
    # The first of two windows owns the first half of the tokens that both contain.
    own_start = tf.where(number > 0, (start - step + room - 1 + start) // 2 + 1, 0)
    own_end = tf.where(last, lengths, (start + room - 1 + start + step) // 2 + 1)
    return _Cut(row, question_length, start, length, own_start, own_end)


def _join(
    questions: tf.RaggedTensor,
    contexts: tf.RaggedTensor,
    tokenizer: pair_packing.SpecialIds,
    cut: _Cut,
) -> tf.RaggedTensor:
    """Returns the token ids of all windows, special tokens included: int32 [W, None]."""

    def part(ids: tf.RaggedTensor, first: tf.Tensor | int, size: tf.Tensor) -> tf.RaggedTensor:
        begin = tf.cast(tf.gather(ids.row_starts(), cut.row), tf.int32) + first
        positions = tf.ragged.range(begin, begin + size)
        return positions.with_values(tf.gather(ids.values, positions.values))

    cls, sep = (
        tf.fill([tf.size(cut.row), 1], tf.constant(i, tf.int32))
        for i in (tokenizer.cls_id, tokenizer.sep_id)
    )
    question = part(questions, 0, cut.question_length)
    context = part(contexts, cut.start, cut.length)
    separators = [sep] * tokenizer.pair_separators
    return tf.concat([cls, question, *separators, context, sep], axis=1)


def arrange_windows(
    batch: Mapping[str, tf.Tensor], tokenizer: pair_packing.SpecialIds, layout: str
) -> dict[str, tf.Tensor]:
    """Rearranges padded windows for a layout.

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
        # [CLS] Q [SEP] C [SEP] becomes [CLS] C [SEP] Q [SEP], which is then arranged as any pair.
        separators = tokenizer.pair_separators
        asked = start - 1 - separators
        column = tf.range(tf.shape(mask)[1])[None, :]
        question = 1 + length + separators  # where it begins
        origin = tf.where(column < 1 + length, column - 1 + start, column - length + asked)
        origin = tf.where(column < question, origin, column - question + 1)
        origin = tf.where((column == 0) | (column >= total - 1), column, origin)
        second = (column >= question) & mask
        origin = tf.clip_by_value(origin, 0, tf.shape(mask)[1] - 1)
        batch = {
            "token_ids": tf.gather(batch["token_ids"], origin, batch_dims=1),
            "segment_ids": tf.cast(second, tf.int32),
            "padding_mask": mask,
        }
        start = tf.shape(mask)[1] - total  # after the padding
    moved = pair_packing.arrange({name: batch[name] for name in fields}, tokenizer, layout)
    return {**moved, "context_start": start[:, 0]}


def answer_tokens(
    starts: np.ndarray, ends: np.ndarray, answer_start: int, answer_end: int
) -> tuple[int, int] | None:
    """Returns the first and the last token of an answer, or None if no token overlaps it.

    Args:
      starts: first character of each token of the context.
      ends: the character after the last one of each token.
      answer_start: first character of the answer.
      answer_end: the character after its last one.
    """
    inside = np.flatnonzero((ends > answer_start) & (starts < answer_end))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None
