"""Configs of the pretraining objectives.

The last two implement replaced token detection (ELECTRA; Clark et al., 2020): a generator, and a
discriminator that finds the tokens that the generator has replaced.
"""

import dataclasses

from official.config.parts import Config, EncoderConfig, ObjectiveConfig
from official.config.segments import RELATIONS
from official.utils.strict import above, at_least, omitted, one_of

DIRECTIONS = ("forward", "backward")
MASKED_LM_FORMS = ("tied", "linear", "kernel")
# {relation of two segments: the feature of its label}.
LABELS = {relation: label for relation, label in RELATIONS.items() if label is not None}
# The embedding layers that encoder and generator share. The norm is shared with the tables, as in
# the release. With 'all' the generator is the encoder itself.
SHARED = {
    "none": (),
    "token": ("token",),
    "embeddings": ("token", "position", "segment", "norm"),
    "all": None,
    "gdes": (),
}


@dataclasses.dataclass(frozen=True)
class MaskedLMConfig(ObjectiveConfig):
    """Masked LM: the original ids at the masked positions (BERT).

    Attributes:
      weight: factor of this loss in the sum.
      enhanced_mask_decoder: whether the last layer of the encoder runs twice for the masked
        positions, from their inputs and a table of absolute positions that no other layer reads
        (DeBERTa; He et al., 2021, section 3.2).
      form: the form of the head: 'tied' = a hidden layer, a norm, and the token table with a bias
        (BERT); 'linear' = one linear layer with a separate kernel and bias (NeoBERT); 'kernel' =
        the same without the bias (EuroBERT).
    """

    type = "masked_lm"
    layer = "MaskedLM"
    packs = True

    weight: float = 1.0
    enhanced_mask_decoder: bool = omitted(False)
    form: str = omitted("tied")

    def __post_init__(self):
        one_of("form", self.form, MASKED_LM_FORMS)

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({"masked_positions", "masked_ids", "masked_weights"})

    def check(self, whole: Config) -> None:
        """Raises ValueError if the objective does not suit the rest of the config `whole`."""
        if self.enhanced_mask_decoder:
            check_alone(whole)

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the objective does not suit the encoder."""
        check_token_table(encoder)
        if self.enhanced_mask_decoder:
            check_decodes(encoder)


@dataclasses.dataclass(frozen=True)
class AllTokensLMConfig(ObjectiveConfig):
    """All-tokens MLM: the original ids of all tokens (ELECTRA, section 3.5).

    Attributes:
      weight: factor of this loss in the sum.
    """

    type = "all_tokens_lm"
    module = "masked_lm"
    layer = "AllTokensLM"
    packs = True  # every token has a separate prediction
    form = "tied"  # the form of the head, that of `masked_lm`
    enhanced_mask_decoder = False

    weight: float = 1.0

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({"padding_mask", "original_ids", "replaced"})


@dataclasses.dataclass(frozen=True)
class CausalLMConfig(ObjectiveConfig):
    """Causal LM: predicts the next token, or the token before.

    Attributes:
      weight: factor of this loss in the sum.
      direction: `forward` (left to right) or `backward` (right to left).
    """

    type = "causal_lm"
    decides_weights = True
    packs = True  # the last token of a part does not predict the first token of the next part

    weight: float = 1.0
    direction: str = "forward"

    def __post_init__(self):
        one_of("direction", self.direction, DIRECTIONS)

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({"token_ids", "padding_mask"})

    def check(self, whole: Config) -> None:
        """Raises ValueError if the objective does not suit the rest of the config `whole`."""
        stream = whole.segments is not None and whole.segments.format == "stream"
        if stream and self.direction == "backward":
            raise ValueError(
                "direction: backward reverses single rows, but the rows of a stream continue each "
                "other: take forward, and segments.backward to read the text in reverse"
            )
        if whole.corruption is not None:
            raise ValueError("it predicts the tokens that it reads: remove `corruption`")
        if {objective.type for objective in whole.objectives} - {self.type, "distillation"}:
            raise ValueError(
                "it shifts the rows that the encoder reads, so only distillation can be combined "
                "with it: remove the other objectives"
            )

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the objective does not suit the encoder."""
        if not encoder.causal:
            raise ValueError(
                "the encoder sees the tokens that are predicted: set "
                f"encoder.{encoder.causal_setting}"
            )
        size = encoder.embedding_size
        if size not in (None, encoder.hidden_size):
            raise ValueError(
                f"encoder.embedding_size: {size} is not the hidden size {encoder.hidden_size}, "
                "which an output tied to the token table must have: remove it"
            )


