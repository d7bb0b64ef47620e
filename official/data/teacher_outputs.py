"""Finds the cached outputs of teachers for the examples of a split.

Shapes: N examples of the split, K teachers, C outputs.
"""

import dataclasses

import numpy as np

from official import config as configs
from official.config import distillation
from official.shards import teacher_outputs
from official.utils import paths
from official.utils.errors import UserError


@dataclasses.dataclass(frozen=True, eq=False)
class TeacherOutputs:
    """The cached outputs for a split.

    Attributes:
      folder: the folder.
      record: what it holds.
      outputs: float32 [N, K, C].
    """

    folder: str
    record: teacher_outputs.Record
    outputs: np.ndarray

    def check(self, config: configs.ResolvedConfig) -> None:
        """Checks that the outputs are of the config's teachers and of the head that learns them.

        Raises:
          UserError: they are not.
        """
        objective = distillation.find(config)
        assert objective is not None, "a config without teachers has no outputs of them"
        teacher_outputs.check_teachers(self.folder, self.record, objective.teacher_checksums)
        head = objective.head_of(config.objectives)
        if head.type != self.record.objective:
            raise UserError(
                f"{self.folder}: outputs of {self.record.objective}, and the student learns "
                f"{head.type}: take a teacher of the same task"
            )
        labels, count = head.labels, self.outputs.shape[-1]
        if labels and len(labels) != count:
            raise UserError(
                f"{self.folder}: {count} outputs for each example, and the student has the labels "
                f"{', '.join(labels)}: take a teacher of the same task"
            )


def read(
    config: configs.Config, split: str, fingerprint: str, count: int, training: bool
) -> TeacherOutputs | None:
    """Reads the cached outputs that a config names.

    Args:
      config: the config of the run.
      split: the split that is read.
      fingerprint: that of its examples.
      count: N.
      training: whether the outputs are needed. Otherwise there are none for a split or for examples
        that they were not made of, and none if the folder is gone.

    Returns:
      None if the config names none, or if there are none for the examples.

    Raises:
      UserError: the outputs are missing, have changed, or are of other examples.
    """
    objective = distillation.find(config)
    if objective is None or not objective.cache:
        return None
    if not training and not paths.path(objective.cache).exists():
        return None
    record = teacher_outputs.read_record(objective.cache)
    known = record.splits.get(split)
    if not training and (known is None or known.fingerprint != fingerprint):
        return None
    if known is None:
        raise UserError(
            f"{objective.cache}: has outputs of {', '.join(record.splits)}, not of {split}: make "
            f"them with official.commands.teacher_outputs --split={split}"
        )
    outputs = teacher_outputs.read(objective.cache, record, split, fingerprint)
    if outputs.ndim != 3 or len(outputs) != count:
        raise UserError(f"{objective.cache}: {len(outputs)} outputs for {count} examples")
    return TeacherOutputs(objective.cache, record, outputs)
