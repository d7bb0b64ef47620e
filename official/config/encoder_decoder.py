"""Config of the encoder-decoder: sizes and structure."""

import dataclasses

from official.config.encoders import ACTIVATIONS, INITIALIZERS
from official.config.part import EncoderConfig
from official.utils.strict import at_least, at_most, dropout_rate, one_of

NORMS = ("rms", "layer")
POSITIONS = ("relative", "sinusoidal")


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
        decoder_layers: the number of layers of the decoder; None = `num_layers`, 0 = there is no
            decoder, so that the model encodes texts and cannot generate them.
        num_heads: N.
        head_size: H; None = the hidden size divided by the number of heads.
        intermediate_size: the inner size of the feed-forward network.
        activation: 'relu', 'gelu_tanh', 'gelu' (erf form) or 'silu'.
        gated: whether the activation is that of a gate beside the inner map.
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
        share_dropout: whether the positions of a sequence share each mask of dropout, as in the
            releases of T5; transformers' T5 draws one for each position.
        initializer: the distribution of the initial weights. `fan_in` = normal, with the standard
            deviation 1 / sqrt(I) for a kernel of I inputs; embeddings, after `scale_embeddings`,
            have standard deviation 1 (T5). Or `normal` or `truncated_normal`.
        initializer_range: the standard deviation of the last two.
    """

    type = "encoder_decoder"

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
    # T5's texts are tokens and the end token (Raffel et al. 2020, section 3.1).
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
            raise ValueError("scale_output: true is of a tied output, and tied_output is false")


PARTS = (EncoderDecoderConfig,)
