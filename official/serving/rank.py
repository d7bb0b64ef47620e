"""`rank` and `tokens`: how well each document answers a query.

Shapes: B documents.
"""

import tensorflow as tf

from official.sequences import text_mask
from official.serving import doors, rows
from official.tokenizers.packing import pack


def signatures(parts: doors.Parts) -> dict[str, doors.Signature]:
    """The signatures of a ranking."""
    head, tokenizer = parts.head, parts.tokenizer
    layout = parts.config.encoder.layout

    def score(batch):
        text = text_mask(batch["token_ids"], batch["padding_mask"], tokenizer.special_ids)
        ready = head.prepare({**batch, "text_mask": text})
        return {"scores": head.scores(ready, parts.encode(ready))}

    scored = rows.scorer(score, parts.config.encoder)

    def rank(query, documents):
        given, wanted = tf.size(query), tf.size(documents)
        fits = tf.debugging.assert_equal(
            tf.logical_or(tf.equal(given, 1), tf.equal(given, wanted)),
            True,
            "give one query, or as many queries as documents",
        )
        with tf.control_dependencies([fits]):
            numbers = tf.minimum(tf.range(wanted), given - 1)  # one query is read once
        both = [tf.gather(tokenizer.tokenize(query), numbers), tokenizer.tokenize(documents)]
        return scored(pack(both, tokenizer, parts.max_length, layout))

    def tokens(*ids):
        return scored(doors.batch_of_ids(parts, *ids))

    return {
        "rank": doors.signature(rank, *doors.texts("query", "documents")),
        "tokens": doors.signature(tokens, *doors.ids()),
    }
