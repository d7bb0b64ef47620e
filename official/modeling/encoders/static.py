"""Static vectors: a table, and the mean over the tokens of a text (model2vec).

Shapes: B batch, T length, Q rows of a mask, D hidden, V pieces, R rows of the table, K pooled
positions.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.config.encoders import StaticConfig
from official.modeling.encoders import base
from official.modeling.layers.embeddings import Table
from official.modeling.layers.kernels import accurate, dropout, take_rows
from official.modeling.layers.random import Draws, RandomWeights
from official.modeling.types import DType, Tensor


class Encoder(base.Encoder, saved_as="StaticEncoder"):
    """A table of the vectors of pieces, whose mean is the vector of a text.

    Call arguments are those of `base.Encoder`, of which `segment_ids` and `positions` are ignored.
    `sequence_output` [B, T, D] has the vectors of all tokens. `pooled_output` [B, D] is the mean
    over the tokens that a row's first position may attend to, without `config.skipped_ids`; 0 if
    there are none. With `pooled_positions` [B, K] it is [B, K, D], the means of these positions.

    With `config.num_rows` a piece has the row `rows` [V] of the table, times `weights` [V, 1].
    """

    config: StaticConfig

    def __init__(
        self,
        config: StaticConfig,
        *,
        seed: int = 0,
        name: str = "encoder",
        dtype: DType | None = None,
    ):
        """Describes an encoder; `build()` creates its variables.

        Args:
            config: `StaticConfig`.
            seed: initial weights are a function of it and of the name.
            name: first part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(config, name=name, dtype=dtype)
        draws = Draws.of_name(seed, name)
        self.table = Table(
            config.num_rows or config.known_vocab_size,
            config.hidden_size,
            initializer=RandomWeights(config.initializer, config.initializer_range, draws),
            name="token_embedding",
            dtype=self.dtype_policy,
        )

    @override
    def build(self, input_shape=None):
        self.table.build()
        if (count := self.config.num_rows) is not None:
            size = self.config.known_vocab_size

            def shared(shape, dtype):
                return ops.cast(ops.arange(shape[0]) % count, dtype)

            self.piece_rows = self.add_weight(
                (size,), shared, name="rows", dtype="int32", trainable=False
            )
            self.piece_weights = self.add_weight((size, 1), "ones", name="weights")

    @override
    def by_depth(self):
        return [[self.table]]

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        rng: Draws | None = None,
        output_all: bool = False,
        pooled_positions: Tensor | None = None,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        """Encodes a batch: see the class."""
        del segment_ids, positions
        rng = self.draws(rng, training)
        padding_mask = self.padding_of(token_ids, padding_mask)
        mask = self.masked(attention_mask, padding_mask)
        token_ids = ops.convert_to_tensor(token_ids)
        x = self.table(self.rows_of(token_ids))  # [B, T, D]
        if self.config.num_rows is not None:
            x = x * ops.cast(take_rows(self.piece_weights, token_ids), x.dtype)
        x = dropout(x, self.config.dropout, rng)
        counted = ops.expand_dims(self.counted(token_ids), 1)  # [B, 1, T]
        if mask is not None:
            counted = ops.logical_and(counted, mask[:, 0])  # [B, Q, T]
        if pooled_positions is None:
            counted = counted[:, :1]
        else:
            batch, length = ops.shape(token_ids)
            counted = ops.broadcast_to(counted, (batch, length, length))
            chosen = ops.expand_dims(pooled_positions, -1)
            counted = ops.take_along_axis(counted, chosen, axis=1)  # [B, K, T]
        weights = ops.cast(counted, accurate(x.dtype))
        weights = weights / ops.maximum(ops.sum(weights, axis=-1, keepdims=True), 1)
        means = ops.cast(ops.matmul(weights, ops.cast(x, weights.dtype)), x.dtype)
        pooled = means[:, 0] if pooled_positions is None else means
        outputs = {"sequence_output": x, "pooled_output": pooled}
        if output_all:
            outputs["hidden_states"] = (x,)
        return self.with_mask(outputs, padding_mask)

    def rows_of(self, token_ids: Tensor) -> Tensor:
        """Returns the rows of the table that pieces have, of the shape of `token_ids`."""
        if self.config.num_rows is None:
            return token_ids
        return ops.take(self.piece_rows, token_ids)

    def counted(self, token_ids: Tensor) -> Tensor:
        """Returns which of the tokens count, bool of the shape of `token_ids`."""
        skipped = ops.cast(ops.convert_to_tensor(self.config.skipped_ids or ()), token_ids.dtype)
        return ops.all(ops.not_equal(ops.expand_dims(token_ids, -1), skipped), axis=-1)
