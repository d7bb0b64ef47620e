"""Encoders in YAML: sizes and form."""

import dataclasses

from official.config.part import EncoderConfig
from official.utils.validators import at_least, at_most, dropout_rate, one_of

# What `official.modeling.layers` has under these names.
ACTIVATIONS = ("gelu", "gelu_tanh", "relu")
POOLER_ACTIVATIONS = (*ACTIVATIONS, "tanh")
INITIALIZERS = ("normal", "truncated_normal")


@dataclasses.dataclass(frozen=True)
class TransformerConfig(EncoderConfig):
    """Sizes and form of a transformer encoder.

    Attributes:
        vocab_size: rows of the token table; None = as many as the tokenizer has.
        hidden_size: D.
        num_layers: depth.
        num_heads: N; divides the hidden size.
        intermediate_size: width between the two maps of the feed-forward network.
        embedding_size: E; None = the hidden size. Other sizes are followed by a projection.
        max_positions: the longest sequence.
        segment_types: rows of the segment table; 0 = no such table, 1 = every token has this row.
        activation: 'gelu_tanh', 'gelu' (erf form) or 'relu'.
        dropout: on embeddings and on what each sublayer adds.
        attention_dropout: on attention weights.
        norm_epsilon: added to the variance.
        norm: 'post' (after the residual sum) or 'pre' (before the sublayer; then there is no norm
            on the embeddings, and one after the last layer).
        causal: whether a position sees only itself and what stands before it.
        position_offset: row of the position table that the first token takes.
        layer_groups: None = no layer shares parameters; otherwise the number of groups that do.
        inner_layers: blocks in a group.
        pooler: whether there is a pooled output: an affine map of one position and an activation.
        pooler_activation: which: 'tanh', or another one as in `activation`.
        pooled_position: of which position: 'first', or 'last' = the last real one. None = 'first',
            or 'last' where causal is true, for the first one sees no other there.
        initializer: the law of the initial weights: `truncated_normal` (BERT, ALBERT, ELECTRA,
            ERNIE) or `normal` (RoBERTa, SpanBERT, GPT-2, XLNet, Transformer-XL). Heads have the
            same.
        initializer_range: the standard deviation that is given to it. That of the weights is 0.88
            of it with `truncated_normal`, which has nothing beyond two deviations.
        position_initializer_range: the same of the position table; None = `initializer_range`.
        scale_residual_init: whether it is 1 / sqrt(2 L) of that for the last map of each sublayer,
            of which 2 L add up (GPT-2, section 2.3).
    """

    type = "transformer"

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
    pooled_position: str | None = None
    initializer: str = "truncated_normal"
    initializer_range: float = 0.02
    position_initializer_range: float | None = None
    scale_residual_init: bool = False

    # How the texts of a task are laid out: see `official.tokenizers.packing`. Positions are counted
    # from the first token, so that padding is on the right.
    layout = "cls_first"

    def __post_init__(self):
        if self.pooled_position is None:
            object.__setattr__(self, "pooled_position", "last" if self.causal else "first")
        at_least(self, 1, "hidden_size", "num_layers", "num_heads", "intermediate_size")
        at_most(self, 1000, "num_layers", "inner_layers")
        at_least(self, 0, "norm_epsilon", "initializer_range")
        at_least(self, 1, "max_positions", "inner_layers")
        at_least(self, 1, "vocab_size", "embedding_size", "layer_groups")
        at_least(self, 0, "segment_types", "position_offset")
        dropout_rate(self, "dropout", "attention_dropout")
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"num_heads: {self.num_heads} heads do not divide hidden_size {self.hidden_size}"
            )
        one_of("activation", self.activation, ACTIVATIONS)
        one_of("initializer", self.initializer, INITIALIZERS)
        one_of("norm", self.norm, ["post", "pre"])
        one_of("pooler_activation", self.pooler_activation, POOLER_ACTIVATIONS)
        one_of("pooled_position", self.pooled_position, ["first", "last"])
        if self.causal and self.pooled_position == "first":
            raise ValueError(
                "pooled_position: first sees no other position where causal is true: take last"
            )
        if self.layer_groups is None and self.inner_layers != 1:
            raise ValueError("inner_layers: has a meaning only where layer_groups is set")
        if self.layer_groups is not None and self.num_layers % self.layer_groups:
            raise ValueError(
                f"layer_groups: {self.layer_groups} groups do not divide {self.num_layers} layers"
            )


