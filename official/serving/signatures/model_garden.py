"""The signatures of the TF Model Garden's NLP exports.

`official/nlp/serving/serving_modules.py` of the Garden has these signatures for sentence prediction
and question answering:

  serve                input_word_ids, input_mask, input_type_ids int32 [B, T]
  serve_examples       examples string [B]: serialized tf.train.Examples with int64 lists of these
                       names, all of the same length. If there is only input_word_ids, the tokens
                       with the id of padding are padding.
  serve_text_examples  examples string [B]: tf.train.Examples with `text`, and `text_b` for pairs
                       (only sentence prediction; the Garden has a setting for the names)

Their outputs are logits: `outputs` [B, C] (C = 1 for a regression), or `start_logits` and
`end_logits` [B, T].

Shapes: B batch, T tokens, C classes.
"""

from collections.abc import Callable

import tensorflow as tf

from official.serving.signatures import inputs

Outputs = dict[str, tf.Tensor]


def signatures(
    context: inputs.ServingContext,
    of_batch: Callable[[Outputs], Outputs],
    of_texts: Callable[..., Outputs] | None = None,
) -> dict[str, inputs.Signature]:
    """Returns the signatures of the Garden.

    Args:
      context: the model. Its task says whether texts come in pairs.
      of_batch: computes the outputs of a batch [B, T].
      of_texts: computes the outputs of texts; None = no `serve_text_examples`.
    """
    column = lambda kind, pad: tf.io.FixedLenSequenceFeature(  # noqa: E731
        [], kind, allow_missing=True, default_value=pad
    )
    pads = dict.fromkeys(inputs.TOKENS, 0) | {"input_word_ids": context.tokenizer.pad_id}

    def serve(*ids):
        return of_batch(inputs.batch_of_ids(context, *ids))

    def serve_examples(examples):
        given = tf.io.parse_example(examples, {n: column(tf.int64, p) for n, p in pads.items()})
        ids, mask, types = (tf.cast(given[name], tf.int32) for name in inputs.TOKENS)
        real = tf.cast(ids != context.tokenizer.pad_id, tf.int32)
        mask = tf.cond(tf.shape(mask)[1] > 0, lambda: mask, lambda: real)
        types = tf.cond(tf.shape(types)[1] > 0, lambda: types, lambda: tf.zeros_like(ids))
        return serve(ids, mask, types)

    def serve_text_examples(examples):
        names = ("text", "text_b") if context.task.get("pair") else ("text",)
        one = tf.io.FixedLenFeature([], tf.string)
        given = tf.io.parse_example(examples, dict.fromkeys(names, one))
        return of_texts(*(inputs.text(given[name]) for name in names))

    by_name = {
        "serve": inputs.signature(serve, *inputs.ids()),
        "serve_examples": inputs.records(serve_examples),
    }
    if of_texts is not None:
        by_name["serve_text_examples"] = inputs.records(serve_text_examples)
    return by_name
