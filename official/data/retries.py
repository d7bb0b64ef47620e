"""Batches one by one, with new tries to read them from a remote file system."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import tensorflow as tf

from official.shards import parsing
from official.utils import gfile

if TYPE_CHECKING:
    from official.data import ShardDataset
    from official.data.mixture import Mixture


def each_batch(source: "ShardDataset | Mixture", batch_size: int) -> Iterator[dict[str, tf.Tensor]]:
    """Yields the batches of a source in this process; see `gfile.each`.

    Raises:
      UserError: a batch cannot be read after several tries, or has examples that are damaged or out
        of range.
    """
    with parsing.reported(source.folder):
        yield from gfile.each(
            lambda start: source.dataset(batch_size, start_step=start), source.folder
        )
