"""The part of a SavedModel that chooses: context, question and choices in, probabilities out.

Shapes: B batch, K choices, T tokens of the longest sequence in the batch.
"""

from collections.abc import Mapping

import tensorflow as tf

from official import config as config_lib
from official import tokenizers
from official.choices import joined_tensors
from official.model import Model
from official.tokenizers.packing import pack


def make(
    config: config_lib.Config,
    tokenizer: tokenizers.Tokenizer,
    model: Model,
    max_length: int,
    blank: bool,
    names: Mapping[str, str],
) -> tf.Module:
    """An object with the functions `choose` and `tokens`, and all that they need.

    Args:
      config: of the model.
      tokenizer: of the model.
      model: with the objective multiple_choice.
      max_length: longest sequence in tokens.
      blank: whether choices are put into the blank of a question, as in training.
      names: what the inputs of `tokens` are called, and the fields of a batch that they are.
    """
    server = tf.Module()
    server.tokenizer = tokenizer.module()
    heads = [
        head
        for head, kind in zip(model.objectives, config.objectives, strict=True)
        if config_lib.type_of(kind) == "multiple_choice"
    ]
    server.weights = [
        variable.value for layer in (model.encoder, *heads) for variable in layer.variables
    ]
    text = {name: tf.TensorSpec([None], tf.string, name) for name in ("context", "question")}
    several = tf.TensorSpec([None, None], tf.string, "choices")
    ids = {name: tf.TensorSpec([None, None, None], tf.int32, name) for name in names}

    def answer(batch: dict) -> dict[str, tf.Tensor]:
        shape = tf.shape(batch["token_ids"])[:2]
        batch = model.prepare({**batch, "example_weights": tf.ones(shape[:1])})
        # Of no questions, too, there are as many choices as were given.
        probabilities = tf.reshape(model.predictions(batch)["probabilities"], shape)
        index = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return {"probabilities": probabilities, "index": index}

    def choose(context, question, choices):
        rows, count = tf.unstack(tf.shape(choices))
        same = "context, question and choices are to have as many rows"
        with tf.control_dependencies(
            [
                tf.debugging.assert_equal(tf.size(context), rows, same),
                tf.debugging.assert_equal(tf.size(question), rows, same),
                tf.debugging.assert_greater(count, 0, "choices: there is none to choose from"),
            ]
        ):
            # Bytes that are not UTF-8 become U+FFFD, as `bytes.decode(errors="replace")` has it.
            context, question, read = (
                tf.strings.unicode_transcode(t, "UTF-8", "UTF-8")
                for t in (context, question, tf.reshape(choices, [-1]))
            )
        numbers = tf.repeat(tf.range(rows), count)
        texts = joined_tensors(tf.gather(question, numbers), read, blank)
        segments = [tf.gather(tokenizer.tokenize(context), numbers), tokenizer.tokenize(texts)]
        packed = pack(segments, tokenizer, max_length, config.encoder.layout, cut="first")
        # Where there is no row at all, there still is the first position that a pooler reads.
        none = tf.cast(tf.equal(rows, 0), tf.int32)
        packed = {name: tf.pad(value, [[0, 0], [0, none]]) for name, value in packed.items()}
        shape = lambda value: tf.stack([rows, count, tf.shape(value)[1]])  # noqa: E731
        outputs = answer({name: tf.reshape(v, shape(v)) for name, v in packed.items()})
        chosen = tf.gather(choices, outputs["index"], axis=1, batch_dims=1)
        return {**outputs, "choice": chosen}

    def tokens(input_word_ids, input_mask, input_type_ids):
        most = config.encoder.max_positions
        length = tf.shape(input_word_ids)[2]
        with tf.control_dependencies(
            [
                tf.debugging.assert_less_equal(
                    length, most, f"this encoder takes at most {most} tokens"
                )
            ]
        ):
            given = (tf.identity(input_word_ids), input_mask, input_type_ids)
            return answer(dict(zip(names.values(), given, strict=True)))

    server.choose = tf.function(
        choose, input_signature=[text["context"], text["question"], several], autograph=False
    )
    server.tokens = tf.function(tokens, input_signature=list(ids.values()), autograph=False)
    return server
