"""The parts of a config that YAML names by `type`, and what each of them says about itself.

A part is a frozen dataclass with its settings. It needs no Keras: the layer or the function that
runs it stands in the module that `official.config.registry` names.
"""

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from official.config.sections import Config, Segments


class Part:
    """A part of a config.

    Attributes:
      type: its name in YAML.
    """

    type: ClassVar[str]

    def needs(self) -> frozenset[str]:
        """Returns the names of the fields of a batch that it reads."""
        return frozenset()

    def gives(self) -> frozenset[str]:
        """Returns the names of the fields that it adds to a batch."""
        return frozenset()


class EncoderConfig(Part):
    """An encoder: sizes and form."""


class CorruptionConfig(Part):
    """A corruption: what the model gets to see.

    Attributes:
      static: whether it can be drawn once, when shards are made.
      packs: whether several sequences may share a row.
    """

    static: ClassVar[bool] = True
    packs: ClassVar[bool] = False

    def check(self, segments: "Segments") -> None:
        """Raises ValueError where the sequences of `segments` have no room for it."""


class ObjectiveConfig(Part):
    """An objective: what the encoder is asked.

    Attributes:
      packs: whether several sequences may share a row.
      weight: factor of its loss in the sum.
    """

    packs: ClassVar[bool] = False

    def check(self, whole: "Config") -> None:
        """Raises ValueError where it cannot be asked in the config `whole`."""

    def field(self, name: str) -> str:
        """Returns the name of a field of the batch, with the task where there are several."""
        task = getattr(self, "task", "")
        return f"{task}/{name}" if task else name
