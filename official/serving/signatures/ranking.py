"""`rank` and `tokens`: the score of each document for a query.

Shapes: B documents.
"""

import tensorflow as tf

from official.data.fields import text_mask
from official.serving.signatures import inputs
from official.tokenizers.pair_packing import pack

DEFAULT = {"rank": "a query and documents"}
LONG = "cut at"


def signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of a ranking."""
    head, tokenizer = context.task_head, context.tokenizer
    layout = context.config.encoder.layout

    def score(batch):
        text = text_mask(batch["token_ids"], batch["padding_mask"], tokenizer.special_ids)
        ready = head.prepare({**batch, "text_mask": text})
        return {"scores": head.scores(ready, context.encode(ready))}

    scored = context.scorer(score)

    def rank(query, documents):
        num_queries, num_documents = tf.size(query), tf.size(documents)
        fits = tf.debugging.assert_equal(
            tf.logical_or(tf.equal(num_queries, 1), tf.equal(num_queries, num_documents)),
            True,
            "give one query, or as many queries as documents",
        )
        with tf.control_dependencies([fits]):
            # A single query is tokenized once.
            numbers = tf.minimum(tf.range(num_documents), num_queries - 1)
        both = [tf.gather(tokenizer.tokenize(query), numbers), tokenizer.tokenize(documents)]
        return scored(pack(both, tokenizer, context.max_length, layout))

    return {
        "rank": inputs.signature(rank, *inputs.texts("query", "documents")),
        "tokens": inputs.of_ids(context, scored),
    }
