"""Embeddings: tables of vectors, and the first states of encoders.

Shapes: B batch, T length, P query rows, V vocabulary, E embedding size, D hidden size.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np
from keras import ops

from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import (
    dropout,
    one_pass,
    sum_rows,
    take_rows,
    times_transposed,
    transposed_times,
    with_gradient,
)
from official.modeling.layers.linear import Linear
from official.modeling.layers.norm import make_norm
from official.modeling.layers.positions import Sinusoids
from official.modeling.layers.random import Draws
from official.modeling.types import Size, Tensor


class Table(Layer):
    """A table with a vector for each id: the variable `table` [V, E].

    Attributes:
        base: the table of another network, to whose rows those of this one are added; None = there
            is none. The base gets no gradient here (gradient-disentangled embedding sharing; He et
            al. 2021, section 3.2.3). The variable then has the name `delta`, and begins with 0.
    """

    base = None

    def __init__(self, num_rows, size, *, initializer, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.num_rows = num_rows
        self.size = size
        self.initializer = initializer

    def build(self, input_shape=None):
        """Creates the variables."""
        # Only the rows that are looked up are cast, not the whole table.
        named = ("table", self.initializer) if self.base is None else ("delta", "zeros")
        name, initializer = named
        self.table = self.add_weight(
            (self.num_rows, self.size), initializer, name=name, autocast=False
        )

    def add_to(self, base: "Table") -> None:
        """Makes `base` the base of this table, before it is built."""
        # Keras would track an attribute, and the weights are those of another network.
        object.__setattr__(self, "base", base)

    def call(self, ids: Tensor) -> Tensor:
        """Looks up ids of any shape: [..., E]."""
        rows = ops.cast(take_rows(self.table, ids), self.compute_dtype)
        return rows if self.base is None else rows + ops.stop_gradient(self.base(ids))

    def first(self, length: Size, offset: int = 0) -> Tensor:
        """Returns `length` rows from `offset` on, without a look-up: [length, E]."""
        rows = ops.cast(self.table[offset : offset + length], self.compute_dtype)
        if self.base is None:
            return rows
        return rows + ops.stop_gradient(self.base.first(length, offset))

    def scores(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns the products of x [R, E] with every row, for a tied output: [R, V].

        With a bias [V] the result has the dtype of the bias.
        """
        table = ops.cast(self.table, x.dtype)
        if self.base is not None:
            table = table + ops.stop_gradient(ops.cast(self.base.table, x.dtype))
        scores = products(x, table)
        return scores if bias is None else plus_bias(scores, bias)


_DELTA = "token_embedding/delta"


