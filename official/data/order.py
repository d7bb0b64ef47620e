"""Which rows each batch has, in which order: of training, of a stream, or of one pass.

Shapes: n rows.
"""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from official.data.example_order import Files, OnePass, RowOrder
from official.data.lanes import Corpora, Lanes
from official.data.length_groups import LengthGroups
from official.data.row_groups import Folder, RowGroups
from official.shards import parsing

# 2: of a stream, another order in each epoch; with buckets, a group ends where the run ends.
VERSION = 2


@dataclasses.dataclass(frozen=True)
class Order:
    """The batches of a split; `dataset` reads a worker's part of them.

    Attributes:
      folders: the shards of each folder.
      seed: the seed of the order.
      training: True = batches without end, shuffled unless they are a stream; False = one pass in
        order.
      shares: in training, the share that each folder has of the batches; empty = the examples of
        all folders are shuffled together.
      rows: of a stream, the number of rows.
      bounds: the lengths that batches are padded to, in ascending order; empty = all have one
        length.
      sequences: whether an example has several sequences, each of which is padded to the length.
      limits: what the numbers of examples are limited to; None = they are not checked.
      version: `VERSION`, or 1 for a run that an earlier version has begun.
    """

    folders: Sequence[Folder]
    seed: int
    training: bool
    shares: Sequence[float] = ()
    rows: int | None = None
    bounds: Sequence[int] = ()
    sequences: bool = False
    limits: parsing.Limits | None = None
    version: int = VERSION

    def dataset(
        self,
        batch_size: int,
        start: int,
        workers: int,
        worker: int,
        replicas_per_worker: int,
        end: int,
    ) -> tf.data.Dataset:
        """Returns an element for each replica of a worker in each batch.

        Args:
          batch_size: rows of a batch, over all replicas of all workers.
          start: the number of the first batch.
          workers: the number of workers.
          worker: the index of this worker.
          replicas_per_worker: the number of replicas of each worker.
          end: in training, the number of batches of the run.

        Returns:
          Rows; see `official.data.example_order`.
        """
        share = batch_size // (workers * replicas_per_worker)
        count = share * replicas_per_worker
        return self._rows(batch_size).dataset(start, worker * count, count, share, end)

    def _rows(self, batch_size: int) -> RowOrder:
        """Returns the order of the rows."""
        if self.rows is not None:
            turned = self.version > 1
            return RowGroups(self.folders, self.rows, self.seed, turned, repeat=self.training)
        if not self.training:
            return OnePass(self._files, batch_size, self._lengths, self.bounds)
        if self.shares:
            files = [folder.files for folder in self.folders]
            rows: Lanes | Corpora = Corpora(files, self.shares, self.seed, batch_size)
        else:
            rows = Lanes(self._files, self.seed, batch_size)
        if not self.bounds:
            return rows
        total, ends = sum(self._files.counts), self.version > 1
        return LengthGroups(rows, self._lengths, self.bounds, self.seed, batch_size, total, ends)

    @property
    def _files(self) -> Files:
        """The shards of all folders."""
        return Files.joined([folder.files for folder in self.folders])

    def _lengths(self, records: tf.Tensor) -> tf.Tensor:
        """Returns the tokens of examples, or of the longest sequence of each: int32 [n]."""
        if self.sequences:
            lengths = parsing.parse(records, ["sequence_lengths"], self.limits)["sequence_lengths"]
            return tf.reduce_max(lengths, axis=1)
        lengths = parsing.parse(records, ["segment_lengths"], self.limits)["segment_lengths"]
        return tf.reduce_sum(lengths, axis=1)
