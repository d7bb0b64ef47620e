"""ERNIE: a BERT with embeddings of tasks, in Hugging Face's files.

transformers adds the embedding of task 0 to every token unless it is told another task, and so does
the model here: it becomes a part of the position table. The network is that of a BERT then, and the
files that are written have no embeddings of tasks (`use_task_id: false`).
"""

import numpy as np

from official.convert import bert
from official.convert.encoder_keys import FORM, EncoderKeys
from official.convert.mapping import LazyTensors
from official.convert.tensor_names import Tensors
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_TASKS = "ernie.embeddings.task_type_embeddings.weight"
_POSITIONS = "ernie.embeddings.position_embeddings.weight"


class OneTask(LazyTensors):
    """The tensors of a file, with the embedding of task 0 as a part of the position table.

    Attributes:
      source: the name of the file for messages.
    """

    def __init__(self, tensors: Tensors, source: str | AnyPath):
        """Wraps tensors, and notes which embeddings are left out."""
        self.source, self._tensors = source, tensors
        self._index = dict.fromkeys(name for name in tensors if name != _TASKS)
        if _TASKS in tensors:
            tensors.notes.append(
                "the embedding of task 0 is added to those of positions; those of other tasks are "
                "left out"
            )

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads a tensor."""
        tensor = self._tensors[name]
        if name != _POSITIONS or _TASKS not in self._tensors:
            return tensor
        tasks = self._tensors[_TASKS]
        if tasks.ndim != 2 or tensor.ndim != 2 or tasks.shape[1:] != tensor.shape[1:]:
            raise UserError(
                f"{self.source}: {_TASKS} has the shape {list(tasks.shape)}, beside positions of "
                f"the shape {list(tensor.shape)}"
            )
        return tensor + tasks[:1]


SYSTEM = bert.system(
    "ernie",
    "an ERNIE",
    "ernie.",
    "Ernie",
    encoder=EncoderKeys(
        title="an ERNIE",
        form={**FORM, "family": "ernie"},
        also={"position_embedding_type": "absolute", "use_task_id": False},
    ),
    tensors=OneTask,
)