@dataclasses.dataclass(frozen=True)
class TransformerXLConfig(EncoderConfig):
    """Sizes and form of a Transformer-XL; the defaults are those of XLNet.

    Attributes:
        vocab_size: rows of the token table; None = as many as the tokenizer has.
        hidden_size: D, even.
        num_layers: depth.
        num_heads: N.
        head_size: None = the hidden size over the heads, which then divide it.
        intermediate_size: width between the two maps of the feed-forward network.
        segment_types: 2 = scores tell the same segment from another, whatever their numbers; 0 =
            they know nothing of segments.
        activation: 'gelu_tanh', 'gelu' (erf form) or 'relu'.
        dropout: on embeddings, on the vectors of distances, on what each sublayer adds and on
            the output.
        attention_dropout: on attention weights.
        inner_dropout: on the activations within the feed-forward network.
        norm_epsilon: added to the variance.
        untie_biases: whether each layer has biases of its own in place of the query.
        attention: 'bi' = both ways, or 'uni' = a position sees itself, what stands before it and
            the memory.
        same_length: where attention is 'uni', whether every position sees as many, itself and the
            `memory_length` - 1 before it (Transformer-XL's release, in evaluation); otherwise it
            sees the whole memory, and all of the row before it.
        memory_length: M, positions of earlier rows that are kept for the next; 0 = none.
        reuse_length: how many of a row's positions, the first ones, may become memory; 0 = all.
        clamp_length: distances beyond it are taken as it; 0 = they are not.
        scale_embeddings: whether embeddings are multiplied by sqrt(D) (Transformer-XL).
        query_stream: whether there is a vector that query rows start from (XLNet).
        pooler: whether there is a pooled output: tanh of an affine map of one position.
        pooled_position: which: 'last' = the last real one (XLNet), or 'first'.
        initializer: the law of the initial weights: `truncated_normal` (BERT, ALBERT, ELECTRA,
            ERNIE) or `normal` (RoBERTa, SpanBERT, GPT-2, XLNet, Transformer-XL). Heads have the
            same.
        initializer_range: the standard deviation that is given to it. That of the weights is 0.88
            of it with `truncated_normal`, which has nothing beyond two deviations.
    """

    type = "transformer_xl"

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

    # What heads and tools ask of every encoder: the table is as wide as the states, and distances
    # have no end, so that only time and room bound a sequence.
    embedding_size = None
    max_positions = 2**16

    def __post_init__(self):
        at_least(self, 1, "hidden_size", "num_layers", "num_heads", "intermediate_size")
        at_most(self, 1000, "num_layers")
        at_least(self, 0, "norm_epsilon", "initializer_range")
        at_least(self, 1, "vocab_size", "head_size")
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
        one_of("pooled_position", self.pooled_position, ["last", "first"])
        one_of("segment_types", self.segment_types, [0, 2])
        if self.same_length and (self.attention != "uni" or not self.memory_length):
            raise ValueError(
                "same_length: has a meaning only where attention is uni and memory_length is set"
            )
        if self.reuse_length and not self.memory_length:
            raise ValueError("reuse_length: has a meaning only where memory_length is set")
        if self.attention == "uni" and self.pooled_position == "first":
            raise ValueError(
                "pooled_position: first sees no other position where attention is uni: take last"
            )

    @property
    def layout(self):
        """How the texts of a task are laid out: see `official.tokenizers.packing`."""
        return f"cls_{self.pooled_position}"

    @property
    def attention_window(self):
        """How many positions one sees at most where attention is 'uni'; 0 = all before it."""
        return self.memory_length if self.same_length else 0
