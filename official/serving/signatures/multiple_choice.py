"""`choose` and `tokens`: the probabilities of the choices of each question.

Shapes: B batch, K choices, T tokens of the longest sequence in the batch, N = B * K.
"""

from collections.abc import Callable

import tensorflow as tf

from official.serving.compute import length_groups
from official.serving.signatures import inputs
from official.tasks.choice_text import joined
from official.tokenizers.pair_packing import pack

DEFAULT = {"choose": "context, question and choices"}
LONG = "cut at"


def signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of multiple choice. Rows have the form of training."""
    blank = context.task.get("blank", False)
    choice_first = context.task.get("choice_first", False)
    max_choice_length = context.task.get("max_choice_length")
    scored = context.scorer(_score(context))
    tokenizer, layout = context.tokenizer, context.config.encoder.layout

    def answer(batch: dict, shape: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the answers from N rows.

        `shape` is [B, K]: the number of choices is known even if there are no questions.
        """
        probabilities = tf.nn.softmax(tf.reshape(scored(batch)["scores"], shape))
        index = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return {"probabilities": probabilities, "index": index}

    def choose(passage, question, choices):
        shape = tf.shape(choices)
        count, each = tf.unstack(shape)
        same = "context, question and choices must have the same number of rows"
        with tf.control_dependencies(
            [
                tf.debugging.assert_equal(tf.size(passage), count, same),
                tf.debugging.assert_equal(tf.size(question), count, same),
                tf.debugging.assert_greater(each, 0, "choices: each question needs at least one"),
            ]
        ):
            numbers = tf.repeat(tf.range(count), each)
        texts = joined(tf.gather(question, numbers), tf.reshape(choices, [-1]), blank)
        passages = tf.gather(tokenizer.tokenize(passage), numbers)
        asked = tokenizer.tokenize(texts)
        if max_choice_length is not None:
            asked = asked[:, :max_choice_length]
        segments, cut = [passages, asked], "first"
        if choice_first:
            segments, cut = [asked, passages], "second"
        batch = pack(segments, tokenizer, context.max_length, layout, cut=cut)
        outputs = answer(batch, shape)
        chosen = tf.gather(choices, outputs["index"], axis=1, batch_dims=1)
        return {**outputs, "choice": chosen}

    def of_batch(batch):
        shape = tf.shape(batch["token_ids"])
        count = tf.reduce_prod(shape[:2])
        flat = {n: tf.reshape(v, tf.stack([count, shape[2]])) for n, v in batch.items()}
        return answer(flat, shape[:2])

    several = tf.TensorSpec([None, None], tf.string, "choices")
    choosing = inputs.signature(choose, *inputs.texts("context", "question"), several)
    return {"choose": choosing, "tokens": inputs.of_ids(context, of_batch, rank=3)}


def _score(
    context: inputs.ServingContext,
) -> Callable[[length_groups.Tensors], length_groups.Tensors]:
    """Returns a function that scores the rows of a batch, one for each choice: [N]."""
    return lambda batch: {"scores": context.task_head.outputs(context.encode(batch))[:, 0]}
