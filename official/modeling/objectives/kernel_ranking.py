"""Ranks documents by the similarity of their tokens to those of a query: kernel pooling.

For each token of the query, K-NRM (Xiong et al., 2017) softly counts the tokens of the document at
each level of similarity, with a Gaussian kernel for each level. Here the vectors of tokens are the
outputs of a pretrained encoder, which is not trained (Yang et al., 2019, on ClueWeb09-B). Query and
document are in one row but do not attend to each other, so the tokens of a document are the same
for every query.

Shapes: B batch, C documents of an example, N = B * C, T length, D hidden, K kernels.
"""

from keras import ops

from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Draws
from official.modeling.objectives import ranking
from official.modeling.types import Batch, Encoded, Tensor

_LEAST = 1e-10  # lower limit of a count before its logarithm is taken
_SCALE = 0.01  # of the logarithms, as in the release of K-NRM
_PADDING = -1  # not the number of a segment


class Objective(ranking.Ranker):
    """Kernels over the cosines of all pairs of tokens, and an affine map to the score."""

    def __init__(self, config, encoder_config, *, name="kernel_ranking", seed=0, dtype=None):
        super().__init__(config, encoder_config, name=name, seed=seed, dtype=dtype)
        self.output_projection = Linear(
            config.kernels, 1, initializer=self.initializer, name="output", dtype=self.dtype_policy
        )

    def build(self, input_shape=None):
        """Creates the variables."""
        self.output_projection.build()

    @property
    def encoder_frozen(self) -> bool:
        """See `base.Objective`."""
        return True

    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Makes the two texts of each row two parts that do not attend to each other."""
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
            "positions": ops.where(second, columns - ops.expand_dims(start, 1), columns),
            "segment_ids": ops.where(second, 0, segments),
        }

    def features(self, batch: Batch, encoded: Encoded) -> Tensor:
        """Returns the sums of the log soft counts over the tokens of the query: [N, K]."""
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
            counts = ops.sum(near * ops.expand_dims(document, 1), axis=-1)  # [N, T]
            logarithms = ops.log(ops.maximum(counts, _LEAST)) * query
            features.append(ops.sum(logarithms, axis=-1))  # [N]
        return _SCALE * ops.stack(features, axis=-1)

    def scores(self, batch: Batch, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """See `Ranker`."""
        del rng
        return self.as_loss(self.output_projection(self.features(batch, encoded)))[:, 0]
