"""Configs: strict YAML into frozen dataclasses, and the parts that YAML names."""

from official.config.loader import (
    corruption_from_dict,
    differences,
    flatten,
    from_dict,
    load,
    load_resolved,
    phases,
    save,
    to_dict,
)
from official.config.parts import Config, ResolvedConfig
from official.config.recipe import Optimizer, Recipe, Schedule
from official.config.registry import module_of
from official.config.segments import Segments

__all__ = [
    "Config",
    "Optimizer",
    "Recipe",
    "ResolvedConfig",
    "Schedule",
    "Segments",
    "corruption_from_dict",
    "differences",
    "flatten",
    "from_dict",
    "load",
    "load_resolved",
    "module_of",
    "phases",
    "save",
    "to_dict",
]
