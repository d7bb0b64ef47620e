"""The span boundary objective: predicts a span from its neighbors (SpanBERT, section 3.2).

Shapes: B batch, T length, P predictions, D hidden, E embedding, V vocabulary, R = B * P rows,
O size of the embedding of an offset in a span.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.config.objectives import SpanBoundaryConfig
from official.config.parts import EncoderConfig
from official.modeling.encoders.base import Encoder
from official.modeling.layers.activation import ACTIVATIONS
from official.modeling.layers.embeddings import Table
from official.modeling.layers.linear import Linear
from official.modeling.layers.norm import LayerNorm
from official.modeling.layers.random import Draws
from official.modeling.objectives import base
from official.modeling.types import Batch, Encoded, Tensor


class Objective(base.Objective):
    """Two layers over [left neighbor, right neighbor, offset in the span], and a tied output.

    Each layer is an affine map, the activation of the encoder and a norm. The output has a bias.
    """

    config: SpanBoundaryConfig

    def __init__(self, config: SpanBoundaryConfig, encoder_config: EncoderConfig, **options: Any):
        super().__init__(config, encoder_config, **options)
        hidden_size = encoder_config.hidden_size
        options = {"initializer": self.initializer, "dtype": self.dtype_policy}
        self.activation = ACTIVATIONS[encoder_config.activation]
        self.offset_embedding = Table(
            config.max_targets, config.offset_size, name="offset_embedding", **options
        )
        sizes = (
            2 * hidden_size + config.offset_size,
            hidden_size,
            encoder_config.embedding_size or hidden_size,
        )
        self.transforms = [
            Linear(sizes[i], sizes[i + 1], name=f"transform_{i}", **options) for i in range(2)
        ]
        self.norms = [
            LayerNorm(
                sizes[i + 1],
                epsilon=encoder_config.norm_epsilon,
                name=f"norm_{i}",
                dtype=self.dtype_policy,
            )
            for i in range(2)
        ]

    @override
    def build(self, input_shape=None):
        for layer in (self.offset_embedding, *self.transforms, *self.norms):
            layer.build()
        self.output_bias = self.add_weight(
            (self.encoder_config.known_vocab_size,), "zeros", name="output_bias", autocast=False
        )

    @override
    def positions_read(self, batch: Batch) -> tuple[Tensor, ...] | None:
        return batch["span_left"], batch["span_right"]

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        return {self.name: ops.sum(self._weights(batch))}

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        size = self.encoder_config.hidden_size
        left, right = (ops.reshape(x, (-1, size)) for x in self.states_read(batch, encoded))
        offsets = ops.minimum(batch["span_offset"], self.config.max_targets - 1)
        x = ops.concatenate(
            [
                left,
                right,
                self.offset_embedding(ops.reshape(offsets, (-1,))),
            ],
            axis=-1,
        )  # [R, 2 D + O]
        for transform, norm in zip(self.transforms, self.norms, strict=True):
            x = norm(self.activation(transform(x)))  # [R, D], then [R, E]
        logits = encoder.token_table.scores(x, self.output_bias)  # [R, V]
        targets = ops.reshape(batch["masked_ids"], (-1,))  # [R]
        weights = ops.reshape(self._weights(batch), (-1,))
        return base.token_terms(self.name, logits, targets, weights)

    def _weights(self, batch: Batch) -> Tensor:
        """[B, P]."""
        near = ops.cast(batch["span_offset"] < self.config.max_targets, "float32")
        return self.as_loss(batch["span_weights"] * near) * self.example_weights(batch)[:, None]
