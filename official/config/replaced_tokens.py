"""The objectives of replaced token detection in YAML: a generator, and what is asked of its draws.

Clark et al., 2020 (ELECTRA).
"""

import dataclasses
from typing import TYPE_CHECKING

from official.config.part import ObjectiveConfig
from official.utils.validators import above, at_least, one_of

if TYPE_CHECKING:
    from official.config.sections import Config

# The layers of the encoder's embeddings that are the generator's too. The norm goes with the
# tables, as in the release. With 'all' the generator is the encoder itself.
SHARED = {
    "none": (),
    "token": ("token",),
    "embeddings": ("token", "position", "segment", "norm"),
    "all": None,
}


@dataclasses.dataclass(frozen=True)
class GeneratorConfig(ObjectiveConfig):
    """The generator's form and its share in the loss.

    Attributes:
        size: its hidden size, feed-forward size and number of heads, as a share of the encoder's.
        num_layers: its depth; None = the encoder's.
        sharing: which variables are also the encoder's: 'none', 'token' (the token table),
            'embeddings' (all embeddings up to the projection) or 'all'. Shared tables have the
            encoder's embedding size; the generator's own ones are scaled like the rest of it.
        temperature: divides the scores before a token is drawn.
        baseline: whether it guesses how well its draws will fool the encoder, which
            `replaced_tokens` needs to train it for that (`adversarial_weight`).
        frozen: whether it stays as it is given with --init, and only the encoder learns: the
            second stage of the paper's two-stage training (section 3.2). Both start from the same
            model, whose encoder and masked LM `recipe.init_weights: generator` takes.
        weight: factor of its masked-LM loss in the sum; a frozen one's is only reported.
    """

    type = "generator"
    packs = True  # asks of each token by itself

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
        """See `ObjectiveConfig`."""
        return frozenset({"masked_positions", "masked_ids", "masked_weights", "row_seeds"})

    def gives(self) -> frozenset[str]:
        """The batch fields that `prepare` adds."""
        fields = frozenset({"original_ids", "masked", "replaced"})
        return fields | {"sample_log_probs", "baseline_logits"} if self.baseline else fields

    def check(self, whole: "Config") -> None:
        """Raises ValueError where the encoder of the config `whole` can have no such generator."""
        if whole.encoder is not None:
            self.network(whole.encoder)

    def network(self, encoder):
        """Returns the config of the generator's network.

        Args:
            encoder: config of the encoder.

        Raises:
            ValueError: the sizes cannot be, or not with this sharing.
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
    """What is asked.

    Attributes:
        tokens: 'all' real tokens, or only the 'masked' ones, of which the generator filled each
            (the paper's ELECTRA 15%, section 3.5).
        weight: factor of this loss in the sum; 50 in the paper's joint loss (appendix A).
        adversarial_weight: above 0, the generator is trained to raise this loss, by policy
            gradient (appendix F); it needs a generator with `baseline`.
    """

    type = "replaced_tokens"
    packs = True  # asks of each token by itself

    tokens: str = "all"
    weight: float = 50.0
    adversarial_weight: float = 0.0

    def __post_init__(self):
        at_least(self, 0, "adversarial_weight")
        one_of("tokens", self.tokens, ["all", "masked"])

    def needs(self) -> frozenset[str]:
        """See `ObjectiveConfig`."""
        fields = frozenset({"padding_mask", "replaced"})
        if self.tokens == "masked":
            fields |= {"masked", "masked_weights"}
        if self.adversarial_weight:
            fields |= {"masked_positions", "masked_weights", "sample_log_probs", "baseline_logits"}
        return fields
