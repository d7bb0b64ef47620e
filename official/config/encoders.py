"""Configs of the encoders: sizes and structure.

The encoders are the transformer (BERT, its successors and GPT-2), Transformer-XL (also XLNet), the
encoder-decoder (T5), the bidirectional language model of ELMo, and static vectors (model2vec).
"""

import dataclasses
from collections.abc import Sequence
from typing import Self

from typing_extensions import override

from official.config import blocks
from official.config.blocks import Disentangled
from official.config.parts import EncoderConfig
from official.utils.strict import above, at_least, at_most, dropout_rate, omitted, one_of

# Names in `official.modeling.layers`.
ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu")
POOLER_ACTIVATIONS = (*ACTIVATIONS, "tanh")
INITIALIZERS = ("normal", "truncated_normal")
FAMILIES = ("ernie",)
# For the transformer encoder.
TRANSFORMER_POSITIONS = tuple(blocks.POSITIONS)
# For the encoder-decoder.
NORMS = ("rms", "layer")
POSITIONS = ("relative", "sinusoidal")
# For ELMo's encoder.
TOKENS = ("characters", "words")
BILM_ACTIVATIONS = ("relu", "tanh")
_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
_WIDTH = 50  # ids of characters of a word


@dataclasses.dataclass(frozen=True)
class Convolution:
    """A convolution of the embeddings, added to the states of the first layer (DeBERTa v2).

    Attributes:
      kernel_size: the number of tokens that it reads, odd.
      activation: the activation, one of those of a pooler.
    """

    kernel_size: int = 3
    activation: str = "gelu"

    def __post_init__(self):
        if self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size: {self.kernel_size} is not an odd number of at least 1")
        one_of("activation", self.activation, POOLER_ACTIVATIONS)


@dataclasses.dataclass(frozen=True)
class LocalAttention:
    """Layers in which a position attends only to nearby positions, in time linear in the length.

    Attributes:
      window: W; a position attends to positions at a distance of at most W / 2, rounded down, on
        each side: with W = 128 to 129 positions, including itself.
      global_every: n; layer 0 and every n-th layer after it attend to all positions.
      theta: `rotary_theta` for the layers with local attention.
    """

    window: int = 128
    global_every: int = 3
    theta: float = 10000.0

    def __post_init__(self):
        at_least(self, 2, "window", "global_every")
        above(self, 0, "theta")

    @property
    def reach(self) -> int:
        """The largest distance that is attended to."""
        return self.window // 2


