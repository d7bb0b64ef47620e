"""The parts that transformer layers are made from, and the position schemes.

The configs of encoders have flat keys, which YAML sets and their docstrings describe. The configs
derive the parts from these keys, and each layer takes the part that describes it. A new form of a
layer is a new part, or a new field of a part; the layers between it and the encoder do not change.

Shapes: D hidden, E embedding size, N heads, K heads of keys and values, H head size, F inner
size.
"""

import dataclasses
from typing import Any, ClassVar, Self

from typing_extensions import override

from official.utils.strict import at_least


class Part:
    """A frozen dataclass that describes a layer, and is saved with the layer by Keras."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]


@dataclasses.dataclass(frozen=True)
class Norm(Part):
    """A norm.

    Attributes:
      epsilon: added to the variance or the mean square.
      type: 'layer', or 'rms' (no mean and no offset).
      bias: whether a layer norm has an offset.
    """

    epsilon: float
    type: str = "layer"
    bias: bool = True


@dataclasses.dataclass(frozen=True)
class Heads(Part):
    """The heads of an attention layer.

    Attributes:
      count: N.
      size: H.
      dropout: dropout rate of the attention weights.
      use_bias: whether the projections have biases.
      scale: whether scores are divided by sqrt(H). If they are not, the initial query kernel is
        divided by it instead, as in T5.
      share_dropout: whether all queries of a head share one dropout mask.
      key_values: K, which divides N; each head of keys and values is read by N / K heads of queries
        (Ainslie et al., 2023). None = N.
    """

    count: int
    size: int
    dropout: float = 0.0
    use_bias: bool = True
    scale: bool = True
    share_dropout: bool = False
    key_values: int | None = None

    @property
    def grouped(self) -> bool:
        """Whether there are fewer heads of keys and values than of queries."""
        return self.key_values not in (None, self.count)


@dataclasses.dataclass(frozen=True)
class FeedForwardParts(Part):
    """Two affine maps with an activation between them.

    Attributes:
      size: F.
      activation: a name of `official.modeling.layers.activation`.
      gated: whether the activation is applied to a gate, a second map from D to F, and the product
        of gate and inner map is mapped back (Shazeer, 2020, section 2; T5 1.1).
      use_bias: whether the maps have biases.
      dropout: dropout rate of the activations. Transformer-XL uses it, BERT does not.
      share_dropout: whether all positions of a sequence share one dropout mask.
    """

    size: int
    activation: str
    gated: bool = False
    use_bias: bool = True
    dropout: float = 0.0
    share_dropout: bool = False


class Positions(Part):
    """A position scheme: how an encoder represents the positions of tokens.

    Attributes:
      module: the module of `official.modeling.layers` with the `Scheme` that runs it.
      names: the values of the key `positions` that select it.
      key: the key of an encoder that selects it, if it is not `positions`.
    """

    module: ClassVar[str] = ""
    names: ClassVar[tuple[str, ...]] = ("none",)
    key: ClassVar[str] = "positions"

    @classmethod
    def of(cls, config: Any) -> Self | None:
        """Returns this scheme with the settings of a `TransformerConfig`; None = not selected.

        Raises:
          ValueError: the scheme cannot be combined with other fields of the config.
        """
        del config
        return None


@dataclasses.dataclass(frozen=True)
class Learned(Positions):
    """A row of a table for each position, which is added to the embeddings.

    Attributes:
      rows: the rows of the table.
      offset: the row of the first token.
    """

    module = "absolute_positions"
    names = ("learned",)

    rows: int
    offset: int = 0

    @classmethod
    @override
    def of(cls, config: Any) -> Self:
        return cls(config.max_positions + config.position_offset, config.position_offset)


@dataclasses.dataclass(frozen=True)
class Sinusoidal(Positions):
    """Alternating sines and cosines of the position, which are added to the embeddings.

    Attributes:
      offset: the position of the first token.
    """

    module = "absolute_positions"
    names = ("sinusoidal",)

    offset: int = 0

    @classmethod
    @override
    def of(cls, config: Any) -> Self:
        key = "hidden_size" if config.embedding_size is None else "embedding_size"
        if getattr(config, key) % 2:
            raise ValueError(
                f"{key}: {getattr(config, key)} is odd: half of it are sines, half cosines"
            )
        return cls(config.position_offset)


@dataclasses.dataclass(frozen=True)
class Rotary(Positions):
    """Rotary positions: queries and keys are rotated by angles that grow with the position.

    Attributes:
      theta: the base of the angles; position p has the angles p * theta^(-2 i / H).
      local_theta: the same for layers with local attention.
    """

    module = "rotary_positions"
    names = ("rotary",)

    theta: float = 10000.0
    local_theta: float = 10000.0

    @classmethod
    @override
    def of(cls, config: Any) -> Self:
        size = config.hidden_size // config.num_heads
        if size % 2:
            raise ValueError(
                f"num_heads: heads of the odd size {size} cannot have rotary positions: take "
                "another number of heads, or other positions"
            )
        if config.disentangled is not None:
            raise ValueError("positions: rotary is not supported with disentangled: take none")
        local = config.local_attention
        return cls(config.rotary_theta, config.rotary_theta if local is None else local.theta)


@dataclasses.dataclass(frozen=True)
class RelativeKeys(Positions):
    """A table of vectors of distances in each layer; products with queries are added to scores.

    See `official.modeling.layers.relative_keys`.

    Attributes:
      distances: the number of distances in each direction, including 0.
      keys: whether products with keys are added to scores too.
    """

    module = "relative_keys"
    names = ("relative_key", "relative_key_query")

    distances: int
    keys: bool = False

    @classmethod
    @override
    def of(cls, config: Any) -> Self:
        if config.disentangled is not None:
            raise ValueError(
                f"positions: {config.positions} is not supported with disentangled: take none"
            )
        named = _for_all_pairs(config, cls.key)
        return cls(config.max_positions, named == "relative_key_query")


@dataclasses.dataclass(frozen=True)
class RelativeBuckets(Positions):
    """A number for each head and bucket of distances, which is added to the scores of all layers.

    See `official.modeling.layers.relative_bias`.

    Attributes:
      buckets: the number of buckets.
      max_distance: the distance from which all distances share a bucket.
      bidirectional: whether keys after the query have separate buckets.
    """

    module = "relative_bias"
    key = "relative_buckets"

    buckets: int
    max_distance: int = 128  # the value of MPNet's release
    bidirectional: bool = True

    @classmethod
    @override
    def of(cls, config: Any) -> Self | None:
        at_least(config, 4, "relative_buckets")
        return _for_all_pairs(config, cls.key) and cls(config.relative_buckets)


@dataclasses.dataclass(frozen=True)
class Disentangled(Positions):
    """The distances of disentangled attention (DeBERTa: He et al., 2021, section 3.1).

    The score of a query and a key has a term of their contents, one of the content of the query
    and their distance, and one of their distance and the content of the key. All layers read one
    table of distances. See `official.modeling.layers.disentangled`.

    Attributes:
      buckets: B, the number of buckets of distances in each direction, so that the table has 2 B
        rows. Each distance up to B / 2 has a bucket; longer distances share buckets of growing
        ranges (v2 and v3). 0 = each distance below `max_distance` has a row (v1).
      max_distance: longer distances count as this distance, or as this distance minus 1 with
        buckets.
      own_projections: whether each layer has two separate kernels for distances, and no bias of the
        keys (v1). Otherwise the kernels and biases of queries and keys also project distances.
      norm: whether a layer norm follows the table.
    """

    module = "disentangled"
    key = "disentangled"

    buckets: int = 256
    max_distance: int = 512
    own_projections: bool = False
    norm: bool = True

    def __post_init__(self):
        if self.buckets % 2 or self.buckets < 0 or self.buckets == 2:
            raise ValueError(
                f"buckets: {self.buckets} is not an even number of at least 4; 0 = no buckets"
            )
        least = self.buckets // 2 + 2 if self.buckets else 1
        if self.max_distance < least:
            raise ValueError(
                f"max_distance: {self.max_distance} is below {least}, the minimum with "
                f"{self.buckets} buckets"
            )

    @classmethod
    @override
    def of(cls, config: Any) -> Self | None:
        if config.disentangled is not None and config.heads.grouped:
            raise ValueError(
                "num_key_value_heads: not supported with disentangled: remove one of them"
            )
        return _for_all_pairs(config, cls.key)


@dataclasses.dataclass(frozen=True)
class SinusoidalDistances(Positions):
    """The keys of distances of Transformer-XL, and XLNet's of segments.

    See `official.modeling.layers.relative_attention`.

    Attributes:
      segments: whether scores depend on whether two positions are in one segment.
    """

    module = "relative_attention"

    segments: bool = False


def _for_all_pairs(config: Any, key: str) -> Any:
    """Returns the value of a key whose scheme needs the scores of all pairs of tokens of a row.

    Raises:
      ValueError: the key is set, but some layers do not compute all pairs.
    """
    value = getattr(config, key)
    shown = f"{key}: {value}" if key == "positions" else key
    if value and config.local_attention is not None:
        raise ValueError(f"local_attention: not supported with {shown}: remove one of them")
    if value and config.causal:
        raise ValueError(f"{shown}: not supported for causal: true; remove it")
    return value


# The schemes that the key `positions` of a transformer encoder selects.
NAMED = (Learned, Sinusoidal, Rotary, RelativeKeys, Positions)
POSITIONS: dict[str, type[Positions]] = {name: kind for kind in NAMED for name in kind.names}


def position_schemes(config: Any) -> tuple[Positions, ...]:
    """Returns the position schemes of a `TransformerConfig`.

    Raises:
      ValueError: two fields of the config cannot be combined.
    """
    kinds = (POSITIONS[config.positions], RelativeBuckets, Disentangled)
    return tuple(scheme for kind in kinds if (scheme := kind.of(config)) is not None)


@dataclasses.dataclass(frozen=True)
class EmbeddingParts(Part):
    """The embeddings of a transformer.

    Attributes:
      vocab_size: rows of the token table.
      size: E.
      hidden_size: D; if it differs from E, a projection follows.
      segment_types: rows of the segment table; 0 = there is no such table.
      norm: the norm after the sum; None = there is none.
      dropout: dropout rate.
      scale: whether the token embeddings are multiplied by sqrt(E).
      positions: the position schemes; some of them add to the embeddings.
    """

    vocab_size: int
    size: int
    hidden_size: int
    segment_types: int = 0
    norm: Norm | None = None
    dropout: float = 0.0
    scale: bool = False
    positions: tuple[Positions, ...] = ()


@dataclasses.dataclass(frozen=True)
class BlockParts(Part):
    """A transformer block.

    Attributes:
      size: D.
      heads: the heads of attention.
      feed_forward: the feed-forward network.
      norm: the norms.
      pre_norm: whether norms are applied to the input of a sublayer (GPT-2, T5); otherwise to the
        sum of its input and its output (BERT).
      first_norm: whether there is a norm before the attention, with `pre_norm`.
      dropout: dropout rate of the output of each sublayer, and of vectors of distances.
      attention_output_dropout: the dropout rate of the output of self-attention; None = `dropout`.
      share_dropout: whether the positions of a sequence share these dropout masks.
      cross: whether there is cross-attention between the two sublayers (a decoder's; Vaswani et
        al., 2017, section 3.1).
      adapter_size: the bottleneck of the two adapters after self-attention and after the
        feed-forward network; None = no adapters.
      positions: the position schemes; some of them rotate queries and keys, or add to scores.
    """

    size: int
    heads: Heads
    feed_forward: FeedForwardParts
    norm: Norm
    pre_norm: bool = False
    first_norm: bool = True
    dropout: float = 0.0
    attention_output_dropout: float | None = None
    share_dropout: bool = False
    cross: bool = False
    adapter_size: int | None = None
    positions: tuple[Positions, ...] = ()
