"""Counts the labels of the training examples, for weights that balance them."""

import numpy as np

from official.config.parts import LabelCounts
from official.data.shards import Shards
from official.shards import local_files, parsing
from official.utils.errors import UserError

FEATURES = ("label", "label_flags", "tag_ids")  # that hold labels
_ROWS = 4096  # examples that are parsed at a time


def count(shards: Shards) -> LabelCounts:
    """Returns how many examples of a split have each label, or how many words have each tag.

    All examples of the shards are read, of each no more than its labels.

    Raises:
      UserError: the examples have no labels, or a shard cannot be read.
    """
    task = shards.task
    feature = next((name for name in FEATURES if name in shards.features), None)
    if task is None or feature is None or not task.labels:
        raise UserError(f"{shards.folder}: the examples have no labels to count")
    files = [path for folder in shards.files for path in folder.files.paths]
    found = np.zeros(len(task.labels), np.int64)
    with parsing.reported(shards.folder):
        for serialized in local_files.records(files).batch(_ROWS):
            values = parsing.parse(serialized, [feature], shards.limits)[feature]
            if feature == "label_flags":
                found += np.sum(values.to_tensor(shape=[None, len(found)]).numpy(), axis=0)
            else:
                numbers = values.numpy() if feature == "label" else values.flat_values.numpy()
                found += np.bincount(numbers[numbers >= 0], minlength=len(found))
    return LabelCounts(task.labels, found.tolist(), shards.num_examples, shards.folder)