@dataclasses.dataclass(frozen=True)
class TransformerConfig(EncoderConfig):
    """A transformer encoder.

    Attributes:
      vocab_size: rows of the token table; None = the size of the tokenizer's vocabulary.
      hidden_size: D.
      num_layers: the number of layers.
      num_heads: N; divides the hidden size.
      intermediate_size: the inner size of the feed-forward network.
      embedding_size: E; None = the hidden size. Other sizes are projected to the hidden size.
      max_positions: the largest number of tokens in a sequence.
      positions: how positions are represented: 'learned' = a row of a table, or 'sinusoidal' =
        alternating sines and cosines (Vaswani et al., 2017, section 3.5), which are added to the
        embeddings; 'rotary' = queries and keys are rotated (Su et al., 2021), component i of a head
        with component i + H / 2; 'relative_key' = the scores of each layer have a term of the query
        and a vector of the distance (Shaw et al., 2018), and 'relative_key_query' = also a term of
        the key and that vector (Huang et al., 2020); or 'none'.
      scale_embeddings: whether token embeddings are multiplied by sqrt(E), so that they are as
        large as sinusoids (Vaswani et al., 2017, section 3.4).
      segment_types: rows of the segment table; 0 = no table, 1 = one row for all tokens.
      activation: 'gelu_tanh', 'gelu' (erf form), 'relu' or 'silu'.
      dropout: the dropout rate of the embeddings and of the output of each sublayer.
      attention_dropout: the dropout rate of the attention weights.
      norm_epsilon: added to the variance.
      norm: 'post' (after the residual sum) or 'pre' (before the sublayer; the last layer is then
        followed by a norm).
      causal: whether a position attends only to itself and the positions before it.
      position_offset: the position of the first token.
      layer_groups: the number of groups of layers that share parameters; None = no layers share
        parameters.
      inner_layers: the number of layers in a group.
      pooler: whether there is a pooled output, a dense layer on one position.
      pooler_activation: the activation of the pooler: 'tanh', or a name as in `activation`.
      pooled_position: the position that is pooled: 'first', or 'last' = the last real position.
        None = 'first', or 'last' if causal is true, because the first position then attends only to
        itself.
      initializer: the distribution of the initial weights, of heads as well: `truncated_normal`
        (BERT, ALBERT, ELECTRA, ERNIE), `normal` (RoBERTa, SpanBERT, GPT-2, XLNet,
        Transformer-XL) or `uniform` (NeoBERT).
      initializer_range: the standard deviation of the distribution. `truncated_normal` is cut at
        two standard deviations, so that the weights have 0.88 times this value. With `uniform` it
        is the largest absolute value.
      position_initializer_range: the same for the position table; None = `initializer_range`.
      scale_residual_init: whether the last layer of each sublayer is scaled by 1 / sqrt(2 L),
        because the residual sum has 2 L terms (GPT-2, section 2.3).
      relative_buckets: the number of buckets of distances; in addition to `positions`, a number for
        each bucket and head is added to the scores of all layers (MPNet). Distances of 128 and more
        share a bucket. None = no buckets.
      disentangled: the settings of disentangled attention (DeBERTa); None = ordinary attention.
      convolution: the convolution parallel to the first layer (DeBERTa v2); None = no convolution.
      rotary_theta: the base of the angles of rotary positions; position p has the angles p *
        theta^(-2 i / H). A larger base gives longer waves.
      local_attention: layers with local attention; None = all positions attend to all.
      gated: whether the activation is applied to a gate parallel to the inner map (Shazeer, 2020):
        GeGLU with `gelu`, SwiGLU with `silu`.
      use_bias: whether the linear layers of sublayers, and the hidden layers of heads, have biases.
      norm_type: 'layer', or 'rms' (no mean and no offset).
      norm_bias: whether layer norms have offsets.
      norm_embeddings: whether the embeddings have a norm; None = with `norm: post`.
      first_norm: whether the first layer has a norm before its attention, with `norm: pre`. It is
        redundant if the embeddings have a norm.
      attention_output_dropout: the dropout rate of the output of attention; None = `dropout`.
      num_key_value_heads: the number of heads of keys and values, which divides `num_heads`: each
        is read by as many heads of queries (Ainslie et al., 2023). None = `num_heads`.
      adapter_size: the bottleneck of the two adapters of each layer (Houlsby et al., 2019); None =
        there are none. `recipe.trainable.adapters` sets it.
      family: 'ernie' = `official.convert` writes the model as an ERNIE, which computes the same as
        a BERT. None = the family follows from the other fields.
    """

    type = "transformer"
    gives_scores = True
    recomputes = True

    vocab_size: int | None = None
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    embedding_size: int | None = None
    max_positions: int = 512
    segment_types: int = 2
    activation: str = "gelu_tanh"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm_epsilon: float = 1e-12
    norm: str = "post"
    causal: bool = False
    position_offset: int = 0
    layer_groups: int | None = None
    inner_layers: int = 1
    pooler: bool = True
    pooler_activation: str = "tanh"
    pooled_position: str | None = None  # type: ignore[assignment]  # set in __post_init__
    initializer: str = "truncated_normal"
    initializer_range: float = 0.02
    position_initializer_range: float | None = None
    scale_residual_init: bool = False
    positions: str = omitted("learned")
    scale_embeddings: bool = omitted(False)
    relative_buckets: int | None = omitted()
    disentangled: Disentangled | None = omitted()
    convolution: Convolution | None = omitted()
    rotary_theta: float = omitted(10000.0)
    local_attention: LocalAttention | None = omitted()
    gated: bool = omitted(False)
    use_bias: bool = omitted(True)
    norm_type: str = omitted("layer")
    norm_bias: bool = omitted(True)
    norm_embeddings: bool | None = omitted()
    first_norm: bool = omitted(True)
    attention_output_dropout: float | None = omitted()
    num_key_value_heads: int | None = omitted()
    adapter_size: int | None = omitted()
    family: str | None = omitted()

    # The layout of a task's texts; see `official.tokenizers.pair_packing`. Positions start at the
    # first token, so padding is on the right.
    layout = "cls_first"

    def __post_init__(self):
        if self.pooled_position is None:
            object.__setattr__(self, "pooled_position", "last" if self.causal else "first")
        at_least(self, 1, "hidden_size", "num_layers", "num_heads", "intermediate_size")
        at_most(self, 1000, "num_layers", "inner_layers")
        at_least(self, 0, "norm_epsilon", "initializer_range")
        at_least(self, 1, "max_positions", "inner_layers")
        at_least(self, 1, "vocab_size", "embedding_size", "layer_groups", "adapter_size")
        at_least(self, 1, "num_key_value_heads")
        at_least(self, 0, "segment_types", "position_offset")
        dropout_rate(self, "dropout", "attention_dropout")
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"num_heads: {self.num_heads} heads do not divide hidden_size {self.hidden_size}"
            )
        if self.num_heads % (self.num_key_value_heads or 1):
            raise ValueError(
                f"num_key_value_heads: {self.num_key_value_heads} heads do not divide the "
                f"{self.num_heads} of num_heads"
            )
        one_of("activation", self.activation, ACTIVATIONS)
        one_of("initializer", self.initializer, (*INITIALIZERS, "uniform"))
        one_of("norm", self.norm, ["post", "pre"])
        one_of("pooler_activation", self.pooler_activation, POOLER_ACTIVATIONS)
        one_of("pooled_position", self.pooled_position, ["first", "last"])
        if self.causal and self.pooled_position == "first":
            raise ValueError(
                "pooled_position: with causal: true the first position attends only to itself: "
                "use last"
            )
        if self.family is not None:
            one_of("family", self.family, FAMILIES)
        one_of("positions", self.positions, TRANSFORMER_POSITIONS)
        one_of("norm_type", self.norm_type, NORMS)
        above(self, 0, "rotary_theta")
        if self.attention_output_dropout is not None:
            dropout_rate(self, "attention_output_dropout")
        self._check_forms()
        if self.convolution is not None and self.causal:
            raise ValueError("convolution: not supported for causal: true; remove it")
        if self.convolution is not None and self.num_states < 3:
            raise ValueError("convolution: it comes between two layers, but num_layers is 1")
        if self.layer_groups is None and self.inner_layers != 1:
            raise ValueError(
                "inner_layers: not supported without layer_groups: set it, or remove inner_layers"
            )
        if self.layer_groups is not None and self.num_layers % self.layer_groups:
            raise ValueError(
                f"layer_groups: {self.layer_groups} groups do not divide {self.num_layers} layers"
            )

    def _check_forms(self):
        """Refuses invalid combinations of the settings of newer systems."""
        if self.local_attention is not None and self.causal:
            raise ValueError("local_attention: not supported for causal: true: remove one of them")
        blocks.position_schemes(self)
        if self.norm_type == "rms" and not self.norm_bias:
            raise ValueError("norm_bias: an RMS norm has no offset: remove norm_bias")
        if not self.first_norm and (self.norm != "pre" or self.layer_groups is not None):
            raise ValueError(
                "first_norm: false is for norm: pre without layer_groups: remove first_norm"
            )

    @property
    @override
    def hidden_bias(self) -> bool:  # type: ignore[override]  # a constant of other encoders
        return self.use_bias

    @property
    @override
    def decodes_masks(self) -> bool:
        return self.norm == "post" and not self.causal

    @property
    def position_range(self) -> float:
        """`initializer_range` of the position table."""
        given = self.position_initializer_range
        return self.initializer_range if given is None else given

    @property
    def embeddings(self) -> blocks.EmbeddingParts:
        """The parts of the embeddings."""
        has_norm = self.norm == "post" if self.norm_embeddings is None else self.norm_embeddings
        return blocks.EmbeddingParts(
            self.known_vocab_size,
            self.embedding_size or self.hidden_size,
            self.hidden_size,
            segment_types=self.segment_types,
            norm=self.norms if has_norm else None,
            dropout=self.dropout,
            scale=self.scale_embeddings,
            positions=blocks.position_schemes(self),
        )

    @property
    def heads(self) -> blocks.Heads:
        """The parts of the heads of attention."""
        return blocks.Heads(
            self.num_heads,
            self.hidden_size // self.num_heads,
            dropout=self.attention_dropout,
            use_bias=self.use_bias,
            key_values=self.num_key_value_heads,
        )

    def block(self, first: bool = False) -> blocks.BlockParts:
        """Returns the parts of a block; `first` = of the first layer."""
        return blocks.BlockParts(
            self.hidden_size,
            self.heads,
            blocks.FeedForwardParts(
                self.intermediate_size, self.activation, gated=self.gated, use_bias=self.use_bias
            ),
            self.norms,
            pre_norm=self.norm == "pre",
            first_norm=self.first_norm or not first,
            dropout=self.dropout,
            attention_output_dropout=self.attention_output_dropout,
            adapter_size=self.adapter_size,
            positions=blocks.position_schemes(self),
        )

    @override
    def reach(self, layer: int) -> int | None:
        local = self.local_attention
        return None if local is None or layer % local.global_every == 0 else local.reach

    def is_local(self, layer: int) -> bool:
        """Returns whether the attention of a layer, counted from 0, is local."""
        return self.reach(layer) is not None

    @property
    @override
    def num_states(self) -> int:
        """See `EncoderConfig`; a group has `inner_layers` layers."""
        return self.num_layers * self.inner_layers + 1

    @property
    @override
    def trainable_parts(self) -> frozenset[str]:
        """See `EncoderConfig`; layers that share weights are trained together."""
        apart = {"layers", "unfreeze_every"} if self.layer_groups is None else set()
        return frozenset({"embeddings", "adapters", "lora"} | apart)


