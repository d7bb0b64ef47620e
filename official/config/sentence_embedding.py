"""Config of the objective `sentence_embedding`: vectors of texts that are compared."""

import dataclasses
from typing import Any, ClassVar

from official.config.heads import ReaderConfig
from official.config.parts import Config, EncoderConfig
from official.utils.names import nearest
from official.utils.strict import above, at_least, keys, omitted, one_of

# Poolings of the states of tokens to a vector; see `official.modeling.layers.pooling`.
POOLINGS = ("mean", "first", "last", "max", "mean_sqrt_len", "weighted_mean", "pooled")
ACTIVATIONS = ("tanh", "gelu_tanh", "gelu", "relu", "silu")
# The losses of pairs with a score, and all losses. Losses over several rows compare the rows of a
# batch.
SCORED = ("cosent", "angle", "cosine", "contrastive")
LOSSES = ("multiple_negatives", "triplet", "margin_mse", "softmax", *SCORED)
OF_SEVERAL_ROWS = ("multiple_negatives", "cosent", "angle")
# {loss: the field with its target}, for losses that need a target.
TARGETS = {"margin_mse": "score", "softmax": "label", **dict.fromkeys(SCORED, "score")}
_MARGINS = {"triplet": 5.0, "contrastive": 0.5}
# {key: the losses that have it}. The classifier of `softmax` reads vectors of one size.
_TAKERS = {
    "scale": OF_SEVERAL_ROWS,
    "symmetric": ("multiple_negatives",),
    "hard_negative_weight": ("multiple_negatives",),
    "margin": tuple(_MARGINS),
    "sizes": tuple(loss for loss in LOSSES if loss != "softmax"),
    "cached_rows": OF_SEVERAL_ROWS,
    "labels": ("softmax",),
}


def check_poolings(poolings: tuple[str, ...]) -> None:
    """Raises ValueError if a pooling does not exist, or there are no poolings."""
    if not poolings:
        raise ValueError(f"pooling: is empty: take {POOLINGS[0]}")
    for name in poolings:
        if name not in POOLINGS:
            raise ValueError(
                f"pooling: {name!r} is not one of {', '.join(POOLINGS)}{nearest(name, POOLINGS)}"
            )


def check_compared_rows(config: Any, whole: Config) -> None:
    """Raises ValueError if settings prevent an objective from comparing the rows of a batch.

    Args:
      config: the objective, with `loss`, `cached_rows` and `compares_rows`.
      whole: the config of the run.
    """
    recipe = whole.recipe
    if config.cached_rows and len(whole.objectives) > 1:
        raise ValueError("cached_rows: not supported with other objectives: remove it, or them")
    if not config.compares_rows:
        return
    if recipe.accumulation > 1:
        raise ValueError(
            f"loss: {config.loss} compares all rows of a batch, but recipe.accumulation: "
            f"{recipe.accumulation} computes their losses separately: take accumulation: 1, "
            "and cached_rows for the memory that it saves"
        )
    if recipe.batch_size < 2:
        raise ValueError(
            f"loss: {config.loss} compares the rows of a batch, but recipe.batch_size: "
            f"{recipe.batch_size} has only one row: raise it"
        )


@dataclasses.dataclass(frozen=True)
class Projection:
    """A dense layer after the pooling.

    Attributes:
      size: the size of its output; None = the size of its input.
      activation: the activation after it; None = there is none.
      bias: whether it has a bias.
      keep: whether the trained model keeps it. The release of SimCSE trains with a projection, and
        drops it after unsupervised training (Gao et al., 2021, section 6.1).
    """

    size: int | None = omitted()
    activation: str | None = "tanh"
    bias: bool = True
    keep: bool = True

    def __post_init__(self):
        at_least(self, 1, "size")
        if self.activation is not None:
            one_of("activation", self.activation, ACTIVATIONS)


