"""Ranks documents by how alike their tokens are to those of a query: kernel pooling.

K-NRM (Xiong et al., 2017) counts softly, for each token of the query, how many tokens of the
document are about so and so similar to it: a Gaussian kernel for each degree of similarity. Here a
token is what a pretrained encoder makes of it in its text, and the encoder does not learn (Yang et
al., 2019, on ClueWeb09-B). Query and document are read apart, in one row, so that a document's
tokens are the same for every query.

Shapes: B batch, C documents of an example, N = B * C, T length, D hidden, K kernels.
"""

import dataclasses

from keras import ops

from official.modeling.layers.linear import Linear
from official.modeling.objectives import ranking

EXACT = (1.0, 1e-3)  # mean and width of the kernel of tokens that are the same
_LEAST = 1e-10  # what the logarithm of a count is taken of at least
_SCALE = 0.01  # of the logarithms, as in the release of K-NRM
_PADDING = -1  # the number of no segment


@dataclasses.dataclass(frozen=True)
class Config:
    """What is asked.

    Attributes:
        kernels: K, one for equal tokens and the others with means at even steps over (-1, 1).
        sigma: width of these others.
        loss: 'pairwise' or 'pointwise', as in `official.modeling.objectives.ranking`.
        margin: of the pairwise loss.
        weight: factor of this loss in the sum.
    """

    kernels: int = 11
    sigma: float = 0.1
    loss: str = "pairwise"
    margin: float = 1.0
    weight: float = 1.0

    def __post_init__(self):
        ranking.check_loss(self.loss, self.margin)
        if self.kernels < 2:
            raise ValueError(f"kernels: {self.kernels} is less than 2")
        if self.sigma <= 0:
            raise ValueError(f"sigma: {self.sigma} is not greater than 0")

    @property
    def means_and_widths(self):
        """(mean, width) of each kernel; with 11 of them 1, 0.9, 0.7, ... -0.9."""
        others = self.kernels - 1
        return [EXACT, *((1 - (2 * k + 1) / others, self.sigma) for k in range(others))]


def needs(config):
    """The batch fields that the objective reads."""
    del config
    return frozenset({"text_mask"})


class Objective(ranking.Ranker):
    """Kernels over the cosines of all pairs of tokens, and one affine map to the score."""

    def __init__(self, config, encoder_config, *, name="kernel_ranking", seed=0, dtype=None):
        super().__init__(config, encoder_config, name=name, seed=seed, dtype=dtype)
        self.output_projection = Linear(
            config.kernels, 1, initializer=self.initializer, name="output", dtype=self.dtype_policy
        )

    def build(self, input_shape=None):
        """Makes the variables."""
        self.output_projection.build()

    @property
    def freezes_encoder(self):
        """See `base.Objective`."""
        return True

    def prepare(self, batch, rng=None):
        """Lets the encoder read the two texts of each row as if each were alone."""
        batch = super().prepare(batch, rng)
        if "part_ids" in batch:
            return batch
        segments = batch["segment_ids"]  # [N, T]
        parts = ops.where(ops.cast(batch["padding_mask"], "bool"), segments, _PADDING)
        second = ops.equal(parts, 1)
        columns = ops.arange(ops.shape(segments)[1], dtype=segments.dtype)
        start = ops.cast(ops.argmax(ops.cast(second, "int32"), axis=1), segments.dtype)
        return {
            **batch,
            "part_ids": parts,
            "positions": ops.where(second, columns - start[:, None], columns),
            "segment_ids": ops.where(second, 0, segments),
        }

    def features(self, batch, encoded):
        """Sums over the query's tokens of the logarithms of the soft counts: [N, K]."""
        states = self.as_loss(ops.stop_gradient(encoded["sequence_output"]))  # [N, T, D]
        lengths = ops.sqrt(ops.sum(ops.square(states), axis=-1, keepdims=True))
        states = states / ops.maximum(lengths, 1e-12)
        cosines = ops.matmul(states, ops.transpose(states, (0, 2, 1)))  # [N, T, T]
        text = ops.cast(batch["text_mask"], "bool")
        query = self.as_loss(ops.logical_and(text, ops.equal(batch["part_ids"], 0)))  # [N, T]
        document = self.as_loss(ops.logical_and(text, ops.equal(batch["part_ids"], 1)))
        features = []
        for mean, width in self.config.means_and_widths:
            near = ops.exp(-ops.square(cosines - mean) / (2 * width**2))
            counts = ops.sum(near * document[:, None, :], axis=-1)  # [N, T]
            logarithms = ops.log(ops.maximum(counts, _LEAST)) * query
            features.append(ops.sum(logarithms, axis=-1))  # [N]
        return _SCALE * ops.stack(features, axis=-1)

    def scores(self, batch, encoded, rng=None):
        """See `Ranker`."""
        del rng
        return self.as_loss(self.output_projection(self.features(batch, encoded)))[:, 0]
