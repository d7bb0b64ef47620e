"""`rank_candidates`: the score of each candidate for the pronoun of a sentence.

The place of the pronoun is a blank, a run of underscores. A candidate is written into the blank as
it is, and its tokens become masks, as in training.

Shapes: B candidates, T tokens of the longest sentence, P tokens of the longest candidate.
"""

import tensorflow as tf

from official.data.fields import candidate_fields
from official.serving.compute import length_groups
from official.serving.signatures import inputs
from official.serving.signatures.ranking import Score, of_texts
from official.shards.features import NO_CANDIDATE
from official.tokenizers.pair_packing import num_specials, pack

BLANK = "_+"
DEFAULT = {"rank_candidates": "a sentence with a blank, and candidates for it"}
LONG = "refused from more than"


def signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signature that ranks candidates."""
    scored = context.scorer(_score(context), token_fields=("candidate_ids",))
    return {"rank_candidates": of_texts(context, _read, scored)}


def _read(
    query: tf.Tensor, documents: tf.Tensor, numbers: tf.Tensor, context: inputs.ServingContext
) -> length_groups.Tensors:
    """Returns the rows, with `candidate_ids` int32 [B, T], -1 at other tokens."""
    tokenizer, specials = context.tokenizer, num_specials(1, context.tokenizer)
    parts = tf.strings.split(tf.strings.regex_replace(query, BLANK, "_"), "_")
    two = tf.constant(2, tf.int64)
    one_blank = tf.debugging.assert_equal(
        parts.row_lengths(), two, "query: a sentence needs one blank (_)"
    )
    with tf.control_dependencies([one_blank]):
        around = tf.gather(tf.reshape(parts.flat_values, [-1, 2]), numbers)
    before, after = tf.unstack(around, axis=1)
    tokens = tokenizer.tokenize_with_offsets(tf.strings.join([before, documents, after]))
    start = tf.strings.length(before, "UTF8_CHAR")
    end = start + tf.strings.length(documents, "UTF8_CHAR")
    rows = tokens.ids.value_rowids()
    behind_start = tokens.ends.values > tf.gather(start, rows)
    inside = behind_start & (tokens.starts.values < tf.gather(end, rows))
    number = tf.reduce_sum(tokens.ids.with_values(tf.cast(inside, tf.int32)), axis=1)
    checks = [
        tf.debugging.assert_greater(number, 0, "documents: a candidate has no tokens"),
        tf.debugging.assert_less_equal(
            tokens.ids.row_lengths(),
            tf.constant(context.max_length - specials, tf.int64),
            f"query: a sentence with its candidate has over {context.max_length} tokens",
        ),
    ]
    with tf.control_dependencies(checks):
        hidden = tf.where(inside, tokenizer.mask_id, tokens.ids.values)
    batch = pack([tokens.ids.with_values(hidden)], tokenizer, context.max_length)
    ids = tokens.ids.with_values(tf.where(inside, tokens.ids.values, NO_CANDIDATE))
    shape = tf.shape(batch["token_ids"]) - [0, 1]  # [CLS] comes before them
    ids = ids.to_tensor(NO_CANDIDATE, shape=shape)
    return {**batch, "candidate_ids": tf.pad(ids, [[0, 0], [1, 0]], constant_values=NO_CANDIDATE)}


def _score(context: inputs.ServingContext) -> Score:
    """Returns a function that scores the rows of a batch."""

    def score(batch):
        lengths = tf.reduce_sum(tf.cast(batch["candidate_ids"] >= 0, tf.int32), axis=1)
        longest = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
        ready = {**batch, **candidate_fields(batch["candidate_ids"], longest)}
        encoded = context.encode(ready)
        with context.weights.read():
            return {"scores": context.task_head.scores(ready, encoded, context.model.encoder)}

    return score