@dataclasses.dataclass(frozen=True)
class TransformerXLConfig(EncoderConfig):
    """A Transformer-XL encoder; the defaults are those of XLNet.

    Attributes:
      vocab_size: rows of the token table; None = the size of the tokenizer's vocabulary.
      hidden_size: D, even.
      num_layers: the number of layers.
      num_heads: N.
      head_size: H; None = the hidden size divided by the number of heads.
      intermediate_size: the inner size of the feed-forward network.
      segment_types: 2 = attention scores depend on whether two positions are in the same segment;
        0 = they do not.
      activation: 'gelu_tanh', 'gelu' (erf form), 'relu' or 'silu'.
      dropout: the dropout rate of the embeddings, of the relative position encodings, of the
        output of each sublayer and of the output.
      attention_dropout: the dropout rate of the attention weights.
      inner_dropout: the dropout rate of the activations within the feed-forward network.
      norm_epsilon: added to the variance.
      untie_biases: whether each layer has its own content and position biases.
      attention: 'bi' = a position attends in both directions; 'uni' = it attends to itself, the
        positions before it and the memory.
      same_length: if attention is 'uni', whether every position attends to the same number of
        positions, itself and the `memory_length` - 1 before it (Transformer-XL's release, in
        evaluation). Otherwise it attends to the whole memory and all positions before it.
      memory_length: M, the number of positions of earlier rows in the memory; 0 = no memory.
      reuse_length: the number of positions at the start of a row that may become memory; 0 = all.
      clamp_length: the largest relative distance; larger ones are clamped to it. 0 = no limit.
      scale_embeddings: whether embeddings are multiplied by sqrt(D) (Transformer-XL).
      query_stream: whether there is an initial vector for the query stream (XLNet).
      pooler: whether there is a pooled output, tanh of a dense layer on one position.
      pooled_position: the position that is pooled: 'last' = the last real position, [CLS] (XLNet);
        'first_of_text' = the first real position, in rows that end with [CLS] (`summary_type:
        first` of transformers); 'first' = [CLS], which then begins the rows.
      initializer: the distribution of the initial weights, of heads as well: `truncated_normal`
        (BERT, ALBERT, ELECTRA, ERNIE) or `normal` (RoBERTa, SpanBERT, GPT-2, XLNet,
        Transformer-XL).
      initializer_range: the standard deviation of the distribution. `truncated_normal` is cut at
        two standard deviations, so that the weights have 0.88 times this value.
      adapter_size: the bottleneck of the two adapters of each layer (Houlsby et al., 2019); None =
        there are none. `recipe.trainable.adapters` sets it.
    """

    type = "transformer_xl"
    batch_fields = ("memory", "memory_mask", "permutation_mask", "backward")
    causal_setting = "attention: uni"

    vocab_size: int | None = None
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    head_size: int | None = None
    intermediate_size: int = 3072
    segment_types: int = 2
    activation: str = "gelu_tanh"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    inner_dropout: float = 0.0
    norm_epsilon: float = 1e-12
    untie_biases: bool = True
    attention: str = "bi"
    same_length: bool = False
    memory_length: int = 0
    reuse_length: int = 0
    clamp_length: int = 0
    scale_embeddings: bool = False
    query_stream: bool = True
    pooler: bool = False
    pooled_position: str = "last"
    initializer: str = "normal"
    initializer_range: float = 0.02
    adapter_size: int | None = omitted()

    # Heads and tools read these of every encoder. The embeddings have the hidden size. Relative
    # distances have no limit, so only time and memory limit the length of a sequence.
    embedding_size = None
    max_positions = 2**16

    def __post_init__(self):
        at_least(self, 1, "hidden_size", "num_layers", "num_heads", "intermediate_size")
        at_most(self, 1000, "num_layers")
        at_least(self, 0, "norm_epsilon", "initializer_range")
        at_least(self, 1, "vocab_size", "head_size", "adapter_size")
        at_least(self, 0, "memory_length", "reuse_length", "clamp_length")
        dropout_rate(self, "dropout", "attention_dropout", "inner_dropout")
        if self.hidden_size % 2:
            raise ValueError(
                f"hidden_size: {self.hidden_size} is odd: half of it are sines, half cosines"
            )
        if self.head_size is None and self.hidden_size % self.num_heads:
            raise ValueError(
                f"num_heads: {self.num_heads} heads do not divide hidden_size {self.hidden_size}: "
                "set head_size, or another number"
            )
        one_of("activation", self.activation, ACTIVATIONS)
        one_of("initializer", self.initializer, INITIALIZERS)
        one_of("attention", self.attention, ["bi", "uni"])
        one_of("pooled_position", self.pooled_position, ["last", "first", "first_of_text"])
        one_of("segment_types", self.segment_types, [0, 2])
        if self.same_length and (self.attention != "uni" or not self.memory_length):
            raise ValueError("same_length: only supported with attention: uni and a memory_length")
        if self.reuse_length and not self.memory_length:
            raise ValueError(
                "reuse_length: not supported without memory_length: set it, or remove reuse_length"
            )
        if self.attention == "uni" and self.pooled_position != "last":
            raise ValueError(
                f"pooled_position: with attention: uni the position {self.pooled_position} attends "
                "only to itself: use last"
            )

    def block(self) -> blocks.BlockParts:
        """Returns the parts of a block."""
        return blocks.BlockParts(
            self.hidden_size,
            blocks.Heads(
                self.num_heads,
                self.head_size or self.hidden_size // self.num_heads,
                dropout=self.attention_dropout,
            ),
            blocks.FeedForwardParts(
                self.intermediate_size, self.activation, dropout=self.inner_dropout
            ),
            self.norms,
            dropout=self.dropout,
            adapter_size=self.adapter_size,
            positions=(blocks.SinusoidalDistances(self.segment_types > 0),),
        )

    @property
    def layout(self) -> str:
        """The layout of a task's texts; see `official.tokenizers.pair_packing`."""
        return "cls_first" if self.pooled_position == "first" else "cls_last"

    @property
    def causal(self) -> bool:
        """Whether positions do not attend to later positions."""
        return self.attention == "uni"

    @property
    @override
    def trainable_parts(self) -> frozenset[str]:
        return frozenset({"layers", "embeddings", "unfreeze_every", "adapters", "lora"})

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        """The shape of the memory of a row: the inputs of all layers at the last positions."""
        return self.num_layers, self.memory_length, self.hidden_size

    @property
    def attention_window(self):
        """The number of positions that each attends to if attention is 'uni'; 0 = no limit."""
        return self.memory_length if self.same_length else 0


