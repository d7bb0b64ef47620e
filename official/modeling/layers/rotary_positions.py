"""Rotary position embeddings (RoPE): queries and keys are rotated (Su et al. 2021, section 3.2).

Shapes: B batch, T length, P query positions, N heads, H head size.
"""

from typing import Any, NamedTuple

from keras import ops
from typing_extensions import override

from official.modeling import masks
from official.modeling.layers import schemes
from official.modeling.layers.kernels import accurate, one_pass, with_gradient
from official.modeling.layers.positions import waves
from official.modeling.types import DType, Tensor


class Rotation(NamedTuple):
    """The rotary positions of a sequence (Su et al. 2021, section 3.2).

    Components i and i + H / 2 of a head are a point in the plane, which is rotated by the angle p *
    theta^(-2 i / H) at position p. The product of a query and a key then depends only on the
    difference of their positions. (The paper rotates components 2 i and 2 i + 1. The two differ by
    a permutation of a head's components, but the weights of a model fit only one of them.)

    Attributes:
        cosine: [B or 1, 1, T, H / 2], the cosine of each angle.
        sine: the sine of each angle, of the same shape.
    """

    cosine: Any
    sine: Any

    @classmethod
    def of(cls, positions: Tensor, size: int, theta: float, dtype: DType) -> "Rotation":
        """Returns the rotation of positions; angles have at least the precision of float32.

        Args:
            positions: int [B or 1, T].
            size: H, even.
            theta: the base of the angles; the longest wavelength is nearly 2 pi theta positions.
            dtype: dtype of the sines and cosines.
        """
        numbers = ops.cast(ops.expand_dims(positions, 1), accurate(dtype))
        sine, cosine = waves(numbers, size, theta)
        return cls(ops.cast(cosine, dtype), ops.cast(sine, dtype))

    def rows(self, positions: Tensor) -> "Rotation":
        """Returns the rotation of some positions of each sequence, int [B, P]."""
        return Rotation(*(masks.rows(wave, positions) for wave in self))

    def turn(self, x: Tensor) -> Tensor:
        """Rotates queries or keys [B, N, T, H]."""
        return _turned(x, self.cosine, self.sine)


@with_gradient
def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    def backward(upstream):
        return _products(upstream, cosine, -sine), None, None  # the inverse rotation

    return _products(x, cosine, sine), backward


@one_pass
def _products(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    dtype = accurate(x.dtype)
    cosine, sine = ops.cast(cosine, dtype), ops.cast(sine, dtype)
    first, second = ops.split(ops.cast(x, dtype), 2, axis=-1)
    turned = [first * cosine - second * sine, second * cosine + first * sine]
    return ops.cast(ops.concatenate(turned, axis=-1), x.dtype)


class Scheme(schemes.Scheme):
    """Rotates queries and keys; `prepare` returns a `Rotation`."""

    @override
    def prepare(self, encoder: Any, rows: schemes.Rows) -> Rotation:
        theta = self.part.local_theta if rows.local else self.part.theta
        return Rotation.of(rows.numbers(), encoder.parts.heads.size, theta, encoder.compute_dtype)

    @override
    def turn(
        self, query: Tensor, key: Tensor, prepared: Any, positions: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        whole = Rotation(*prepared)
        own = whole if positions is None else whole.rows(positions)
        return own.turn(query), whole.turn(key)
