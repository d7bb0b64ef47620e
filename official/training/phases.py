"""The phases of a pretraining: runs one after the other, each of which continues the one before.

The last phase has the model folder of the run, and the others have folders in it, each a whole
model folder with its own config, checkpoints and metrics. Weights, moments and the number of the
step go from one to the next, and the learning rate is that of one schedule over all steps.
"""

import collections
import dataclasses
import math
import os
from collections.abc import Iterator, Mapping, Sequence

from official import config as configs
from official.data.mixture import Data, Mixture, Paths
from official.saving import checkpoints, model_folder
from official.utils.errors import UserError
from official.utils.paths import AnyPath


@dataclasses.dataclass(frozen=True)
class PhaseOfRun:
    """A phase with its data and folders; the arguments of `official.training.run.train`.

    Attributes:
      config: that of the phase.
      data: its shards.
      validation_data: its held-out shards, or None.
      model_dir: its model folder.
      init: the model that it begins with: that of the phase before it, or None.
      checkpoint: the checkpoint of `init`.
      begin: the last step of the phase before it, or 0.
      next_dir: the model folder of the next phase; None = it is the last one.
    """

    config: configs.Config
    data: Paths
    validation_data: Paths | None
    model_dir: AnyPath
    init: str | os.PathLike | None
    checkpoint: str
    begin: int
    next_dir: AnyPath | None

    def begun_by(self, first: "PhaseOfRun") -> "PhaseOfRun":
        """Returns this phase with the initial model of `first`, so that it needs no earlier phase.

        All phases are checked in this form before the first step.
        """
        weights = first.config.recipe.init_weights
        recipe = dataclasses.replace(self.config.recipe, init_weights=weights)
        config = dataclasses.replace(self.config, recipe=recipe)
        return dataclasses.replace(self, config=config, init=first.init)

    @property
    def is_over(self) -> bool:
        """Whether the next phase has a checkpoint, so that nothing of this one is read any more."""
        return self.next_dir is not None and checkpoints.last_step(self.next_dir) is not None

    def data_offset(self, source: Data, read: collections.defaultdict[str, float]) -> int:
        """Returns the offset from the number of a step to the number of its batch.

        Data that an earlier phase has read continues where that phase ended, and other data begins
        at its first batch. Each of several corpora with shares continues where it ended.

        Args:
          source: the data of the phase.
          read: the number of examples that earlier phases have read, by the fingerprint of the
            data or corpus. Those of this phase are added.
        """
        if isinstance(source, Mixture):
            return 0  # Only pretraining has phases.
        size, steps = self.config.recipe.batch_size, self.config.recipe.steps - self.begin
        before = [read[name] for name, _ in source.corpora]
        first = math.ceil(round(sum(before) / size, 6))
        source.go_ahead(
            [
                own - first * size * share
                for own, (_, share) in zip(before, source.corpora, strict=True)
            ]
        )
        for name, share in source.corpora:
            read[name] += steps * size * share
        return first - self.begin


def of_run(
    config: configs.Config,
    data: Paths,
    validation_data: Paths | None,
    model_dir: AnyPath,
    init: str | os.PathLike | None,
    checkpoint: str,
) -> Iterator[PhaseOfRun]:
    """Yields the phases of a run; the arguments are those of `official.training.run.train`.

    Raises:
      UserError: the number of folders is not that of the phases.
    """
    parts = configs.phases(config)
    shares = [phase.data_shares for phase in config.phases] or [()]
    each = _of_phases(data, shares, "--data")
    held_out = _of_phases(validation_data, [()] * len(parts), "--validation_data")
    folders = [model_folder.phase_folder(model_dir, i) for i in range(1, len(parts))] + [model_dir]
    begin = 0
    for part, own, held, folder, following in zip(
        parts, each, held_out, folders, [*folders[1:], None], strict=True
    ):
        yield PhaseOfRun(part, own, held, folder, init, checkpoint, begin, following)
        init, checkpoint, begin = folder, "last", part.recipe.steps


def _of_phases(data, shares: Sequence[Sequence[float]], flag: str) -> list:
    """Returns the data of each phase.

    Args:
      data: of all phases, or a list with that of each; if the phases have shares, a list of the
        folders that have them; None stays None.
      shares: those of each phase; empty = none.
      flag: the flag of the data, for messages.

    Raises:
      UserError: there are more or fewer folders than phases, or than shares, or one of those with
        shares is named twice.
    """
    count = len(shares)
    if isinstance(data, Mapping) and any(shares):
        raise UserError(f"{flag}: the phases have data_shares: name folders without shares")
    if data is None or isinstance(data, Mapping) or (count == 1 and not any(shares)):
        return [data] * count
    folders = [data] if isinstance(data, str | os.PathLike) else list(data)
    if any(shares):
        if len(set(map(str, folders))) < len(folders):
            raise UserError(f"{flag}: a folder is named twice: give it one of the data_shares")
        for number, own in enumerate(shares):
            if len(own) != len(folders):
                raise UserError(
                    f"{flag}: {len(folders)} folders, and phases.{number}.data_shares has "
                    f"{len(own)} numbers: give one for each folder, 0 for none of it"
                )
        pairs = [zip(folders, own, strict=True) for own in shares]
        return [{folder: share for folder, share in pair if share} for pair in pairs]
    if len(folders) not in (1, count):
        raise UserError(
            f"{flag}: {len(folders)} folders for {count} phases: name one for all of them, or one "
            "for each"
        )
    return folders * count if len(folders) == 1 else folders
