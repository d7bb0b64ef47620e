"""Base classes of the parts of a config that YAML names by `type`.

A part is a frozen dataclass of settings and imports no Keras. The layer or function that runs it is
in the module that `official.config.registry.module_of` imports.
"""

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Self

from official.utils.strict import Tagged

if TYPE_CHECKING:
    from official.config.sections import Config
    from official.config.segments import Segments


class Part(Tagged):
    """A part of a config; `type` is its name in YAML."""

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that the part reads."""
        return frozenset()

    def gives(self) -> frozenset[str]:
        """Returns the batch fields that the part adds."""
        return frozenset()


class EncoderConfig(Part):
    """Sizes and settings of an encoder.

    Attributes:
      layout: the layout of a task's texts; see `official.tokenizers.pair_packing`.
    """

    num_layers: int

    @property
    def text_layout(self) -> str:
        """The layout of texts that the encoder reads without the head of a task."""
        return self.layout

    @property
    def num_states(self) -> int:
        """The number of layers whose states it returns, the token layer among them."""
        return self.num_layers + 1

    def without_memory(self) -> Self:
        """Returns the encoder for rows that are read by themselves."""
        names = {field.name for field in dataclasses.fields(self)}
        off = {name: 0 for name in ("memory_length", "reuse_length") if name in names}
        return dataclasses.replace(self, **off) if getattr(self, "memory_length", 0) else self


class CorruptionConfig(Part):
    """Settings of a corruption, which hides tokens from the model.

    Attributes:
      static: whether masks can be drawn once, when shards are made.
      packs: whether several sequences may share a row.
    """

    static: ClassVar[bool] = True
    packs: ClassVar[bool] = False

    def check(self, segments: "Segments") -> None:
        """Raises ValueError if the sequences of `segments` are too short for the corruption."""


class ObjectiveConfig(Part):
    """Settings of an objective, a loss that the encoder learns from.

    Attributes:
      packs: whether several sequences may share a row.
      weight: factor of the loss in the sum of all losses.
    """

    packs: ClassVar[bool] = False

    def check(self, whole: "Config") -> None:
        """Raises ValueError if the objective does not suit the rest of the config `whole`."""

    def field(self, name: str) -> str:
        """Returns the name of a batch field, with the task's name in front if there is one."""
        task = getattr(self, "task", "")
        return f"{task}/{name}" if task else name