@dataclasses.dataclass(frozen=True)
class EncoderDecoderConfig(EncoderConfig):
    """An encoder and a decoder; the defaults are those of T5 1.0 small.

    | setting | T5 1.0 | T5 1.1 | Vaswani et al. (2017) |
    |---|---|---|---|
    | activation, gated | relu, false | gelu_tanh, true | relu, false |
    | norm, norm_position | rms, pre | rms, pre | layer, post |
    | use_bias, scale_scores | false, false | false, false | true, true |
    | positions | relative | relative | sinusoidal |
    | scale_embeddings | false | false | true |
    | tied_output, scale_output | true, true | false, false | true, false |

    Attributes:
      vocab_size: rows of the token table, which encoder and decoder share; None = the size of
        the tokenizer's vocabulary.
      hidden_size: D, even if positions are sinusoidal.
      num_layers: the number of layers of the encoder.
      decoder_layers: the number of layers of the decoder; None = `num_layers`; 0 = no decoder: the
        model encodes texts and cannot generate them.
      num_heads: N.
      head_size: H; None = the hidden size divided by the number of heads.
      intermediate_size: the inner size of the feed-forward network.
      activation: 'relu', 'gelu_tanh', 'gelu' (erf form) or 'silu'.
      gated: whether the activation is applied to a gate parallel to the inner map.
      norm: 'rms' (no mean and no offset) or 'layer'.
      norm_position: 'pre' (before the sublayer; each stack ends with a norm) or 'post' (after the
        residual sum).
      norm_epsilon: added to the mean square or variance.
      use_bias: whether linear layers have biases.
      scale_scores: whether attention scores are divided by sqrt(H). If not, the initial query
        kernels are.
      positions: 'relative' = a learned bias of scores for each bucket of distances, one table in
        each stack; 'sinusoidal' = vectors that are added to the embeddings.
      relative_buckets: the number of buckets, even.
      relative_max_distance: the distance from which all distances share a bucket.
      scale_embeddings: whether embeddings are multiplied by sqrt(D).
      tied_output: whether the output is tied to the token table.
      scale_output: whether the states are divided by sqrt(D) before a tied output; None =
        `tied_output`.
      dropout: the dropout rate of the embeddings, of the output of each sublayer and, with norm
        position 'pre', of each stack's output.
      attention_dropout: the dropout rate of the attention weights.
      inner_dropout: the dropout rate of the activations within the feed-forward network.
      share_dropout: whether the positions of a sequence share each dropout mask, as in the releases
        of T5; transformers' T5 draws a mask for each position.
      initializer: the distribution of the initial weights. `fan_in` = normal, with the standard
        deviation 1 / sqrt(I) for a kernel of I inputs; embeddings, after `scale_embeddings`,
        have standard deviation 1 (T5). Or `normal` or `truncated_normal`.
      initializer_range: the standard deviation of `normal` and `truncated_normal`.
    """

    type = "encoder_decoder"
    batch_fields = ("decoder_ids",)
    gives_scores = True

    vocab_size: int | None = None
    hidden_size: int = 512
    num_layers: int = 6
    decoder_layers: int | None = None
    num_heads: int = 8
    head_size: int | None = None
    intermediate_size: int = 2048
    activation: str = "relu"
    gated: bool = False
    norm: str = "rms"
    norm_position: str = "pre"
    norm_epsilon: float = 1e-6
    use_bias: bool = False
    scale_scores: bool = False
    positions: str = "relative"
    relative_buckets: int = 32
    relative_max_distance: int = 128
    scale_embeddings: bool = False
    tied_output: bool = True
    scale_output: bool | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.1
    inner_dropout: float = 0.1
    share_dropout: bool = True
    initializer: str = "fan_in"
    initializer_range: float = 0.02

    # Heads and tools read these of every encoder. Positions have no table, so only time and memory
    # limit the length of a sequence.
    embedding_size = None
    max_positions = 2**16
    segment_types = 0
    pooler = False
    pooled_position = "first"
    layout = "cls_first"
    # T5's texts are tokens followed by the end token (Raffel et al. 2020, section 3.1).
    text_layout = "no_cls"

    def __post_init__(self):
        if self.decoder_layers is None:
            object.__setattr__(self, "decoder_layers", self.num_layers)
        if self.scale_output is None:
            object.__setattr__(self, "scale_output", self.tied_output)
        at_least(self, 1, "hidden_size", "num_layers", "num_heads")
        at_least(self, 0, "decoder_layers")
        at_least(self, 1, "intermediate_size", "vocab_size", "head_size", "relative_max_distance")
        at_least(self, 4, "relative_buckets")
        at_most(self, 1000, "num_layers", "decoder_layers")
        at_least(self, 0, "norm_epsilon", "initializer_range")
        dropout_rate(self, "dropout", "attention_dropout", "inner_dropout")
        one_of("activation", self.activation, ACTIVATIONS)
        one_of("norm", self.norm, NORMS)
        one_of("norm_position", self.norm_position, ["pre", "post"])
        one_of("positions", self.positions, POSITIONS)
        one_of("initializer", self.initializer, ("fan_in", *INITIALIZERS))
        if self.head_size is None and self.hidden_size % self.num_heads:
            raise ValueError(
                f"num_heads: {self.num_heads} heads do not divide hidden_size {self.hidden_size}: "
                "set head_size, or another number"
            )
        if self.positions == "sinusoidal" and self.hidden_size % 2:
            raise ValueError(
                f"hidden_size: {self.hidden_size} is odd: half of it are sines, half cosines"
            )
        if self.relative_buckets % 4:
            raise ValueError(
                f"relative_buckets: {self.relative_buckets} is not a multiple of 4: each direction "
                "has half of the buckets, and half of these have one distance each"
            )
        if self.relative_max_distance <= self.relative_buckets // 2:
            raise ValueError(
                f"relative_max_distance: {self.relative_max_distance} is not above "
                f"{self.relative_buckets // 2}, the number of buckets with one distance each: "
                "raise it, or lower relative_buckets"
            )
        if self.scale_output and not self.tied_output:
            raise ValueError("scale_output: true needs a tied output, but tied_output is false")

    def block(self, decoder: bool) -> blocks.BlockParts:
        """Returns the parts of a block of the encoder or the decoder."""
        positions = blocks.RelativeBuckets(
            self.relative_buckets, self.relative_max_distance, bidirectional=not decoder
        )
        return blocks.BlockParts(
            self.hidden_size,
            blocks.Heads(
                self.num_heads,
                self.head_size or self.hidden_size // self.num_heads,
                dropout=self.attention_dropout,
                use_bias=self.use_bias,
                scale=self.scale_scores,
                share_dropout=self.share_dropout,
            ),
            blocks.FeedForwardParts(
                self.intermediate_size,
                self.activation,
                gated=self.gated,
                use_bias=self.use_bias,
                dropout=self.inner_dropout,
                share_dropout=self.share_dropout,
            ),
            blocks.Norm(self.norm_epsilon, self.norm),
            pre_norm=self.norm_position == "pre",
            dropout=self.dropout,
            share_dropout=self.share_dropout,
            cross=decoder,
            positions=(positions,) if self.positions == "relative" else (),
        )

    @property
    @override
    def trainable_parts(self) -> frozenset[str]:
        """See `EncoderConfig`; the last layers of both stacks are trained together."""
        return frozenset({"layers", "embeddings", "unfreeze_every", "lora"})


