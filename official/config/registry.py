"""Tables of the parts that YAML names by `type`, and the modules that implement them."""

import importlib
import types
from collections.abc import Iterable

from official.config.corruption import PermutationConfig, TokenMasksConfig
from official.config.encoders import TransformerConfig, TransformerXLConfig
from official.config.heads import (
    ClassificationConfig,
    KernelRankingConfig,
    MultipleChoiceConfig,
    RankingConfig,
    RegressionConfig,
    SpanAnswerConfig,
)
from official.config.objectives import (
    AllTokensLMConfig,
    CausalLMConfig,
    MaskedLMConfig,
    PermutationLMConfig,
    SentencePairConfig,
    SpanBoundaryConfig,
)
from official.config.part import CorruptionConfig, EncoderConfig, ObjectiveConfig, Part
from official.config.replaced_tokens import GeneratorConfig, ReplacedTokensConfig


def _by_type(*parts: type[Part]) -> dict[str, type[Part]]:
    return {part.type: part for part in parts}


CORRUPTIONS = _by_type(TokenMasksConfig, PermutationConfig)
ENCODERS = _by_type(TransformerConfig, TransformerXLConfig)
OBJECTIVES = _by_type(
    MaskedLMConfig,
    CausalLMConfig,
    GeneratorConfig,
    ReplacedTokensConfig,
    AllTokensLMConfig,
    SentencePairConfig,
    SpanBoundaryConfig,
    PermutationLMConfig,
    ClassificationConfig,
    RegressionConfig,
    RankingConfig,
    KernelRankingConfig,
    SpanAnswerConfig,
    MultipleChoiceConfig,
)
# The package of the layers or functions; the module has the name of the type.
_PACKAGES = {
    CorruptionConfig: "official.corruption",
    EncoderConfig: "official.modeling.encoders",
    ObjectiveConfig: "official.modeling.objectives",
}


def module_of(part: Part) -> types.ModuleType:
    """Imports the module of a part, which has `corrupt`, `Encoder` or `Objective`."""
    package = next(path for base, path in _PACKAGES.items() if isinstance(part, base))
    return importlib.import_module(f"{package}.{part.type}")


def objective_fields(objectives: Iterable[ObjectiveConfig]) -> frozenset[str]:
    """Returns the batch fields that objectives add for each other before the encoder runs."""
    return frozenset().union(*(objective.gives() for objective in objectives))
