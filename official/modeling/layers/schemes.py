"""Position schemes: how embeddings and attention learn where the tokens are.

A scheme is one object without variables. What it needs of them are layers of the embeddings, of the
encoder (or stack) or of each attention layer, which have their names there. The encoder carries
what its schemes prepare for a batch, one value for each, through the blocks as `positions`.

Shapes: B batch, T query length, S key length or slots of a cache, P positions, N heads, H head
size, E embedding size.
"""

import importlib
import types
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from keras import ops

from official.config import blocks
from official.modeling.layers.base import Layer
from official.modeling.layers.random import Draws
from official.modeling.types import Initializer, Size, Tensor


class Rows(NamedTuple):
    """What a scheme prepares for: T tokens that attend to S keys.

    Attributes:
        length: T.
        keys: S.
        slot: the key at the position of the first token.
        positions: int [B or 1, T], the positions of the tokens; None = from `slot` on.
        local: whether it is for layers with local attention.
    """

    length: Size
    keys: Size
    slot: Size = 0
    positions: Tensor | None = None
    local: bool = False

    def numbers(self) -> Tensor:
        """Returns the positions of the tokens: int [B or 1, T]."""
        if self.positions is not None:
            return self.positions
        return ops.expand_dims(ops.arange(self.length, dtype="int32") + self.slot, 0)


class Scheme:
    """A position scheme that does nothing; subclasses in other modules do some of this.

    Embeddings, encoders, stacks and attention layers have `parts`, from which they are made.

    Attributes:
        part: the part that describes the scheme.
        terms: the number of terms in the scores, whose sum is divided by sqrt(terms * H).
        key_bias: whether keys have a bias, where linear layers have.
    """

    terms = 1
    key_bias = True

    def __init__(self, part: blocks.Positions):
        self.part: Any = part

    def of_embeddings(self, embeddings: Any, initializer: Initializer) -> dict[str, Layer]:
        """Makes its layers of the embeddings: {attribute: layer}."""
        del embeddings, initializer
        return {}

    def of_encoder(self, encoder: Any, initializer: Initializer) -> dict[str, Layer]:
        """Makes its layers of an encoder or a stack: {attribute: layer}."""
        del encoder, initializer
        return {}

    def of_attention(self, attention: Any, initializer: Initializer) -> dict[str, Layer]:
        """Makes its layers of an attention layer: {attribute: layer}."""
        del attention, initializer
        return {}

    def add(self, embeddings: Any, x: Tensor, positions: Tensor | None) -> Tensor:
        """Adds to the embeddings x [B, T, E] of tokens at positions [B or 1, T], or 0, 1, 2, ..."""
        del embeddings, positions
        return x

    def prepare(self, encoder: Any, rows: Rows) -> Any:
        """Returns what all blocks read: a tuple of tensors."""
        del encoder, rows
        return ()

    def turn(
        self, query: Tensor, key: Tensor, prepared: Any, positions: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Turns queries and keys.

        Args:
            query: [B, N, T, H], or [B, N, P, H] with `positions`.
            key: [B, N, T, H].
            prepared: the result of `prepare`.
            positions: int [B, P], the positions of the queries; None = all.
        """
        del prepared, positions
        return query, key

    def scores(
        self,
        attention: Any,
        query: Tensor,
        key: Tensor,
        prepared: Any,
        positions: Tensor | None,
        rng: Draws | None,
    ) -> Tensor | None:
        """Returns what is added to the scores: broadcastable to [B, N, T or P, S], or None.

        The arguments are those of `turn`, the attention layer, and its `Draws`.
        """
        del attention, query, key, prepared, positions, rng
        return None


def of(parts: blocks.EmbeddingParts | blocks.BlockParts) -> tuple[Scheme, ...]:
    """Returns the schemes of embeddings or blocks."""
    return tuple(
        importlib.import_module(f"{__package__}.{part.module}").Scheme(part)
        for part in parts.positions
    )


def prepare(schemes: tuple[Scheme, ...], encoder: Layer, rows: Rows) -> tuple[Any, ...]:
    """Returns what the schemes of an encoder or a stack prepare, one value for each."""
    return tuple(scheme.prepare(encoder, rows) for scheme in schemes)


def attach(
    layer: Layer,
    made: Iterable[Mapping[str, Layer]],
    shared: Mapping[str, Layer] = types.MappingProxyType({}),
) -> tuple[str, ...]:
    """Makes the layers of schemes attributes of a layer.

    Args:
        layer: the embeddings, the encoder, the stack or the attention layer.
        made: the layers that each scheme has made for it, by name.
        shared: layers that take the place of those of the same name.

    Returns:
        The names.
    """
    named = {name: shared.get(name) or part for parts in made for name, part in parts.items()}
    for name, part in named.items():
        setattr(layer, name, part)
    return tuple(named)
