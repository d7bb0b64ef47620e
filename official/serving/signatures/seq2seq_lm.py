"""`generate` and `sample`: texts from texts (see `official.serving.text_generator`).

Shapes: B batch, N new tokens.
"""

import tensorflow as tf

from official.serving import generation_settings, token_loop
from official.serving.signatures import inputs
from official.serving.text_generator import TextGenerator
from official.utils import seeding

DEFAULT = {"generate": "a text"}
LONG = "cut at"


def signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures. `generate` is greedy, or a search with the beams of `context`.

    With `num_return_sequences` above 1, `generate` returns so many texts for each text: `text`
    [B, S] and `token_ids` [B, S, N].
    """
    tokenizer, settings = context.tokenizer, context.settings
    generator = TextGenerator(context)
    count, rules = settings.max_new_tokens, token_loop.options(settings)

    def packed(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        read = tokenizer.tokenize(context.with_prefix(text))[:, : context.max_length - 1]
        rows = tf.concat([read, tf.fill([read.nrows(), 1], generator.end_id)], axis=1)
        # A batch without texts has a column too.
        length = tf.maximum(tf.reduce_max(rows.row_lengths()), 1)
        ids = rows.to_tensor(tokenizer.pad_id, shape=tf.stack([rows.nrows(), length]))
        return ids, tf.sequence_mask(rows.row_lengths(), length)

    def answer(new: tf.Tensor) -> dict[str, tf.Tensor]:
        before_end = tf.cumsum(tf.cast(new == generator.end_id, tf.int32), axis=1) == 0
        known = tf.where(new < tokenizer.vocab_size, new, tokenizer.unk_id)
        kept = tf.ragged.boolean_mask(known, before_end & (new != tokenizer.pad_id))
        return {"text": tokenizer.join(kept), "token_ids": tf.ensure_shape(new, [None, count])}

    def generate(text: tf.Tensor) -> dict[str, tf.Tensor]:
        with context.weights.read():
            if settings.num_beams == 1:
                return answer(generator.write(*packed(text), count, rules))
            best = inputs.searched(generator, *packed(text), settings)
            return inputs.by_text(answer(best), settings)

    def sample(text, temperature, top_k, top_p, seed):
        temperature, top_k, top_p = generation_settings.checked(temperature, top_k, top_p)
        seeds = seeding.row_seeds(seed, 0, tf.range(tf.size(text, tf.int64)))
        draws = {"seeds": seeds, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        with context.weights.read():
            return answer(generator.write(*packed(text), count, rules, **draws))

    return {
        "generate": inputs.signature(generate, *inputs.texts("text")),
        "sample": inputs.signature(sample, *inputs.texts("text"), *inputs.draws()),
    }
