"""Joins a question and one of its choices into one text.

If the question has a blank, the choice replaces it, as the releases of XLNet, ALBERT and RoBERTa do
for RACE. Otherwise the choice follows the question after a space.

Shapes: N pairs of a question and a choice.
"""

import re

import tensorflow as tf

_BLANK = "_+"


def joined(question: str, choice: str, blank: bool) -> str:
    """Returns the text of a question and a choice.

    Args:
      question: the question, which may be empty.
      choice: one of its choices.
      blank: whether the choice replaces runs of underscores; see `official.tasks.Task`.
    """
    if blank and "_" in question:
        return re.sub(_BLANK, lambda _: choice, question)
    return f"{question} {choice}" if question else choice


def joined_tensors(questions: tf.Tensor, choices: tf.Tensor, blank: bool) -> tf.Tensor:
    """Returns the same as `joined` in a graph: string [N], from strings [N]."""
    behind = tf.where(questions == "", choices, tf.strings.join([questions, choices], " "))
    if not blank:
        return behind
    pieces = tf.strings.split(tf.strings.regex_replace(questions, _BLANK, "_"), "_")  # [N, None]
    rows = pieces.value_rowids()
    before = tf.concat([[-1], rows[:-1]], axis=0)
    filled = tf.where(
        rows == before,
        tf.strings.join([tf.gather(choices, rows), pieces.values]),
        pieces.values,
    )
    filled = tf.strings.unsorted_segment_join(filled, rows, tf.size(questions))
    return tf.where(pieces.row_lengths() > 1, filled, behind)
