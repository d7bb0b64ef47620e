"""`choose` and `tokens`: the probabilities of the choices of each question.

Shapes: B batch, K choices, T tokens of the longest sequence in the batch, N = B * K.
"""

import tensorflow as tf

from official.serving.signatures import inputs
from official.tasks.choice_text import joined
from official.tokenizers.pair_packing import pack

DEFAULT = {"choose": "context, question and choices"}
LONG = "cut at"


def signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of multiple choice. Choices replace blanks as in training."""
    head, tokenizer = context.task_head, context.tokenizer
    layout = context.config.encoder.layout
    blank = context.task.get("blank", False)
    scored = context.scorer(lambda batch: {"scores": head.outputs(context.encode(batch))[:, 0]})

    def answer(batch: dict, shape: tf.Tensor) -> dict[str, tf.Tensor]:
        # The number of choices is known even if there are no questions.
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
        segments = [tf.gather(tokenizer.tokenize(passage), numbers), tokenizer.tokenize(texts)]
        packed = pack(segments, tokenizer, context.max_length, layout, cut="first")
        outputs = answer(packed, shape)
        chosen = tf.gather(choices, outputs["index"], axis=1, batch_dims=1)
        return {**outputs, "choice": chosen}

    def of_batch(batch):
        shape = tf.shape(batch["token_ids"])
        count = tf.reduce_prod(shape[:2])
        flat = {n: tf.reshape(v, tf.stack([count, shape[2]])) for n, v in batch.items()}
        return answer(flat, shape[:2])

    several = tf.TensorSpec([None, None], tf.string, "choices")
    return {
        "choose": inputs.signature(choose, *inputs.texts("context", "question"), several),
        "tokens": inputs.of_ids(context, of_batch, rank=3),
    }