@dataclasses.dataclass(frozen=True)
class BilmConfig(EncoderConfig):
    """LSTMs of both directions over words (Peters et al., 2018); defaults are those of ELMo.

    Attributes:
      vocab_size: the number of words that are predicted; None = the size of the tokenizer's
        vocabulary.
      tokens: 'characters' = a word is read by its characters; 'words' = it has a vector in a
        table of the vocabulary.
      character_size: the size of the vector of a character.
      filters: the width and the number of the convolutions of each width.
      highway_layers: the number of highway layers after the convolutions.
      activation: the activation of the convolutions: 'relu' or 'tanh'.
      cell_size: C, the cells of an LSTM.
      projection_size: P, the size of the vectors of words and of the outputs of each direction.
      num_layers: L, the number of LSTMs of each direction.
      cell_clip: the largest absolute value of a cell; 0 = no limit.
      projection_clip: the largest absolute value of an output; 0 = no limit.
      skip_connections: whether all LSTMs except the first add their input to their output.
      dropout: the dropout rate of the input of each LSTM and of the last output.
      memory_length: 1 = the state of a row is carried to the row that continues it, in training
        and evaluation on streams; 0 = each row begins with a fresh state.
      initializer: the distribution of the initial weights of heads: `normal` or `truncated_normal`.
        The encoder always has that of the release.
      initializer_range: the standard deviation of the distribution.
    """

    type = "bilm"
    batch_fields = (
        *("character_ids", "backward_character_ids", "backward_token_ids"),
        *("memory", "memory_mask"),
    )
    has_token_table = False
    mixes_layers = True

    vocab_size: int | None = None
    tokens: str = "characters"
    character_size: int = 16
    filters: tuple[tuple[int, int], ...] = _FILTERS
    highway_layers: int = 2
    activation: str = "relu"
    cell_size: int = 4096
    projection_size: int = 512
    num_layers: int = 2
    cell_clip: float = 3.0
    projection_clip: float = 3.0
    skip_connections: bool = True
    dropout: float = 0.1
    memory_length: int = 1
    initializer: str = "truncated_normal"
    initializer_range: float = 0.02

    # Heads and tools read these of every encoder. Only time and memory limit the length.
    embedding_size = None
    max_positions = 2**16
    segment_types = 0
    reuse_length = 0
    pooler = False
    pooled_position = "first"
    layout = "cls_first"

    def __post_init__(self):
        filters = tuple(tuple(pair) for pair in self.filters)
        object.__setattr__(self, "filters", filters)
        if not filters or any(len(pair) != 2 or min(pair) < 1 for pair in filters):
            raise ValueError(
                f"filters: {self.filters}: give pairs of a width and a number of convolutions, "
                "such as [[1, 32], [2, 64]]"
            )
        if widest := [width for width, _ in filters if width > _WIDTH]:
            raise ValueError(f"filters: width {widest[0]} exceeds the {_WIDTH} ids of a word")
        widths = [width for width, _ in filters]
        if twice := {width for width in widths if widths.count(width) > 1}:
            raise ValueError(
                f"filters: width {min(twice)} is listed twice: list it once, with the sum of both "
                "numbers"
            )
        at_least(self, 1, "vocab_size", "character_size", "cell_size", "projection_size")
        at_least(self, 1, "num_layers")
        at_least(self, 0, "highway_layers", "cell_clip", "projection_clip", "initializer_range")
        at_least(self, 0, "memory_length")
        at_most(self, 1, "memory_length")
        at_most(self, 1000, "num_layers", "highway_layers")
        dropout_rate(self, "dropout")
        one_of("tokens", self.tokens, TOKENS)
        one_of("activation", self.activation, BILM_ACTIVATIONS)
        one_of("initializer", self.initializer, INITIALIZERS)

    @property
    @override
    def trainable_parts(self) -> frozenset[str]:
        """See `EncoderConfig`; a layer has one LSTM for each direction."""
        return frozenset({"layers", "embeddings", "unfreeze_every"})

    @property
    def hidden_size(self) -> int:
        """The size of the features: both directions, 2 P."""
        return 2 * self.projection_size

    @property
    def num_heads(self) -> int:
        """0: there is no attention."""
        return 0

    @property
    @override
    def reads_characters(self) -> bool:
        """See `EncoderConfig`; false with a table of words."""
        return self.tokens == "characters"

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        """The shape of the memory of a row: 2 L states of C cells and P outputs."""
        return 2 * self.num_layers, self.memory_length, self.cell_size + self.projection_size


