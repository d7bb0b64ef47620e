"""Vectors of positions that are added to the embeddings: a table, or sinusoids.

Shapes: B batch, T length, E embedding size.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.config.blocks import Sinusoidal
from official.modeling.layers import schemes
from official.modeling.layers.base import Layer
from official.modeling.layers.embeddings import Table
from official.modeling.layers.positions import Sinusoids
from official.modeling.types import Initializer, Tensor


class Scheme(schemes.Scheme):
    """Adds the vectors of `position`, a layer of the embeddings."""

    def of_embeddings(self, embeddings: Any, initializer: Initializer) -> dict[str, Layer]:
        """Makes the table or the sinusoids."""
        size, dtype = embeddings.parts.size, embeddings.dtype_policy
        if isinstance(self.part, Sinusoidal):
            return {"position": Sinusoids(size, name="position_sinusoids", dtype=dtype)}
        table = Table(
            self.part.rows, size, initializer=initializer, name="position_embedding", dtype=dtype
        )
        return {"position": table}

    @override
    def add(self, embeddings: Any, x: Tensor, positions: Tensor | None) -> Tensor:
        if positions is None:
            return x + embeddings.position.first(ops.shape(x)[1], self.part.offset)
        return x + embeddings.position(positions + self.part.offset)
