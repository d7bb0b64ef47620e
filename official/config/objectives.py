"""Pretraining objectives in YAML: what each of them asks, and of which batches."""

import dataclasses
from typing import TYPE_CHECKING

from official.config.part import EncoderConfig, ObjectiveConfig
from official.config.segments import RELATIONS
from official.utils.validators import at_least, one_of

if TYPE_CHECKING:
    from official.config.sections import Config


@dataclasses.dataclass(frozen=True)
class MaskedLMConfig(ObjectiveConfig):
    """Attributes: weight, the factor of this loss in the sum."""

    type = "masked_lm"
    packs = True  # rows of several parts are as good as others

    weight: float = 1.0

    def needs(self) -> frozenset[str]:
        """See `ObjectiveConfig`."""
        return frozenset({"masked_positions", "masked_ids", "masked_weights"})


@dataclasses.dataclass(frozen=True)
class AllTokensLMConfig(ObjectiveConfig):
    """Attributes: weight, the factor of this loss in the sum."""

    type = "all_tokens_lm"
    packs = True  # asks of each token by itself

    weight: float = 1.0

    def needs(self) -> frozenset[str]:
        """See `ObjectiveConfig`."""
        return frozenset({"padding_mask", "original_ids", "replaced"})


DIRECTIONS = ("forward", "backward")


@dataclasses.dataclass(frozen=True)
class CausalLMConfig(ObjectiveConfig):
    """Attributes: weight, the factor of this loss; direction, `forward` or `backward`."""

    type = "causal_lm"
    packs = True  # the last token of a part is not asked for the first one of the next

    weight: float = 1.0
    direction: str = "forward"

    def __post_init__(self):
        one_of("direction", self.direction, DIRECTIONS)

    def needs(self) -> frozenset[str]:
        """See `ObjectiveConfig`."""
        return frozenset({"token_ids", "padding_mask"})

    def check(self, whole: "Config") -> None:
        """Raises ValueError where the objective cannot be asked in the config `whole`."""
        stream = whole.segments is not None and whole.segments.format == "stream"
        if stream and self.direction == "backward":
            raise ValueError(
                "direction: backward turns single rows round, and those of a stream go on: take "
                "forward, and segments.backward for rows over the text reversed"
            )
        if whole.encoder is not None:
            self.check_encoder(whole.encoder)
        if whole.corruption is not None:
            raise ValueError("it asks for the tokens that it reads: leave out `corruption`")
        if len(whole.objectives) > 1:
            raise ValueError(
                "it cuts the rows that it reads, and may turn them round: let it be the only "
                "objective"
            )

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError where an encoder of this form cannot be asked."""
        relative = hasattr(encoder, "attention")
        if not (encoder.attention == "uni" if relative else getattr(encoder, "causal", False)):
            wanted = "encoder.attention: uni" if relative else "encoder.causal: true"
            raise ValueError(f"the encoder sees the tokens that are asked for: set {wanted}")
        size = getattr(encoder, "embedding_size", None)
        if size not in (None, encoder.hidden_size):
            raise ValueError(
                f"encoder.embedding_size: {size} is not the hidden size {encoder.hidden_size}, "
                "which an output tied to the token table has to have: leave it out"
            )


@dataclasses.dataclass(frozen=True)
class PermutationLMConfig(ObjectiveConfig):
    """Attributes: weight, the factor of this loss in the sum."""

    type = "permutation_lm"

    weight: float = 1.0

    def needs(self) -> frozenset[str]:
        """See `ObjectiveConfig`; the encoder reads some of them."""
        return frozenset({"permutation_mask", "masked_positions", "masked_ids", "masked_weights"})

    def check(self, whole: "Config") -> None:
        """Raises ValueError where the objective cannot be asked in the config `whole`."""
        if whole.encoder is not None:
            self.check_encoder(whole.encoder)

    def check_encoder(self, encoder: EncoderConfig) -> None:
        """Raises ValueError where an encoder of this form cannot be asked."""
        if not getattr(encoder, "query_stream", False):
            raise ValueError(
                "the encoder has no query stream, which a target is predicted from: take "
                "encoder.type: transformer_xl with query_stream: true"
            )
        if getattr(encoder, "attention", "bi") != "bi":
            raise ValueError(
                f"encoder.attention: {encoder.attention} hides what the order lets a target see: "
                "take bi"
            )


# The relations of two segments with a label, and its feature.
LABELS = {relation: label for relation, label in RELATIONS.items() if label is not None}
POOLER_MISSING = "reads the pooled output: set encoder.pooler to true"


@dataclasses.dataclass(frozen=True)
class SentencePairConfig(ObjectiveConfig):
    """What is asked.

    Attributes:
        relation: 'next_sentence': is the second segment the continuation (0) or random (1)?
            'sentence_order': are the segments in their order (0) or swapped (1)?
        weight: factor of this loss in the sum.
    """

    type = "sentence_pair"
    packs = True  # asks of each part of a row

    relation: str = "next_sentence"
    weight: float = 1.0

    def __post_init__(self):
        one_of("relation", self.relation, LABELS)

    def needs(self) -> frozenset[str]:
        """See `ObjectiveConfig`."""
        return frozenset({LABELS[self.relation]})

    def check(self, whole: "Config") -> None:
        """Raises ValueError where the encoder of the config `whole` has no pooled output."""
        if whole.encoder is not None and not whole.encoder.pooler:
            raise ValueError(POOLER_MISSING)


@dataclasses.dataclass(frozen=True)
class SpanBoundaryConfig(ObjectiveConfig):
    """What is predicted.

    Attributes:
        max_targets: tokens of a span that are predicted, counted from its beginning.
        offset_size: O.
        weight: factor of this loss in the sum.
    """

    type = "span_boundary"
    packs = True  # what stands beside a span is of the span's own part

    max_targets: int = 15
    offset_size: int = 200
    weight: float = 1.0

    def __post_init__(self):
        at_least(self, 1, "max_targets", "offset_size")

    def needs(self) -> frozenset[str]:
        """See `ObjectiveConfig`."""
        return frozenset({"masked_ids", "span_left", "span_right", "span_offset", "span_weights"})
