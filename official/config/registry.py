"""What YAML names: corruptions, encoders and objectives, and the modules that they stand in."""

import importlib
import types
from collections.abc import Iterable
from typing import Any

# What `type:` may say, and the module that holds its `Config`. Modules are imported when named.
CORRUPTIONS = {
    "token_masks": "official.corruption.token_masks",
    "permutation": "official.corruption.permutation",
}
ENCODERS = {
    "transformer": "official.modeling.encoders.transformer",
    "transformer_xl": "official.modeling.encoders.transformer_xl",
}
OBJECTIVES = {
    "masked_lm": "official.modeling.objectives.masked_lm",
    "causal_lm": "official.modeling.objectives.causal_lm",
    "generator": "official.modeling.objectives.generator",
    "replaced_tokens": "official.modeling.objectives.replaced_tokens",
    "all_tokens_lm": "official.modeling.objectives.all_tokens_lm",
    "sentence_pair": "official.modeling.objectives.sentence_pair",
    "span_boundary": "official.modeling.objectives.span_boundary",
    "permutation_lm": "official.modeling.objectives.permutation_lm",
    "classification": "official.modeling.objectives.classification",
    "regression": "official.modeling.objectives.regression",
    "ranking": "official.modeling.objectives.ranking",
    "kernel_ranking": "official.modeling.objectives.kernel_ranking",
    "span_answer": "official.modeling.objectives.span_answer",
    "multiple_choice": "official.modeling.objectives.multiple_choice",
}


def type_of(part: Any) -> str:
    """The name under which a part's dataclass stands in YAML, such as `transformer`."""
    module = type(part).__module__
    for table in (CORRUPTIONS, ENCODERS, OBJECTIVES):
        for name, path in table.items():
            if path == module:
                return name
    raise TypeError(f"{module} is in no table of official.config.registry")


def module_of(part: Any) -> types.ModuleType:
    """The module that a part's dataclass stands in, with its `Encoder`, `Objective`, ..."""
    return importlib.import_module(type(part).__module__)


def objective_fields(objectives: Iterable[Any]) -> frozenset[str]:
    """The batch fields that objectives make for one another before the encoder runs."""
    given: frozenset[str] = frozenset()
    for objective in objectives:
        if gives := getattr(module_of(objective), "gives", None):
            given |= gives(objective)
    return given
