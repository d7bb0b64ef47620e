"""The order of the examples of several corpora, each of which has a share of every batch.

The rows of a batch belong to L lanes (see `official.data.lanes`), and lane l of a batch reads lane
l of every corpus. Of the first n rows of lane l, floor(n w + l / L) are of the first of two
corpora, where w is its share. So floor(L n w) rows of all lanes are: the number of examples of a
corpus is its share of all, to within one example, after any number of batches. More corpora divide
the rows of the first in the same way, with the lanes in other orders; their numbers are then within
a few examples of their shares.

Each corpus goes through epochs of its own. The order is a function of the seed, the shares, the
number of examples in each shard and the batch size, with any number of workers, and a worker opens
the shards of its own lanes only.

Shapes: L lanes, C corpora, n rows of a lane.
"""

import functools
import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from official.data.example_order import Files, Rows
from official.data.lanes import Lanes, count_lanes, interleave

_PRECISION = 10**6  # of shares


class Corpora:
    """The rows of all batches; `dataset` reads those of one worker.

    Attributes:
      lanes: L; see `official.data.lanes.count_lanes`.
    """

    def __init__(
        self, corpora: Sequence[Files], shares: Sequence[float], seed: int, batch_size: int
    ):
        """Prepares the order; no shard is opened.

        Args:
          corpora: the shards of each corpus, whose examples are numbered in this order.
          shares: a positive weight for each corpus.
          seed: the seed of the order.
          batch_size: rows of a batch, over all workers.
        """
        self.lanes = count_lanes(corpora, batch_size)
        self._corpora = [Lanes(files, seed, batch_size, self.lanes) for files in corpora]
        sizes = [sum(files.counts) for files in corpora]
        self._firsts = np.cumsum([0, *sizes[:-1]])  # the number of each corpus's first example
        bounds = np.rint(np.cumsum(shares) / np.sum(shares) * _PRECISION)
        self._bounds = np.maximum(1, bounds).astype(np.int64)  # of the shares, [C]
        self._places = tf.constant(  # the place of each lane in each division in two, [C - 1, L]
            [_places(division, self.lanes) for division in range(len(corpora) - 1)], tf.int64
        )
        self._rows = batch_size // self.lanes  # of a lane in a batch

    def dataset(self, start: int, first: int, count: int, share: int) -> tf.data.Dataset:
        """Returns rows of the batches from number `start` on; see `Lanes.dataset`."""

        def read(lane):
            return self._lane(lane, start).batch(self._rows, drop_remainder=True)

        return interleave(read, self._rows, first, count, share)

    def counts(self, lane: int | tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Returns how many of the first rows [n] of a lane are of each corpus: int64 [n, C]."""
        counts = []
        for division, (part, whole) in enumerate(reversed(list(itertools.pairwise(self._bounds)))):
            place = self._places[division, lane]
            below = (rows * self.lanes * part + place * whole) // (self.lanes * whole)
            counts.append(rows - below)
            rows = below
        return tf.stack([*counts, rows][::-1], axis=1)

    def _lane(self, lane: tf.Tensor, start: int) -> tf.data.Dataset:
        """Returns the rows of a lane from batch `start` on, one by one."""
        before = self.counts(lane, tf.constant([start * self._rows], tf.int64))[0]  # [C]

        def corpora(batch):
            rows = batch * self._rows + tf.range(self._rows + 1, dtype=tf.int64)
            counts = self.counts(lane, rows)
            return tf.argmax(counts[1:] - counts[:-1], axis=1)  # the corpus of each row

        sources = []
        for number, (lanes, first) in enumerate(zip(self._corpora, self._firsts, strict=True)):
            rows = lanes.lane(lane, before[number])
            sources.append(rows.map(functools.partial(_renumbered, first=first)).unbatch())
        batches = tf.data.Dataset.counter(tf.constant(start, tf.int64))
        return tf.data.Dataset.choose_from_datasets(
            sources, batches.map(corpora).unbatch(), stop_on_empty_dataset=False
        )


def _places(division: int, lanes: int) -> np.ndarray:
    """Returns a permutation of 0 … L - 1, which is spread evenly over any range of lanes."""
    if division == 0:
        return np.arange(lanes)
    return np.argsort(np.argsort(np.arange(lanes) * np.sqrt(division + 1) % 1))


def _renumbered(rows: Rows, first: int) -> Rows:
    """Returns rows with the numbers of their examples among those of all corpora."""
    return {**rows, "index": rows["index"] + first}
