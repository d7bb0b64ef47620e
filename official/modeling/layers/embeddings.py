"""Embeddings: tables of vectors, and the first states of encoders.

Shapes: B batch, T length, P query rows, V vocabulary, E embedding size, D hidden size.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np
from keras import ops
from typing_extensions import override

from official.modeling.layers import schemes
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
from official.modeling.layers.random import Draws
from official.modeling.types import DType, Initializer, Size, Tensor


class Table(Layer):
    """A table with a vector for each id: the variable `table` [V, E].

    Attributes:
        base: the table of another network, to whose rows those of this table are added; None =
            there is none. The base gets no gradient from this table (gradient-disentangled
            embedding sharing; He et al. 2021, section 3.2.3). The variable is then named `delta`,
            and starts at 0.
    """

    base = None

    def __init__(
        self,
        num_rows: int,
        size: int,
        *,
        initializer: Initializer,
        name: str | None = None,
        dtype: DType | None = None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.num_rows = num_rows
        self.size = size
        self.initializer = initializer

    @override
    def build(self, input_shape=None):
        # The variable is not autocast: only the rows that are looked up are cast, not the whole
        # table.
        named = ("table", self.initializer) if self.base is None else ("delta", "zeros")
        name, initializer = named
        self.table = self.add_weight(
            (self.num_rows, self.size), initializer, name=name, autocast=False
        )

    def add_to(self, base: "Table") -> None:
        """Sets the base of this table, before it is built."""
        # Bypasses Keras' tracking, because the base belongs to another network.
        object.__setattr__(self, "base", base)

    def call(self, ids: Tensor) -> Tensor:
        """Looks up ids of any shape: [..., E]."""
        rows = ops.cast(take_rows(self.table, ids), self.compute_dtype)
        return rows if self.base is None else rows + ops.stop_gradient(self.base(ids))

    def first(self, length: Size, offset: int = 0) -> Tensor:
        """Returns `length` rows from `offset` on, without a lookup: [length, E]."""
        rows = ops.cast(self.table[offset : offset + length], self.compute_dtype)
        if self.base is None:
            return rows
        return rows + ops.stop_gradient(self.base.first(length, offset))

    def rows(self, dtype: DType) -> Tensor:
        """Returns all rows in a dtype, [V, E]."""
        table = ops.cast(self.table, dtype)
        if self.base is None:
            return table
        return table + ops.stop_gradient(ops.cast(self.base.table, dtype))

    def scores(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns the products of x [R, E] with every row, for a tied output: [R, V].

        With a bias [V] the result has the dtype of the bias.
        """
        scores = products(x, self.rows(x.dtype))
        return scores if bias is None else plus_bias(scores, bias)


_DELTA = "token_embedding/delta"


def bases(paths: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Returns {path of a difference: (path of the sum, path of the base)} for `paths`.

    The base of `encoder/.../delta` is the table of the same path in the generator.
    """
    names = {p: f"{p.removesuffix('delta')}table" for p in paths if p.endswith(_DELTA)}
    return {path: (name, f"generator/{name}") for path, name in names.items()}


def finished(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the variables of a model with each `delta` replaced by its sum with the base.

    Args:
        arrays: the variables by path.
    """
    sums = {name: arrays[path] + arrays[base] for path, (name, base) in bases(arrays).items()}
    return {**arrays, **sums}


@with_gradient
def products(x: Tensor, table: Tensor) -> Tensor:
    """Returns x [R, E] times the rows of table [V, E], with its gradient: [R, V]."""

    # The automatic gradient computes the transposed gradient of the table and transposes it.
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
        parts: `EmbeddingParts`.
        initializers: `Initializers`.
        shared: layers of another encoder to share, by the name of the attribute here: 'token',
            'position', 'segment', 'norm'. The other encoder builds them.
        name: last part of the variables' paths.
        dtype: Keras dtype policy; None = the global one.
    """

    def __init__(self, parts, initializers, *, shared=None, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.parts = parts
        self.dropout = parts.dropout
        shared, kernel = shared or {}, initializers.kernel

        def table(num_rows, name):
            return Table(num_rows, parts.size, initializer=kernel, name=name, dtype=dtype)

        self.token = shared.get("token") or table(parts.vocab_size, "token_embedding")
        self.factor = math.sqrt(parts.size) if parts.scale else 1.0
        self.position = self.segment = self.norm = self.projection = None
        self.schemes = schemes.of(parts)
        of_position = initializers.position or kernel
        made = [scheme.of_embeddings(self, of_position) for scheme in self.schemes]
        self.of_schemes = schemes.attach(self, made, shared)
        if parts.segment_types:
            self.segment = shared.get("segment") or table(parts.segment_types, "segment_embedding")
        if parts.norm is not None:
            self.norm = shared.get("norm") or make_norm(
                parts.norm, parts.size, name="norm", dtype=dtype
            )
        if parts.size != parts.hidden_size:
            self.projection = Linear(
                parts.size, parts.hidden_size, initializer=kernel, name="projection", dtype=dtype
            )

    @override
    def build(self, input_shape=None):
        of_schemes = (getattr(self, name) for name in self.of_schemes)
        for layer in (self.token, *of_schemes, self.segment, self.norm, self.projection):
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
            segment_ids: int [B, T]; None = all 0. They are ignored if the table has one row, as in
                RoBERTa.
            positions: int [B, T] or [1, T]; None = 0, 1, 2, ...
            rng: `Draws`, or None for inference.
            training: whether Keras trains; see `Layer.draws`.
        """
        rng = self.draws(rng, training)
        x = self.token(token_ids)  # [B, T, E]
        if self.factor != 1.0:
            x = x * self.factor
        for scheme in self.schemes:
            x = scheme.add(self, x, positions)
        if self.segment is not None:
            single = segment_ids is None or self.segment.num_rows == 1
            x = x + (self.segment.first(1) if single else self.segment(segment_ids))
        if self.norm is not None:
            x = self.norm(x)
        x = dropout(x, self.dropout, rng)
        return x if self.projection is None else self.projection(x)  # [B, T, D]


class StreamEmbeddings(Layer):
    """The token table, and `query_start` [D], the first state of every row of a query stream."""

    def __init__(
        self,
        vocab_size: int,
        size: int,
        *,
        query_stream: bool,
        initializer: Initializer,
        name: str | None = None,
        dtype: DType | None = None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.size = size
        self.query_stream = query_stream
        self.initializer = initializer
        self.token = Table(
            vocab_size, size, initializer=initializer, name="token_embedding", dtype=dtype
        )

    @override
    def build(self, input_shape=None):
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
