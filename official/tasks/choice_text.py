"""Joins a question and one of its choices into one text, eagerly or in a graph.

If the question has a blank, the choice replaces it, as the releases of XLNet, ALBERT and RoBERTa do
for RACE. Otherwise the choice follows the question after a space.

Shapes: N pairs of a question and a choice; a ragged dimension is written None.
"""

import tensorflow as tf


def joined(questions: tf.Tensor, choices: tf.Tensor, blank: bool) -> tf.Tensor:
    """Returns the texts of questions and choices.

    Args:
      questions: the questions, which may be empty, string [N].
      choices: a choice for each question, string [N].
      blank: whether the choice replaces runs of underscores; see `official.tasks.Task`.

    Returns:
      string [N].
    """
    behind = tf.where(questions == "", choices, tf.strings.join([questions, choices], " "))
    if not blank:
        return behind
    pieces = tf.strings.split(tf.strings.regex_replace(questions, "_+", "_"), "_")  # [N, None]
    rows = pieces.value_rowids()
    before = tf.concat([[-1], rows[:-1]], axis=0)
    filled = tf.where(
        rows == before,
        tf.strings.join([tf.gather(choices, rows), pieces.values]),
        pieces.values,
    )
    filled = tf.strings.unsorted_segment_join(filled, rows, tf.size(questions))
    return tf.where(pieces.row_lengths() > 1, filled, behind)
