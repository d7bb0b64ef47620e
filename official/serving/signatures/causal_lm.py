"""`generate` and `sample`: continue texts with a causal LM (see `official.serving.generator`).

Shapes: B batch, N new tokens.
"""

import tensorflow as tf

from official.serving import generation_settings, token_loop
from official.serving.generator import Generator
from official.serving.signatures import inputs
from official.utils import seeding


def signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of a causal LM.

    `generate` is greedy, or a search with the beams of `context`: see `seq2seq_lm`.
    """
    tokenizer, options = context.tokenizer, context.settings
    count, rules = options.max_new_tokens, token_loop.options(options)
    generator = Generator(context.config, tokenizer, context.model)
    length = context.max_length - count  # the length of padded texts

    def generate(text: tf.Tensor, **settings: tf.Tensor) -> dict[str, tf.Tensor]:
        read = tokenizer.tokenize(context.with_prefix(text))  # [B, None]
        # The tokens next to the new ones come first, because they are kept if the text is cut.
        nearest = read if generator.backward else tf.reverse(read, axis=[1])
        starts = tf.fill([read.nrows(), 1], generator.start_id)
        rows = tf.concat([nearest[:, : length - 1], starts], axis=1)
        ids = rows.to_tensor(tokenizer.pad_id, shape=[None, length])
        mask = tf.sequence_mask(rows.row_lengths(), length)
        ids, mask = (tf.reverse(values, axis=[1]) for values in (ids, mask))
        searches = options.num_beams > 1 and not settings
        with context.weights.read():
            if searches:
                new = inputs.searched(generator, ids, mask, options)
                read = tf.repeat(read, options.num_return_sequences, axis=0)
            else:
                new = generator.write(ids, mask, count, rules, **settings)
        before_end = tf.cumsum(tf.cast(new == generator.end_id, tf.int32), axis=1) == 0
        kept = tf.ragged.boolean_mask(new, before_end)
        both = [tf.reverse(kept, axis=[1]), read] if generator.backward else [read, kept]
        answer = {"text": tokenizer.join(tf.concat(both, axis=1)), "token_ids": new}
        return inputs.by_text(answer, options) if searches else answer

    def sample(text, temperature, top_k, top_p, seed):
        temperature, top_k, top_p = generation_settings.checked(temperature, top_k, top_p)
        numbers = tf.range(tf.size(text, tf.int64))
        seeds = seeding.row_seeds(seed, 0, numbers)
        return generate(text, seeds=seeds, temperature=temperature, top_k=top_k, top_p=top_p)

    return {
        "generate": inputs.signature(generate, *inputs.texts("text")),
        "sample": inputs.signature(sample, *inputs.texts("text"), *inputs.draws()),
    }