@dataclasses.dataclass(frozen=True)
class PermutationLMConfig(ObjectiveConfig):
    """Permutation LM: the target tokens in a random order (XLNet).

    Attributes:
      weight: factor of this loss in the sum.
    """

    type = "permutation_lm"

    weight: float = 1.0

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective and its encoder read."""
        return frozenset({"permutation_mask", "masked_positions", "masked_ids", "masked_weights"})

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the objective does not suit the encoder."""
        if not encoder.query_stream:
            raise ValueError(
                "the encoder has no query stream, from which targets are predicted: take "
                "encoder.type: transformer_xl with query_stream: true"
            )
        if encoder.causal:
            raise ValueError(
                f"encoder.{encoder.causal_setting} hides tokens that the order makes visible to a "
                "target: take bi"
            )


@dataclasses.dataclass(frozen=True)
class Seq2SeqLMConfig(ObjectiveConfig):
    """Sequence-to-sequence LM: the targets of a decoder, from left to right (T5).

    Attributes:
      weight: factor of this loss in the sum.
      z_loss: factor of log(Z) ** 2 of each target, in training only. Z is the sum that the
        softmax divides by.
      start_id: the id that the decoder reads first; in T5, the id of padding.
    """

    type = "seq2seq_lm"
    packs = True  # every example of a row has its own start token, and attends to itself

    weight: float = 1.0
    z_loss: float = 0.0
    start_id: int = 0

    def __post_init__(self):
        at_least(self, 0, "z_loss", "start_id")

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({"target_ids", "target_mask"})

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the encoder has no decoder."""
        if encoder.decoder_layers == 0:
            raise ValueError(
                "encoder.decoder_layers: 0: without a decoder, the model cannot generate text"
            )
        if encoder.decoder_layers is None:
            raise ValueError(f"encoder.type: {encoder.type} has no decoder: take encoder_decoder")


@dataclasses.dataclass(frozen=True)
class BidirectionalLMConfig(ObjectiveConfig):
    """Bidirectional LM: the next word in both directions (ELMo).

    Attributes:
      weight: factor of this loss in the sum. The release multiplies the loss by the length of a
        row, 20, before it takes gradients, so clipping and Adagrad act on larger gradients.
      samples: number of words of the sampled softmax of training; 0 = all words, as in
        evaluation. The release has 8192.
    """

    type = "bilm"

    weight: float = 1.0
    samples: int = 8192

    def __post_init__(self):
        at_least(self, 0, "samples")

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({"target_ids", "backward_target_ids", "padding_mask"})

    def check(self, whole: Config) -> None:
        """Raises ValueError if the objective does not suit the rest of the config `whole`."""
        if whole.corruption is not None:
            raise ValueError("it predicts the words that it reads: remove `corruption`")

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the objective does not suit the encoder."""
        if encoder.type != "bilm":
            raise ValueError(
                f"encoder.type: {encoder.type} does not have two directions: take bilm"
            )
        if encoder.vocab_size is not None and self.samples > encoder.vocab_size:
            raise ValueError(
                f"samples: {self.samples} different words cannot be drawn from encoder.vocab_size: "
                f"{encoder.vocab_size}: lower it, or take 0 for all words"
            )


@dataclasses.dataclass(frozen=True)
class SentencePairConfig(ObjectiveConfig):
    """The relation of two segments.

    Attributes:
      relation: 'next_sentence' = the second segment continues the first (0) or is random (1);
        'sentence_order' = the segments are in order (0) or swapped (1).
      weight: factor of this loss in the sum.
    """

    type = "sentence_pair"
    packs = True  # every part of a row has a separate prediction

    relation: str = "next_sentence"
    weight: float = 1.0

    def __post_init__(self):
        one_of("relation", self.relation, LABELS)

    @property
    def name(self) -> str:
        """The relation."""
        return self.relation

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({LABELS[self.relation]})

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the encoder has no pooled output."""
        if not encoder.pooler:
            raise ValueError("reads the pooled output: set encoder.pooler to true")


@dataclasses.dataclass(frozen=True)
class SpanBoundaryConfig(ObjectiveConfig):
    """Span boundary objective: predicts the tokens of a span from its two neighbors (SpanBERT).

    Attributes:
      max_targets: the largest number of tokens that are predicted, from the start of the span.
      offset_size: O, the size of the embedding of a position within the span.
      weight: factor of this loss in the sum.
    """

    type = "span_boundary"
    packs = True  # the neighbors of a span are in the same part

    max_targets: int = 15
    offset_size: int = 200
    weight: float = 1.0

    def __post_init__(self):
        at_least(self, 1, "max_targets", "offset_size")

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({"masked_ids", "span_left", "span_right", "span_offset", "span_weights"})

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the encoder has no token table."""
        check_token_table(encoder)


