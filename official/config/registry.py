"""Tables of the parts that YAML names by `type`, and the modules that implement them."""

import importlib
import types
from collections.abc import Iterable
from typing import TypeVar

from official.config import (
    corruptions,
    distillation,
    encoders,
    heads,
    late_interaction,
    objectives,
    sentence_embedding,
    sparse_embedding,
)
from official.config.parts import CorruptionConfig, EncoderConfig, ObjectiveConfig, Part

P = TypeVar("P", bound=Part)


def _by_type(*parts: type[P]) -> dict[str, type[P]]:
    return {part.type: part for part in parts}


CORRUPTIONS = _by_type(*corruptions.PARTS)
ENCODERS = _by_type(*encoders.PARTS)
# {batch field that only some encoders read: a type of encoder that reads it}.
ENCODER_FIELDS = {
    field: part.type for part in reversed(encoders.PARTS) for field in part.batch_fields
}
OBJECTIVES = _by_type(
    *objectives.PARTS,
    *heads.PARTS,
    *sentence_embedding.PARTS,
    *late_interaction.PARTS,
    *sparse_embedding.PARTS,
    *distillation.PARTS,
)
# {base class of parts: the package of the modules that implement them}.
_PACKAGES = {
    CorruptionConfig: "official.corruption",
    EncoderConfig: "official.modeling.encoders",
    ObjectiveConfig: "official.modeling.objectives",
}


def module_of(part: Part) -> types.ModuleType:
    """Imports the module of a part, which has `corrupt`, `Encoder` or the layer of an objective."""
    package = next(path for base, path in _PACKAGES.items() if isinstance(part, base))
    return importlib.import_module(f"{package}.{part.module or part.type}")


def layer_of(objective: ObjectiveConfig) -> type:
    """Imports the module of an objective; returns the class of its layer."""
    return getattr(module_of(objective), objective.layer)


def objective_fields(parts: Iterable[ObjectiveConfig]) -> frozenset[str]:
    """Returns the batch fields that objectives prepare for each other before the encoder runs."""
    return frozenset().union(*(objective.gives() for objective in parts))