def bases(paths: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Returns the paths of the sums and of their bases, by those of the differences among `paths`.

    The base of `encoder/.../delta` is the table of the same path in the generator.
    """
    names = {p: f"{p.removesuffix('delta')}table" for p in paths if p.endswith(_DELTA)}
    return {path: (name, f"generator/{name}") for path, name in names.items()}


def finished(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the variables of a model with the token tables that `Table.base` leaves as sums.

    Args:
        arrays: the variables by path.
    """
    sums = {name: arrays[path] + arrays[base] for path, (name, base) in bases(arrays).items()}
    return {**arrays, **sums}


@with_gradient
def products(x: Tensor, table: Tensor) -> Tensor:
    """Returns x [R, E] times the rows of table [V, E], with its gradient: [R, V]."""

    # The automatic gradient computes the table's gradient transposed, and transposes it again.
    def backward(upstream):
        return ops.matmul(upstream, table), transposed_times(upstream, x)

    return times_transposed(x, table), backward


@with_gradient
def plus_bias(x: Tensor, bias: Tensor):
    """Returns x [R, V] plus bias [V], in the dtype of the bias, with its gradient."""

    def backward(upstream):
        return ops.cast(upstream, x.dtype), sum_rows(upstream)

    return _sum(x, bias), backward


@one_pass
def _sum(x: Tensor, bias: Tensor):
    return ops.cast(x, bias.dtype) + bias


class Embeddings(Layer):
    """The sum of token, position and segment embeddings, with a norm and dropout.

    If the embedding size differs from the hidden size (ALBERT, section 3.1), a projection to the
    hidden size follows the dropout.

    Args:
        vocab_size: V.
        embedding_size: E.
        hidden_size: D.
        max_positions: the length of the longest sequence.
        position_offset: the number of the position of the first token.
        segment_types: rows of the segment table; 0 = no such table.
        normalize: whether a norm follows the sum.
        epsilon: epsilon of the norm.
        dropout: dropout rate.
        initializer: initializer of the tables and the projection.
        name: last part of the variables' paths.
        norm_type: 'layer' or 'rms'.
        norm_bias: whether a layer norm has an offset.
        position_initializer: initializer of the position table; None = `initializer`.
        positions: 'learned' = there is a position table; 'sinusoidal'; others = nothing is added.
        scale: whether the token embeddings are multiplied by sqrt(E).
        shared: layers of another encoder to share, by the name of the attribute here: 'token',
            'position', 'segment', 'norm'. The other encoder builds them.
        dtype: Keras dtype policy; None = the global one.
    """

    def __init__(
        self,
        *,
        vocab_size,
        embedding_size,
        hidden_size,
        max_positions,
        position_offset,
        segment_types,
        normalize,
        epsilon,
        dropout,
        initializer,
        name=None,
        norm_type="layer",
        norm_bias=True,
        position_initializer=None,
        positions="learned",
        scale=False,
        shared=None,
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.position_offset = position_offset
        self.dropout = dropout
        shared = shared or {}

        def table(num_rows, name, initializer=initializer):
            return Table(num_rows, embedding_size, initializer=initializer, name=name, dtype=dtype)

        self.token = shared.get("token") or table(vocab_size, "token_embedding")
        self.factor = math.sqrt(embedding_size) if scale else 1.0
        self.position = self.segment = self.norm = self.projection = None
        if positions == "learned":
            self.position = shared.get("position") or table(
                max_positions + position_offset,
                "position_embedding",
                position_initializer or initializer,
            )
        elif positions == "sinusoidal":
            self.position = Sinusoids(embedding_size, name="position_sinusoids", dtype=dtype)
        if segment_types:
            self.segment = shared.get("segment") or table(segment_types, "segment_embedding")
        if normalize:
            self.norm = shared.get("norm") or make_norm(
                norm_type, embedding_size, epsilon=epsilon, bias=norm_bias, name="norm", dtype=dtype
            )
        if embedding_size != hidden_size:
            self.projection = Linear(
                embedding_size,
                hidden_size,
                initializer=initializer,
                name="projection",
                dtype=dtype,
            )

    def build(self, input_shape=None):
        """Creates the variables."""
        for layer in (self.token, self.position, self.segment, self.norm, self.projection):
            if layer is not None and not layer.built:
                layer.build()

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor | None = None,
        positions: Tensor | None = None,
        rng: Draws | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Embeds token_ids [B, T]: [B, T, D].

        Args:
            token_ids: int [B, T].
            segment_ids: int [B, T]; None = all 0. They are ignored if the table has one row, as
                RoBERTa's has.
            positions: int [B, T] or [1, T]; None = 0, 1, 2, ... The offset is added to them.
            rng: `Draws`, or None for inference.
            training: whether Keras trains; see `Layer.draws`.
        """
        rng = self.draws(rng, training)
        x = self.token(token_ids)  # [B, T, E]
        if self.factor != 1.0:
            x = x * self.factor
        if self.position is not None:
            x = x + self._positions(token_ids, positions)
        if self.segment is not None:
            single = segment_ids is None or self.segment.num_rows == 1
            x = x + (self.segment.first(1) if single else self.segment(segment_ids))
        if self.norm is not None:
            x = self.norm(x)
        x = dropout(x, self.dropout, rng)
        return x if self.projection is None else self.projection(x)  # [B, T, D]

    def _positions(self, token_ids: Tensor, positions: Tensor | None) -> Tensor:
        """Returns the vectors of the positions: [T, E], or [B or 1, T, E] of given ones."""
        if positions is None:
            return self.position.first(ops.shape(token_ids)[1], self.position_offset)
        return self.position(positions + self.position_offset)


class StreamEmbeddings(Layer):
    """The token table, and `query_start` [D], the first state of every row of a query stream."""

    def __init__(self, vocab_size, size, *, query_stream, initializer, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.size = size
        self.query_stream = query_stream
        self.initializer = initializer
        self.token = Table(
            vocab_size, size, initializer=initializer, name="token_embedding", dtype=dtype
        )

    def build(self, input_shape=None):
        """Creates the variables."""
        self.token.build()
        if self.query_stream:
            self.query_start = self.add_weight((self.size,), self.initializer, name="query_start")

    def call(self, token_ids: Tensor) -> Tensor:
        """Looks up ids [B, T]: [B, T, D]."""
        return self.token(token_ids)

    def query(self, positions: Tensor) -> Tensor:
        """Returns the first states of query rows at positions [B, P]: [B, P, D]."""
        start = ops.cast(self.query_start, self.compute_dtype)
        return ops.broadcast_to(start, (*ops.shape(positions), self.size))
