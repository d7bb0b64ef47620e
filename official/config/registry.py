"""Tables of the parts that YAML names by `type`, and the modules that implement them."""

import importlib
import types
from collections.abc import Iterable
from typing import TypeVar

from official.config import corruptions, distillation, encoders, heads, objectives
from official.config.parts import CorruptionConfig, EncoderConfig, ObjectiveConfig, Part

P = TypeVar("P", bound=Part)


def _by_type(*parts: type[P]) -> dict[str, type[P]]:
    return {part.type: part for part in parts}


CORRUPTIONS = _by_type(*corruptions.PARTS)
ENCODERS = _by_type(*encoders.PARTS)
OBJECTIVES = _by_type(*objectives.PARTS, *heads.PARTS, *distillation.PARTS)
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


def objective_fields(parts: Iterable[ObjectiveConfig]) -> frozenset[str]:
    """Returns the batch fields that objectives add for each other before the encoder runs."""
    return frozenset().union(*(objective.gives() for objective in parts))
