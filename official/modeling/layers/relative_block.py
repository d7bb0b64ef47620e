"""One layer of Transformer-XL.

Shapes: B batch, T content rows, P query rows, N heads, Q rows of a stream, S keys, D hidden.
"""

from official.modeling.layers.base import Layer
from official.modeling.layers.feed_forward import FeedForward
from official.modeling.layers.kernels import dropout
from official.modeling.layers.norm import LayerNorm
from official.modeling.layers.relative_attention import RelativeAttention


class RelativeBlock(Layer):
    """Relative attention and a feed-forward network, each with dropout, residual sum and norm."""

    def __init__(
        self,
        size,
        *,
        num_heads,
        head_size,
        segments,
        intermediate_size,
        activation,
        dropout,
        attention_dropout,
        inner_dropout,
        epsilon,
        initializer,
        name=None,
        biases=None,
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.dropout = dropout
        self.attention = RelativeAttention(
            size,
            num_heads,
            head_size=head_size,
            segments=segments,
            dropout=attention_dropout,
            initializer=initializer,
            name="attention",
            biases=biases,
            dtype=dtype,
        )
        self.attention_norm = LayerNorm(size, epsilon=epsilon, name="attention_norm", dtype=dtype)
        self.feed_forward = FeedForward(
            size,
            intermediate_size,
            activation=activation,
            initializer=initializer,
            name="feed_forward",
            dropout=inner_dropout,
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

    def call(
        self,
        x,
        *,
        streams=None,
        distances=None,
        backward=None,
        content=None,
        memory=None,
        key_segments=None,
        cache=None,
        slot=0,
        rng=None,
        training=None,
    ):
        """Maps the rows of all streams x [B, rows, D] to [B, rows, D].

        The arguments are those of `RelativeAttention`. Its attention weights, a tensor
        [B, N, Q, S] for each stream, and its cache are returned as well.
        """
        rng = self.draws(rng, training)
        attended, weights, cache = self.attention(
            x,
            streams=streams,
            distances=distances,
            backward=backward,
            content=content,
            memory=memory,
            key_segments=key_segments,
            cache=cache,
            slot=slot,
            rng=rng,
        )
        x = self.attention_norm(x + dropout(attended, self.dropout, rng))
        fed = self.feed_forward(x, rng=rng)
        return self.feed_forward_norm(x + dropout(fed, self.dropout, rng)), weights, cache