@keys(
    "loss scale symmetric hard_negative_weight margin pooling projection normalize sizes "
    "cached_rows labels mix weight"
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceEmbeddingConfig(ReaderConfig):
    """Vectors of texts that are compared with each other.

    An example has C texts. `multiple_negatives` takes a query, its document and any number of hard
    negatives, or a single text, which is encoded twice with different dropout; `triplet` takes a
    query, its document and other documents; `margin_mse` takes a query, its document, another
    document and the margin of a teacher; `softmax` two texts and their label. All other losses take
    two texts and their score from 0 to 1.

    Attributes:
      loss: `multiple_negatives` = the cross-entropy of the query's document among the documents of
        all rows, by their cosines (Henderson et al., 2017; for single texts SimCSE, Gao et al.,
        2021); `triplet` = max(0, distance to the document - distance to the other + margin),
        Euclidean (Reimers and Gurevych, 2019, section 3); `margin_mse` = the squared error of the
        product with the document minus that with the other (Hofstätter et al., 2020, section 4.2);
        `softmax` = the cross-entropy of a linear layer on [u; v; |u - v|], which the trained model
        does not keep (Reimers and Gurevych, 2019, section 3); `cosine` = the squared error of the
        cosine; `contrastive` = half the square of the distance 1 - cosine of pairs with the score
        1, and of max(0, margin - distance) of those with 0 (Hadsell et al., 2006); `cosent` = log(1
        + sum of exp(scale (cosine - other cosine))) over all pairs whose score is lower than the
        other's, (Su, 2022); `angle` = the same with the angle of complex vectors (Li and Li, 2023).
      scale: the factor of cosines and angles before the softmax, 1 / temperature.
      symmetric: for `multiple_negatives`, whether the loss is the mean of both directions: the
        document among all documents, and the query among all queries.
      hard_negative_weight: for `multiple_negatives`, a number that is added to the scaled cosines
        of a query and its own hard negatives.
      margin: the margin of `triplet` and `contrastive`; None = 5 and 0.5.
      pooling: one of `POOLINGS`, or several joined by commas, whose vectors are concatenated.
      projection: a dense layer after the pooling; None = there is none.
      normalize: whether the vectors of the trained model have the length 1. The losses of cosines
        do not depend on it; `triplet`, `margin_mse` and `softmax` are then computed from normalized
        vectors.
      sizes: Matryoshka representation learning (Kusupati et al., 2022): the numbers of leading
        dimensions that are used as vectors, including the full size. The loss is the sum over all
        sizes. Empty = only the full vector.
      cached_rows: for losses over several rows, the most examples of a replica whose vectors are
        computed at a time: the largest number down to its half that divides them. Memory is needed
        for the layers of only these examples, and all layers are computed twice (Gao et al., 2021,
        "Scaling Deep Contrastive Learning Batch Size"). It does not change the gradient. None = all
        examples together.
      labels: for `softmax`, the names of the labels, in the order of their ids; filled in from the
        data.
      mix: for an ELMo, the mix of its layers that is pooled.
      weight: factor of this loss in the sum; 0 = only distillation trains the vectors.
    """

    type = "sentence_embedding"
    decides_weights = True
    similarity: ClassVar[str] = "cosine"  # by which an evaluation compares vectors

    loss: str = "multiple_negatives"
    scale: float = 20.0
    symmetric: bool = False
    hard_negative_weight: float = 0.0
    margin: float | None = omitted()
    pooling: str = "mean"
    projection: Projection | None = omitted()
    normalize: bool = True
    sizes: tuple[int, ...] = ()
    cached_rows: int | None = omitted()
    labels: tuple[str, ...] = omitted(())

    def __post_init__(self):
        super().__post_init__()
        one_of("loss", self.loss, LOSSES)
        check_poolings(self.poolings)
        above(self, 0, "scale")
        at_least(self, 1, "cached_rows")
        for name in _TAKERS:
            self._check_key(name)
        if self.margin is None:
            object.__setattr__(self, "margin", _MARGINS.get(self.loss))
        else:
            above(self, 0, "margin")
        if self.cached_rows and self.mix is not None and self.mix.penalty:
            raise ValueError("cached_rows: not supported with mix.penalty; remove one of them")
        if any(size < 1 for size in self.sizes) or len(set(self.sizes)) < len(self.sizes):
            raise ValueError(f"sizes: expected different numbers from 1 on, got {list(self.sizes)}")
        if self.sizes and self.projection is not None and not self.projection.keep:
            raise ValueError(
                "sizes: the trained model does not keep the projection whose output has these "
                "sizes: set projection.keep to true, or remove sizes"
            )

    def _check_key(self, name: str) -> None:
        """Raises ValueError if a key is set that the loss does not have."""
        value = getattr(self, name)
        if value != type(self).__dataclass_fields__[name].default:
            if self.loss not in _TAKERS[name]:
                more = ", or take recipe.accumulation" if name == "cached_rows" else ""
                raise ValueError(
                    f"{name}: {value}: not supported for the loss {self.loss}; remove it{more}"
                )

    @property
    def poolings(self) -> tuple[str, ...]:
        """The names of the poolings."""
        return tuple(name.strip() for name in self.pooling.split(",") if name.strip())

    @property
    def reads_pooler(self) -> bool:
        """Whether a vector is the output of the encoder's pooler."""
        return "pooled" in self.poolings

    @property
    def kept_projection(self) -> Projection | None:
        """The projection that the trained model keeps; None = none."""
        return self.projection if self.projection is not None and self.projection.keep else None

    @property
    def takes_labels(self) -> bool:
        """Whether the objective takes its labels from the data."""
        return self.loss == "softmax"

    @property
    def compares_rows(self) -> bool:
        """Whether the loss of a row depends on the other rows of the batch."""
        return bool(self.weight) and self.loss in OF_SEVERAL_ROWS

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({TARGETS[self.loss]} if self.weight and self.loss in TARGETS else ())

    def optional(self) -> frozenset[str]:
        """Returns all fields of `needs`: an evaluation of vectors needs only texts."""
        return self.needs()

    def vector_size(self, encoder: EncoderConfig) -> int:
        """Returns the size of the vectors that are compared."""
        if self.projection is not None and self.projection.size is not None:
            return self.projection.size
        return encoder.hidden_size * len(self.poolings)

    def served_size(self, encoder: EncoderConfig) -> int:
        """Returns the size of the vectors of the trained model."""
        if self.kept_projection is None:
            return encoder.hidden_size * len(self.poolings)
        return self.vector_size(encoder)

    def check(self, whole: Config) -> None:
        """Raises ValueError if settings prevent the comparison of the rows of a batch."""
        check_compared_rows(self, whole)

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the encoder cannot return such vectors."""
        super().check_encoder(encoder)
        if self.reads_pooler and not encoder.pooler:
            raise ValueError(
                "pooling: reads the pooled output: set encoder.pooler to true, or take another "
                "pooling"
            )
        if encoder.pools_texts and self.poolings != ("pooled",):
            raise ValueError(
                f"pooling: {self.pooling}: encoder.type: {encoder.type} pools texts itself, "
                "without special tokens: take pooled"
            )
        if encoder.mixes_layers and self.mix is None:
            message = "the vectors of an ELMo are pooled from a mix: give one, such as mix: {}"
            raise ValueError(f"mix: missing: {message}")
        if not encoder.mixes_layers and self.mix is not None:
            raise ValueError(f"mix: not supported for {encoder.type}, only for bilm; remove it")
        size = self.vector_size(encoder)
        if self.sizes and max(self.sizes) > size:
            raise ValueError(f"sizes: {max(self.sizes)} is larger than the vector, of size {size}")
        if self.sizes and size not in self.sizes:
            raise ValueError(f"sizes: {list(self.sizes)} lacks {size}, the size of the full vector")
        odd = [n for n in self.sizes or (size,) if n % 2]
        if self.loss == "angle" and odd:
            raise ValueError(
                f"loss: angle: reads a vector as complex numbers, but its size {odd[0]} is odd: "
                "set projection.size, or sizes, to even numbers"
            )


PARTS = (SentenceEmbeddingConfig,)
