"""Configs of the objectives of replaced token detection (ELECTRA; Clark et al., 2020)."""

import dataclasses
from typing import TYPE_CHECKING

from official.config.part import ObjectiveConfig
from official.utils.strict import above, at_least, one_of

if TYPE_CHECKING:
    from official.config.sections import Config

# The embedding layers that encoder and generator share. The norm goes with the tables, as in the
# release. With 'all' the generator is the encoder itself.
SHARED = {
    "none": (),
    "token": ("token",),
    "embeddings": ("token", "position", "segment", "norm"),
    "all": None,
}


@dataclasses.dataclass(frozen=True)
class GeneratorConfig(ObjectiveConfig):
    """A generator: a small masked LM whose draws replace the masked tokens.

    Attributes:
        size: the hidden size, feed-forward size and number of heads, as a share of the encoder's.
        num_layers: the number of layers; None = as many as the encoder.
        sharing: the variables that are shared with the encoder: 'none', 'token' (the token table),
            'embeddings' (all embeddings up to the projection) or 'all'. Shared tables have the
            encoder's embedding size; tables of its own are scaled by `size`.
        temperature: divides the logits before a token is drawn.
        baseline: whether the generator predicts how well its draws fool the encoder;
            `replaced_tokens` with an `adversarial_weight` needs it.
        frozen: whether the generator keeps the weights given with --init and only the encoder
            learns: the second stage of two-stage training (section 3.2). Both start from one model,
            whose encoder and masked LM `recipe.init_weights: generator` loads.
        weight: factor of the masked-LM loss in the sum; the loss of a frozen generator is only
            reported.
    """

    type = "generator"
    packs = True  # every token has a prediction of its own

    size: float = 0.25
    num_layers: int | None = None
    sharing: str = "embeddings"
    temperature: float = 1.0
    baseline: bool = False
    frozen: bool = False
    weight: float = 1.0

    def __post_init__(self):
        one_of("sharing", self.sharing, SHARED)
        above(self, 0, "size")
        above(self, 0, "temperature")
        at_least(self, 1, "num_layers")
        if self.frozen and self.sharing != "none":
            raise ValueError(
                f"frozen: with sharing: {self.sharing} the encoder would train what they share: "
                "set sharing to none"
            )
        if self.frozen and (self.size != 1.0 or self.num_layers is not None):
            raise ValueError(
                "frozen: generator and encoder start from the same model, so set size to 1.0 and "
                "leave num_layers out"
            )
        if self.frozen and self.baseline:
            raise ValueError("frozen: what does not learn needs no baseline")

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        return frozenset({"masked_positions", "masked_ids", "masked_weights", "row_seeds"})

    def gives(self) -> frozenset[str]:
        """Returns the batch fields that `prepare` adds."""
        fields = frozenset({"original_ids", "masked", "replaced"})
        return fields | {"sample_log_probs", "baseline_logits"} if self.baseline else fields

    def check(self, whole: "Config") -> None:
        """Raises ValueError if the generator does not suit the encoder of the config `whole`."""
        if whole.encoder is not None:
            self.network(whole.encoder)

    def network(self, encoder):
        """Returns the config of the generator's network.

        Args:
            encoder: the config of the encoder.

        Raises:
            ValueError: the sizes are not valid, or do not allow this sharing.
        """
        if "embedding_size" not in {field.name for field in dataclasses.fields(encoder)}:
            raise ValueError(
                "encoder.type: this one has embeddings as wide as its states, which a smaller "
                "network cannot share: take transformer"
            )
        scaled = lambda n: max(1, round(n * self.size))  # noqa: E731
        embedding_size = encoder.embedding_size or encoder.hidden_size
        sizes = {
            "hidden_size": scaled(encoder.hidden_size),
            "intermediate_size": scaled(encoder.intermediate_size),
            "num_heads": scaled(encoder.num_heads),
            "num_layers": self.num_layers or encoder.num_layers,
            "embedding_size": scaled(embedding_size) if self.sharing == "none" else embedding_size,
        }
        if self.sharing == "all":
            for key, name in (("size", "hidden_size"), ("num_layers", "num_layers")):
                if sizes[name] != getattr(encoder, name):
                    raise ValueError(
                        f"{key}: {getattr(self, key)} makes its {name} {sizes[name]}, and "
                        "with sharing: all it is the encoder itself, whose "
                        f"{name} is {getattr(encoder, name)}: set size to 1.0 and leave num_layers "
                        "out, or share less"
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
        weight: factor of this loss in the sum; 50 in the paper's joint loss (appendix A).
        adversarial_weight: if above 0, the generator is trained to raise this loss, by policy
            gradient (appendix F). It needs a generator with `baseline`.
    """

    type = "replaced_tokens"
    packs = True  # every token has a prediction of its own

    tokens: str = "all"
    weight: float = 50.0
    adversarial_weight: float = 0.0

    def __post_init__(self):
        at_least(self, 0, "adversarial_weight")
        one_of("tokens", self.tokens, ["all", "masked"])

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the objective reads."""
        fields = frozenset({"padding_mask", "replaced"})
        if self.tokens == "masked":
            fields |= {"masked", "masked_weights"}
        if self.adversarial_weight:
            fields |= {"masked_positions", "masked_weights", "sample_log_probs", "baseline_logits"}
        return fields


PARTS = (GeneratorConfig, ReplacedTokensConfig)
