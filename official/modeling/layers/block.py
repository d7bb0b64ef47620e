"""One transformer layer.

Shapes: B batch, T query length, S key length, N heads, D hidden.
"""

import keras

from official.modeling.layers.attention import Attention
from official.modeling.layers.dropout import dropout
from official.modeling.layers.feed_forward import FeedForward
from official.modeling.layers.norm import LayerNorm


class Block(keras.Layer):
    """Attention and a feed-forward network, each with dropout, a residual connection and a norm.

    With `norm='post'` the norm is applied to the sum (BERT). With `'pre'` it is applied to the
    input of the sublayer (GPT-2).
    """

    def __init__(
        self,
        size,
        *,
        num_heads,
        intermediate_size,
        activation,
        dropout,
        attention_dropout,
        norm,
        epsilon,
        initializer,
        name,
        residual_initializer=None,
        dtype=None,
    ):
        """Describes the layer.

        Args:
            size: D.
            num_heads: N.
            intermediate_size: inner size of the feed-forward network.
            activation: name of the activation in the feed-forward network.
            dropout: dropout rate of the output of each sublayer.
            attention_dropout: dropout rate of attention weights.
            norm: 'post' or 'pre'.
            epsilon: epsilon of the norms.
            initializer: initializer of the kernels.
            name: last part of the variables' paths.
            residual_initializer: initializer of the kernels whose products are added to the
                residual sum; None = `initializer`.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.pre_norm = norm == "pre"
        self.dropout = dropout
        self.attention = Attention(
            size,
            num_heads,
            dropout=attention_dropout,
            initializer=initializer,
            name="attention",
            output_initializer=residual_initializer,
            dtype=dtype,
        )
        self.attention_norm = LayerNorm(size, epsilon=epsilon, name="attention_norm", dtype=dtype)
        self.feed_forward = FeedForward(
            size,
            intermediate_size,
            activation=activation,
            initializer=initializer,
            name="feed_forward",
            output_initializer=residual_initializer,
            dtype=dtype,
        )
        self.feed_forward_norm = LayerNorm(
            size, epsilon=epsilon, name="feed_forward_norm", dtype=dtype
        )

    def build(self, input_shape=None):
        """Creates the variables."""
        self.attention.build()
        self.attention_norm.build()
        self.feed_forward.build()
        self.feed_forward_norm.build()

    def call(self, x, attention_mask=None, rng=None, cache=None, slot=0, first_only=False):
        """Maps x [B, T, D] to [B, T, D], or to [B, 1, D] with `first_only`.

        Returns:
            The output, the attention weights [B, N, T, S], and the keys and values: see
            `Attention`, also for the arguments.
        """
        options = {"rng": rng, "cache": cache, "slot": slot, "first_only": first_only}
        kept_rows = x[:, :1] if first_only else x
        if self.pre_norm:
            attended, weights, kept = self.attention(
                self.attention_norm(x), attention_mask, **options
            )
            x = kept_rows + dropout(attended, self.dropout, rng)
            x = x + dropout(
                self.feed_forward(self.feed_forward_norm(x), rng=rng), self.dropout, rng
            )
        else:
            attended, weights, kept = self.attention(x, attention_mask, **options)
            x = self.attention_norm(kept_rows + dropout(attended, self.dropout, rng))
            x = self.feed_forward_norm(
                x + dropout(self.feed_forward(x, rng=rng), self.dropout, rng)
            )
        return x, weights, kept
