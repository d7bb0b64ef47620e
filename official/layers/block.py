"""One transformer layer.

Shapes: B batch, T query length, S key length, N heads, D hidden.
"""

import keras

from official.layers.attention import Attention
from official.layers.dropout import dropout
from official.layers.feed_forward import FeedForward
from official.layers.norm import LayerNorm


class Block(keras.Layer):
    """Attention and feed-forward, each with dropout, a residual connection and a norm.

    With `norm='post'` the norm follows the sum (BERT); with `'pre'` it stands before the
    sublayer and the sum stays as it is (GPT-2).
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
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.pre_norm = norm == "pre"
        self.dropout = dropout
        self.attention = Attention(
            size,
            num_heads,
            dropout=attention_dropout,
            initializer=initializer,
            name="attention",
            dtype=dtype,
        )
        self.attention_norm = LayerNorm(size, epsilon=epsilon, name="attention_norm", dtype=dtype)
        self.feed_forward = FeedForward(
            size,
            intermediate_size,
            activation=activation,
            initializer=initializer,
            name="feed_forward",
            dtype=dtype,
        )
        self.feed_forward_norm = LayerNorm(
            size, epsilon=epsilon, name="feed_forward_norm", dtype=dtype
        )

    def build(self, input_shape=None):
        """Makes the variables."""
        self.attention.build()
        self.attention_norm.build()
        self.feed_forward.build()
        self.feed_forward_norm.build()

    def call(self, x, attention_mask=None, rng=None):
        """Maps x [B, T, D] to [B, T, D], and returns the attention weights [B, N, T, S] with it."""
        if self.pre_norm:
            attended, weights = self.attention(self.attention_norm(x), attention_mask, rng=rng)
            x = x + dropout(attended, self.dropout, rng)
            x = x + dropout(self.feed_forward(self.feed_forward_norm(x)), self.dropout, rng)
        else:
            attended, weights = self.attention(x, attention_mask, rng=rng)
            x = self.attention_norm(x + dropout(attended, self.dropout, rng))
            x = self.feed_forward_norm(x + dropout(self.feed_forward(x), self.dropout, rng))
        return x, weights
