"""`rank` and `tokens`: the score of each document for a query.

With `output: sigmoid` the scores are from 0 to 1, and `logits` are the same without the sigmoid.

Shapes: B documents.
"""

from collections.abc import Callable

import tensorflow as tf

from official.data.fields import text_mask
from official.serving.compute import length_groups
from official.serving.signatures import inputs
from official.tokenizers.pair_packing import SpecialIds, pack, telling_apart

DEFAULT = {"rank": "a query and documents"}
LONG = "cut at"

Score = Callable[[length_groups.Tensors], length_groups.Tensors]


def signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of a ranking."""
    scored = context.scorer(_score(context))
    return {
        "rank": _of_texts(context, scored),
        "tokens": inputs.of_ids(context, scored),
    }


def _of_texts(context: inputs.ServingContext, scored: Score) -> inputs.Signature:
    """Makes a signature that takes `query` and `documents` and returns outputs [B]."""
    prompt = context.task_head.config.prompt

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
        queries = tf.strings.join([prompt, query]) if prompt else query
        return scored(_read(queries, documents, numbers, context))

    return inputs.signature(rank, *inputs.texts("query", "documents"))


def _read(
    query: tf.Tensor, documents: tf.Tensor, numbers: tf.Tensor, context: inputs.ServingContext
) -> length_groups.Tensors:
    """Returns the rows."""
    tokenizer, layout = context.tokenizer, context.config.encoder.layout
    both = [tf.gather(tokenizer.tokenize(query), numbers), tokenizer.tokenize(documents)]
    apart = context.task_head.config.texts_apart
    packing: SpecialIds = telling_apart(tokenizer) if apart else tokenizer
    return pack(both, packing, context.max_length, layout)


def _score(context: inputs.ServingContext) -> Score:
    """Returns a function that scores the rows of a batch."""
    head, special_ids = context.task_head, context.tokenizer.special_ids

    def score(batch):
        text = text_mask(batch["token_ids"], batch["padding_mask"], special_ids)
        ready = head.prepare({**batch, "text_mask": text})
        encoded = context.encode(ready)
        outputs = head.matched_outputs(ready, encoded, context.model.encoder)
        scores = head.predictions_of(outputs, ready)["score"]
        if head.link is None:
            return {"scores": scores}
        return {"scores": scores, "logits": tf.reshape(outputs, [-1])}

    return score