@dataclasses.dataclass(frozen=True)
class StaticConfig(EncoderConfig):
    """Static vectors: a piece has the same vector in every text, as in model2vec.

    The pooled output is the vector of a text: the mean over its tokens that count, 0 if none does.

    Attributes:
      vocab_size: the number of pieces; None = the size of the tokenizer's vocabulary.
      hidden_size: D.
      num_rows: R, the rows of the table, if pieces share them (model2vec's quantized vocabulary):
        each piece then has the number of its row, and a weight. None = each piece has its own row.
      skipped_ids: the tokens that do not count; None = the special tokens of the tokenizer, of
        which the unknown token is one. model2vec skips that, too; sentence-transformers counts it.
      dropout: the dropout rate of the vectors of tokens.
      initializer: the distribution of the initial weights, of heads as well: `normal` or
        `truncated_normal`.
      initializer_range: the standard deviation of the distribution.
    """

    type = "static"
    has_token_table = False
    pools_texts = True

    vocab_size: int | None = None
    hidden_size: int = 256
    num_rows: int | None = omitted()
    skipped_ids: tuple[int, ...] | None = None
    dropout: float = 0.0
    initializer: str = "normal"
    initializer_range: float = 0.02

    # Heads and tools read these of every encoder. A row has no limit of its length.
    embedding_size = None
    num_layers = 0
    num_heads = 0
    max_positions = 2**16
    segment_types = 0
    pooler = True
    pooled_position = "first"
    layout = "cls_first"
    activation = "gelu_tanh"
    norm_epsilon = 1e-12

    def __post_init__(self):
        at_least(self, 1, "vocab_size", "hidden_size", "num_rows")
        at_least(self, 0, "initializer_range")
        dropout_rate(self, "dropout")
        one_of("initializer", self.initializer, INITIALIZERS)
        if any(i < 0 for i in self.skipped_ids or ()):
            raise ValueError(f"skipped_ids: {list(self.skipped_ids or ())}: ids begin at 0")

    @override
    def of_vocabulary(self, size: int, special_ids: Sequence[int]) -> Self:
        known = super().of_vocabulary(size, special_ids)
        if self.skipped_ids is not None:
            return known
        return dataclasses.replace(known, skipped_ids=tuple(special_ids))


PARTS = (TransformerConfig, TransformerXLConfig, EncoderDecoderConfig, BilmConfig, StaticConfig)