@dataclasses.dataclass(frozen=True)
class GeneratorConfig(ObjectiveConfig):
    """A generator: a small masked LM whose draws replace the masked tokens.

    Attributes:
      size: the hidden size, feed-forward size and number of heads, as a share of the encoder's.
      num_layers: the number of layers; None = as many as the encoder.
      sharing: the variables that are shared with the encoder: 'none', 'token' (the token table),
        'embeddings' (all embeddings up to the projection) or 'all'. Shared tables have the
        encoder's embedding size; the sizes of separate tables are scaled by `size`. With 'gdes',
        the encoder's token table is the generator's plus a table of differences, and the encoder
        trains only the differences (He et al., 2021, section 3.2.3).
      temperature: the divisor of the logits before tokens are drawn.
      baseline: whether the generator predicts how well its draws fool the encoder;
        `replaced_tokens` with an `adversarial_weight` needs it.
      frozen: whether the generator keeps the weights given with --init and only the encoder
        learns: the second stage of two-stage training (section 3.2). Both start from one model,
        whose encoder and masked LM `recipe.init_weights: generator` loads.
      enhanced_mask_decoder: whether its masked LM has an enhanced mask decoder; see `masked_lm`.
      weight: factor of the masked-LM loss in the sum; the loss of a frozen generator is only
        reported.
      decoupled: whether each step first updates the generator, and then the encoder with the tokens
        that were drawn before this update, each with separate clipping (`decoupled_training` of
        DeBERTa-v3's release). With sharing 'gdes' the encoder reads the updated table.
      rate_factor: the factor of the learning rate of a `decoupled` generator.
    """

    type = "generator"
    module = "replaced_tokens"
    layer = "Generator"
    packs = True  # every token has a separate prediction

    size: float = 0.25
    num_layers: int | None = None
    sharing: str = "embeddings"
    temperature: float = 1.0
    baseline: bool = False
    frozen: bool = False
    weight: float = 1.0
    enhanced_mask_decoder: bool = omitted(False)
    decoupled: bool = omitted(False)
    rate_factor: float = omitted(1.0)

    def __post_init__(self):
        one_of("sharing", self.sharing, SHARED)
        above(self, 0, "size")
        above(self, 0, "temperature")
        at_least(self, 1, "num_layers")
        if self.frozen and self.sharing != "none":
            raise ValueError(
                f"frozen: with sharing: {self.sharing} the encoder would train the shared weights: "
                "set sharing to none"
            )
        if self.frozen and (self.size != 1.0 or self.num_layers is not None):
            raise ValueError(
                "frozen: generator and encoder start from the same model, so set size to 1.0 and "
                "remove num_layers"
            )
        if self.frozen and self.baseline:
            raise ValueError("baseline: not supported for a frozen generator: remove it")
        self._check_decoupled()

    def _check_decoupled(self):
        """Raises ValueError if the generator cannot be updated before the encoder."""
        above(self, 0, "rate_factor")
        if not self.decoupled and self.rate_factor != 1:
            raise ValueError("rate_factor: needs decoupled: true: set it, or remove rate_factor")
        if self.decoupled and self.frozen:
            raise ValueError("decoupled: a frozen generator is not updated: remove it")
        if self.decoupled and self.sharing not in ("gdes", "none"):
            raise ValueError(
                f"decoupled: with sharing: {self.sharing} both losses train the shared weights: "
                "set sharing to gdes or none, or remove decoupled"
            )
        if self.decoupled and self.baseline:
            raise ValueError(
                "decoupled: with baseline the generator also learns from the loss of the encoder, "
                "which is computed after the generator's update: remove one of them"
            )

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({"masked_positions", "masked_ids", "masked_weights", "row_seeds"})

    def gives(self) -> frozenset[str]:
        """Returns the batch fields that `prepare` adds."""
        fields = frozenset({"original_ids", "masked", "replaced"})
        return fields | {"sample_log_probs", "baseline_logits"} if self.baseline else fields

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError if the generator does not suit the encoder."""
        network = self.network(encoder)
        if self.enhanced_mask_decoder:
            check_decodes(network)

    def network(self, encoder):
        """Returns the config of the generator's network.

        Args:
          encoder: the config of the encoder.

        Raises:
          ValueError: the sizes are not valid, or do not allow this sharing.
        """
        if "embedding_size" not in {field.name for field in dataclasses.fields(encoder)}:
            raise ValueError(
                "encoder.type: its embeddings have the hidden size, so a smaller network cannot "
                "share them: take transformer"
            )
        scaled = lambda n: max(1, round(n * self.size))  # noqa: E731
        embedding_size = encoder.embedding_size or encoder.hidden_size
        sizes = {
            "hidden_size": scaled(encoder.hidden_size),
            "intermediate_size": scaled(encoder.intermediate_size),
            "num_heads": scaled(encoder.num_heads),
            "num_key_value_heads": (shared := encoder.num_key_value_heads) and scaled(shared),
            "num_layers": self.num_layers or encoder.num_layers,
            "embedding_size": scaled(embedding_size) if self.sharing == "none" else embedding_size,
        }
        if self.sharing == "all":
            for key, name in (("size", "hidden_size"), ("num_layers", "num_layers")):
                if sizes[name] != getattr(encoder, name):
                    raise ValueError(
                        f"{key}: {getattr(self, key)} makes its {name} {sizes[name]}, but with "
                        f"sharing: all it is the encoder itself, whose {name} is "
                        f"{getattr(encoder, name)}: set size to 1.0 and remove num_layers, or "
                        "share less"
                    )
        elif self.sharing != "none" and sizes["hidden_size"] > encoder.hidden_size:
            raise ValueError(
                f"size: {self.size} makes it {sizes['hidden_size']} wide, wider than the "
                f"encoder, {encoder.hidden_size}, whose tables it has with sharing: "
                f"{self.sharing}: set size to at most 1.0, or sharing to none"
            )
        try:
            return dataclasses.replace(encoder, **sizes, pooler=False)
        except ValueError as error:
            raise ValueError(f"size: {self.size} of the encoder: {error}") from None


@dataclasses.dataclass(frozen=True)
class ReplacedTokensConfig(ObjectiveConfig):
    """Replaced token detection: whether the generator replaced a token.

    Attributes:
      tokens: 'all' real tokens, or only the 'masked' ones, which the generator filled
        (ELECTRA 15%, section 3.5).
      form: the form of the head: 'electra' = dense, activation, dense; 'deberta' = the same, whose
        input is the norm of each state plus the state of the first token of its text (DeBERTa-v3's
        release).
      weight: factor of this loss in the sum; 50 in the paper's joint loss (appendix A).
      adversarial_weight: if above 0, the generator is trained to raise this loss, by policy
        gradient (appendix F). It needs a generator with `baseline`.
    """

    type = "replaced_tokens"
    layer = "ReplacedTokens"
    packs = True  # every token has a separate prediction

    tokens: str = "all"
    weight: float = 50.0
    adversarial_weight: float = 0.0
    form: str = omitted("electra")

    def __post_init__(self):
        at_least(self, 0, "adversarial_weight")
        one_of("form", self.form, ["electra", "deberta"])
        one_of("tokens", self.tokens, ["all", "masked"])

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        fields = frozenset({"padding_mask", "replaced"})
        if self.tokens == "masked":
            fields |= {"masked", "masked_weights"}
        if self.adversarial_weight:
            fields |= {"masked_positions", "masked_weights", "sample_log_probs", "baseline_logits"}
        return fields


def check_alone(whole: Config) -> None:
    """Raises ValueError if an enhanced mask decoder is combined with other objectives."""
    if len(whole.objectives) > 1:
        raise ValueError(
            "enhanced_mask_decoder: other objectives would read a different last layer: remove them"
        )


def check_decodes(encoder: EncoderConfig) -> None:
    """Raises ValueError if an encoder has no enhanced mask decoder."""
    if not encoder.decodes_masks:
        raise ValueError(
            "enhanced_mask_decoder: only supported for encoder.type: transformer with norm: post "
            "and causal: false: take these, or remove it"
        )


def check_token_table(encoder: EncoderConfig) -> None:
    """Raises ValueError if the encoder has no token table."""
    if not encoder.has_token_table:
        raise ValueError(
            f"its output is tied to a token table, but encoder.type: {encoder.type} has none: take "
            "the objective bilm, or encoder.type: transformer"
        )


PARTS = (
    MaskedLMConfig,
    CausalLMConfig,
    AllTokensLMConfig,
    SentencePairConfig,
    SpanBoundaryConfig,
    PermutationLMConfig,
    Seq2SeqLMConfig,
    BidirectionalLMConfig,
    GeneratorConfig,
    ReplacedTokensConfig,
)
