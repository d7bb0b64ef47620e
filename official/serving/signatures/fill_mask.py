"""`fill_mask` and `fill_mask_tokens`: the most probable tokens at the masks of texts.

They are beside the signatures of the encoder if the model has a masked LM and a mask token (see
`official.serving.generation.mask_filler`). LiteRT has `fill_mask_tokens` alone.

Shapes: B texts, T tokens of the longest one, P masks of the text that has the most, K tokens for
each mask.
"""

import tensorflow as tf

from official.serving.signatures import inputs
from official.tokenizers.pair_packing import pack

TOKENS = "fill_mask_tokens"


def signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of a context with a `filler`."""
    filler, tokenizer = context.filler, context.tokenizer
    assert filler is not None

    def at_masks(batch):
        """Returns the tokens and probabilities at each position, [B, T, K]; 0 without a mask."""
        masks = filler.masks(batch)
        count = tf.reduce_max(tf.concat([batch["top_k"], [1]], axis=0))  # all are the same
        best = filler.best(tf.boolean_mask(filler.encoded(batch), masks), count)
        shape = tf.concat([tf.shape(masks), tf.shape(best[0])[1:]], axis=0)
        placed = [tf.scatter_nd(tf.where(masks), value, tf.cast(shape, tf.int64)) for value in best]
        return {
            name: tf.ensure_shape(value, [None, None, None])
            for name, value in zip(("token_ids", "probabilities"), placed, strict=True)
        }

    scored = context.scorer(at_masks, row_fields=("top_k",))

    def fill_mask(text, top_k):
        layout = context.config.encoder.layout
        batch = pack([filler.tokens(text)], tokenizer, context.max_length, layout)
        masks = filler.masks(batch)
        number = tf.reduce_sum(tf.cast(masks, tf.int32), axis=1)  # [B]
        width = tf.reduce_max(tf.concat([number, [0]], axis=0))  # P
        best = scored({**batch, "top_k": tf.fill(tf.shape(number), _checked(top_k))})
        # The positions of masks come first, in their order.
        columns = tf.argsort(tf.cast(~masks, tf.int32), axis=1, stable=True)[:, :width]
        ids, probabilities = (tf.gather(value, columns, batch_dims=1) for value in best.values())
        flat = tf.reshape(ids, [-1])
        words = tokenizer.join(tf.RaggedTensor.from_row_lengths(flat, tf.ones_like(flat)))
        real = tf.sequence_mask(number, width)[:, :, None] & tf.ones_like(ids, tf.bool)
        words = tf.where(real, tf.reshape(tf.strings.strip(words), tf.shape(ids)), "")
        return {"words": words, "probabilities": probabilities, "token_ids": ids, "number": number}

    def fill_mask_tokens(input_word_ids, input_mask, input_type_ids, masked_positions, top_k):
        batch = inputs.batch_of_ids(context, input_word_ids, input_mask, input_type_ids)
        states = filler.encoded(batch)
        rows = tf.gather(states, masked_positions, batch_dims=1)  # [B, P, D]
        flat = tf.reshape(rows, [-1, states.shape[-1]])
        shape = tf.concat([tf.shape(masked_positions), [-1]], axis=0)
        ids, probabilities = (tf.reshape(x, shape) for x in filler.best(flat, _checked(top_k)))
        return {"token_ids": ids, "probabilities": probabilities}

    count = tf.TensorSpec([], tf.int32, "top_k")
    positions = tf.TensorSpec([None, None], tf.int32, "masked_positions")
    return {
        "fill_mask": inputs.signature(fill_mask, *inputs.texts("text"), count),
        TOKENS: inputs.signature(fill_mask_tokens, *inputs.ids(), positions, count),
    }


def _checked(top_k: tf.Tensor) -> tf.Tensor:
    """Returns `top_k`, at least 1."""
    return tf.maximum(top_k, 1)
