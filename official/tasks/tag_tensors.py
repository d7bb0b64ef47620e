"""The entities of tags in a graph, by the rule of `official.tasks.tags.entities`.

Of tags that mark no entities (parts of speech), each word is one, and its type is the tag.

Shapes: N texts, C tags; a ragged dimension is written None.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from official.tasks import tags as tag_rules


class Entities(NamedTuple):
    """The entities of texts.

    Attributes:
      types: string [N, None].
      starts: int32 [N, None], the number of the first word.
      ends: int32 [N, None], the number of the word after the last one.
      scores: float32 [N, None], the mean probability of the tags of the words.
    """

    types: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    scores: tf.RaggedTensor


def entities(
    tags: tf.RaggedTensor, probabilities: tf.RaggedTensor, labels: Sequence[str]
) -> Entities:
    """Returns the entities of the tags of texts.

    Args:
      tags: the number of the tag of each word, int32 [N, None]; -1 is `O`.
      probabilities: the probability of each tag, float32 [N, None].
      labels: the C tags, in the order of their numbers.

    Raises:
      UserError: some labels are tags of BIO or BIOES, and others are not.
    """
    if tag_rules.scheme(labels) == tag_rules.PLAIN:
        parts = [("S", label) for label in (*labels, tag_rules.OUTSIDE)]
    else:
        parts = [tag_rules.split(label) for label in (*labels, tag_rules.OUTSIDE)]
    kinds = [*dict.fromkeys(kind for _, kind in parts)]
    number = tf.where(tags.values < 0, len(labels), tags.values)
    prefix = tf.gather(tf.constant([prefix for prefix, _ in parts]), number)
    kind = tf.gather(tf.constant([kinds.index(kind) for _, kind in parts], tf.int32), number)
    rows = tags.value_rowids()
    continues = (
        _either(prefix[1:], "IE")
        & _either(prefix[:-1], "BI")
        & tf.equal(kind[1:], kind[:-1])
        & tf.equal(rows[1:], rows[:-1])
    )
    continues = tf.concat([[False], continues], 0)[: tf.size(number)]
    inside = tf.not_equal(prefix, tag_rules.OUTSIDE)
    begins = inside & ~continues
    entity = tf.boolean_mask(tf.cumsum(tf.cast(begins, tf.int32)) - 1, inside)
    total = tf.reduce_sum(tf.cast(begins, tf.int32))
    sizes = tf.math.bincount(entity, minlength=total, maxlength=total)
    scores = tf.math.unsorted_segment_mean(
        tf.boolean_mask(probabilities.values, inside), entity, total
    )
    columns = tf.ragged.range(tf.cast(tags.row_lengths(), tf.int32)).values
    starts = tf.boolean_mask(columns, begins)
    types = tf.gather(tf.constant(kinds), tf.boolean_mask(kind, begins))
    ragged = tf.RaggedTensor.from_value_rowids(
        types, tf.boolean_mask(rows, begins), tags.nrows(), validate=False
    )
    return Entities(ragged, *(ragged.with_values(x) for x in (starts, starts + sizes, scores)))


def _either(prefix: tf.Tensor, two: str) -> tf.Tensor:
    return tf.equal(prefix, two[0]) | tf.equal(prefix, two[1])
