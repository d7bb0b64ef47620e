"""The config of a run, made of its five sections."""

import dataclasses

from official.config.part import CorruptionConfig, EncoderConfig, ObjectiveConfig
from official.config.recipe import Recipe
from official.config.segments import Segments


@dataclasses.dataclass(frozen=True)
class Config:
    """The config of one run. A fine-tuning run has neither segments nor corruption.

    Attributes:
      name: the name of the run.
      seed: the seed of every random draw.
      segments: how documents become sequences; None for fine-tuning.
      corruption: how tokens are hidden; None if the objectives need no hidden tokens.
      encoder: the network; None = the encoder of the model given with `--init`.
      objectives: the losses, in the order in which their terms are reported.
      recipe: optimizer, schedule, batches and steps.
    """

    name: str
    seed: int = 0
    segments: Segments | None = None
    corruption: CorruptionConfig | None = None
    encoder: EncoderConfig | None = None
    objectives: tuple[ObjectiveConfig, ...] = ()
    recipe: Recipe = Recipe(steps=1)
