"""The signatures of the TF Model Garden's NLP exports, beside ours, where they mean the same.

`official/nlp/serving/serving_modules.py` there has, for sentence prediction and question answering,

  serve                input_word_ids, input_mask, input_type_ids int32 [B, T]
  serve_examples       examples string [B]: a serialised tf.train.Example each, with int64 lists of
                       these names, all of one length; of input_word_ids alone, too: then padding is
                       what has the padding's id
  serve_text_examples  examples string [B]: tf.train.Example with `text`, and `text_b` for pairs
                       (sentence prediction alone; the names of texts are a setting there)

and gives `outputs` [B, C], logits (of a regression C is 1), or `start_logits` and `end_logits`
[B, T].

Shapes: B batch, T tokens, C classes.
"""

from collections.abc import Callable

import tensorflow as tf

from official.serving.signatures import inputs

Outputs = dict[str, tf.Tensor]


def signatures(
    parts: inputs.ServingContext,
    of_batch: Callable[[Outputs], Outputs],
    of_texts: Callable[..., Outputs] | None = None,
) -> dict[str, inputs.Signature]:
    """The Garden's signatures.

    Args:
      parts: what they are made of; the task says whether its texts are pairs.
      of_batch: from a batch [B, T] to what they give.
      of_texts: the same from texts; None = there is no `serve_text_examples`.
    """
    column = lambda kind, pad: tf.io.FixedLenSequenceFeature(  # noqa: E731
        [], kind, allow_missing=True, default_value=pad
    )
    pads = dict.fromkeys(inputs.TOKENS, 0) | {"input_word_ids": parts.tokenizer.pad_id}

    def serve(*ids):
        return of_batch(inputs.batch_of_ids(parts, *ids))

    def serve_examples(examples):
        given = tf.io.parse_example(examples, {n: column(tf.int64, p) for n, p in pads.items()})
        ids, mask, types = (tf.cast(given[name], tf.int32) for name in inputs.TOKENS)
        real = tf.cast(ids != parts.tokenizer.pad_id, tf.int32)
        mask = tf.cond(tf.shape(mask)[1] > 0, lambda: mask, lambda: real)
        types = tf.cond(tf.shape(types)[1] > 0, lambda: types, lambda: tf.zeros_like(ids))
        return serve(ids, mask, types)

    def serve_text_examples(examples):
        names = ("text", "text_b") if parts.task.get("pair") else ("text",)
        one = tf.io.FixedLenFeature([], tf.string)
        given = tf.io.parse_example(examples, dict.fromkeys(names, one))
        return of_texts(*(inputs.text(given[name]) for name in names))

    made = {
        "serve": inputs.signature(serve, *inputs.ids()),
        "serve_examples": inputs.records(serve_examples),
    }
    if of_texts is not None:
        made["serve_text_examples"] = inputs.records(serve_text_examples)
    return made
