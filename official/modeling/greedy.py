"""Greedy decoding of an encoder-decoder: at each step the likeliest token.

Shapes: B batch, T tokens of the input, U tokens of the output, D hidden, V vocabulary.
"""

from keras import ops

from official.modeling import masks


def generate(model, batch, encoded, length, end_id, pad_id=0):
    """Generates the likeliest next token until every row has ended.

    Args:
        model: a model with the objective `seq2seq_lm`.
        batch: its `padding_mask` [B, T] hides the padding of the inputs.
        encoded: the result of `model.encode` for the batch.
        length: U.
        end_id: the token that ends an output.
        pad_id: the token behind it.

    Returns:
        The tokens with the one that ends them, int32 [B, U].
    """
    head = next(o for o in model.objectives if o.config.type == "seq2seq_lm")
    encoder = model.encoder
    states = encoded["sequence_output"]
    padding = batch.get("padding_mask")
    cross_mask = None if padding is None else masks.padding(padding)
    count = ops.shape(states)[0]

    def unfinished(slot, tokens, last, done, cache):
        return ops.logical_and(slot < length, ops.logical_not(ops.all(done)))

    def step(slot, tokens, last, done, cache):
        hidden, cache = encoder.decode(last, cache, slot, cross_mask)
        likeliest = ops.argmax(head.logits(hidden[:, 0], encoder), axis=-1)  # [B]
        likeliest = ops.where(done, pad_id, ops.cast(likeliest, "int32"))
        done = ops.logical_or(done, ops.equal(likeliest, end_id))
        here = ops.equal(ops.arange(length, dtype="int32"), slot)  # [U]
        tokens = ops.where(here[None], likeliest[:, None], tokens)
        return slot + 1, tokens, likeliest[:, None], done, cache

    start = (
        ops.convert_to_tensor(0, "int32"),
        ops.full((count, length), pad_id, "int32"),
        ops.full((count, 1), head.config.start_id, "int32"),
        ops.zeros((count,), "bool"),
        encoder.empty_cache(states, length),
    )
    return ops.while_loop(unfinished, step, start)[1]
