"""Grouped-query attention: fewer heads of keys and values than of queries (Ainslie et al. 2023).

Shapes: B batch, T length, P query positions, N heads of queries, K heads of keys and values, H head
size, D hidden.
"""

from keras import ops
from typing_extensions import override

from official.modeling.layers.attention import Attention
from official.modeling.types import Tensor


class GroupedAttention(Attention):
    """Attention in which N / K consecutive heads of queries share keys and values.

    Keys and values are repeated for the heads that share them right after the projection, so that
    position schemes, caches and readers of `Attended` see N heads. The variables are `query` and
    `key_value` instead of `query_key_value`.
    """

    @override
    def make_projections(self) -> tuple[str, ...]:
        self.query = self.projection("query")
        self.key_value = self.projection("key", "value", heads=self.parts.heads.key_values)
        return "query", "key_value"

    @override
    def project(self, x: Tensor, queries: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        (query,) = self.split(self.query(x if queries is None else queries), 1)
        key, value = (self._repeated(each) for each in self.split(self.key_value(x), 2))
        return query, key, value

    def _repeated(self, x: Tensor) -> Tensor:
        """Repeats each head of x [B, K, T, H] for all queries that read it: [B, N, T, H]."""
        batch, heads, length, size = ops.shape(x)
        shape = (batch, heads, self.num_heads // heads, length, size)
        copies = ops.broadcast_to(ops.expand_dims(x, 2), shape)
        return ops.reshape(copies, (batch, self.num_heads, length, size))
