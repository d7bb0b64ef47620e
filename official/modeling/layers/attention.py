"""Multi-head self-attention with one product for queries, keys and values.

Shapes: B batch, T query length, S key length or slots of a cache, N heads, H head size, D hidden.
"""

import keras
from keras import ops

from official.modeling import masks
from official.modeling.layers import cache as slots
from official.modeling.layers.dropout import dropout
from official.modeling.layers.linear import Linear
from official.modeling.layers.precision import accurate


class Attention(keras.Layer):
    """Attention of a sequence to itself (Vaswani et al. 2017, section 3.2)."""

    def __init__(
        self, size, num_heads, *, dropout, initializer, name, output_initializer=None, dtype=None
    ):
        super().__init__(name=name, dtype=dtype)
        self.num_heads = num_heads
        self.head_size = size // num_heads
        self.dropout = dropout
        # The columns of the kernel are q | k | v, each of them head by head.
        self.query_key_value = Linear(
            size, 3 * size, initializer=initializer, name="query_key_value", dtype=dtype
        )
        self.output_projection = Linear(
            size,
            size,
            initializer=output_initializer or initializer,
            name="output",
            dtype=dtype,
        )

    def build(self, input_shape=None):
        """Creates the variables."""
        self.query_key_value.build()
        self.output_projection.build()

    def call(self, x, attention_mask=None, rng=None, cache=None, slot=0, first_only=False):
        """Attends from each position of `x` to all positions.

        Args:
            x: [B, T, D].
            attention_mask: bool, broadcastable to [B, N, T, S], True = may attend; None = all.
            rng: `Draws`, or None for inference.
            cache: keys and values of all slots, [B, N, S, H] each; None = only `x` is attended to.
            slot: int, the slot of the first position of `x`.
            first_only: whether only the first position attends, so that T is 1 in the results.

        Returns:
            The output [B, T, D]; the attention weights [B, N, T, S] before dropout; the keys and
            values, [B, N, S, H] each.
        """
        batch, length, size = ops.shape(x)
        projected = ops.reshape(
            self.query_key_value(x), (batch, length, 3, self.num_heads, self.head_size)
        )
        query, key, value = ops.unstack(ops.transpose(projected, (2, 0, 3, 1, 4)))  # [B, N, T, H]
        if first_only:
            length, query = 1, query[:, :, :1]
            attention_mask = None if attention_mask is None else attention_mask[:, :, :1]
        if cache is not None:
            key, value = (
                slots.write(*pair, slot) for pair in zip(cache, (key, value), strict=True)
            )
        scores = ops.matmul(
            query * self.head_size**-0.5, ops.transpose(key, (0, 1, 3, 2))
        )  # [B, N, T, S]
        scores = ops.cast(scores, accurate(self.compute_dtype))
        if attention_mask is not None:
            scores = scores + masks.bias(attention_mask, scores.dtype)
        weights = ops.softmax(scores)
        kept = ops.cast(dropout(weights, self.dropout, rng), self.compute_dtype)
        context = ops.matmul(kept, value)  # [B, N, T, H]
        context = ops.reshape(ops.transpose(context, (0, 2, 1, 3)), (batch, length, size))
        return self.output_projection(context), weights, (key, value)
