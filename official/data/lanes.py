"""The order of the examples in training, which a worker reads without the others.

The rows of a batch belong to L lanes, the same number of rows to each. In every epoch the shards
are shuffled, and their examples are cut into L parts that are equally long, one for each lane. A
lane reads the shards of its part one after the other, and the examples of a shard are shuffled as a
whole. There is no gap between epochs: a batch may contain the end of one and the start of the next.

The order is a function of (seed, epoch), of the number of examples in each shard and of the batch
size, with any number of workers. A worker opens the shards of its own lanes only, so one of W reads
about 1 / W of the bytes, and a run that resumes opens one shard for each lane. A shard is compared
with its checksum when it is opened for the first time.

Shapes: n rows that are read together, R records of a shard.
"""

import collections
import mmap
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official.data.example_order import Files, Rows
from official.utils import checksums, seeding
from official.utils.errors import UserError
from official.utils.seeding import Stream

MAX_LANES = 256
_HEADER = struct.Struct("<Q4x")  # of a TFRecord: the length of the record, and a CRC of it
_FOOTER = 4  # a CRC of the record


class _Shard(NamedTuple):
    """An open shard: its bytes, and the first and last byte of each record, int64 [R, 2]."""

    data: bytes | mmap.mmap
    bounds: np.ndarray


class Lanes:
    """The rows of all batches; `dataset` reads those of one worker.

    Attributes:
      lanes: L, the largest divisor of the batch size that is not above `MAX_LANES` nor the number
        of shards.
    """

    def __init__(self, files: Files, seed: int, batch_size: int):
        """Prepares the order; no shard is opened.

        Args:
          files: the shards.
          seed: the seed of the order.
          batch_size: rows of a batch, over all workers.
        """
        self._files = files
        self._seed = seed
        self._counts = np.asarray(files.counts, np.int64)
        self._first = np.cumsum(self._counts) - self._counts
        self._total = int(self._counts.sum())
        most = min(MAX_LANES, batch_size, np.count_nonzero(self._counts))
        self.lanes = max(count for count in range(1, most + 1) if batch_size % count == 0)
        self._rows_of_lane = batch_size // self.lanes
        self._checked: set[int] = set()

    def dataset(self, start: int, first: int, count: int, share: int) -> tf.data.Dataset:
        """Returns rows of the batches from number `start` on, without end.

        Args:
          start: the number of the first batch.
          first: the first row of each batch that is read.
          count: the number of rows of each batch that are read.
          share: n, the rows of an element; a divisor of `count`.

        Returns:
          Rows; see `official.data.example_order`.
        """
        spec = {
            "epoch": tf.TensorSpec([share], tf.int64),
            "index": tf.TensorSpec([share], tf.int64),
            "record": tf.TensorSpec([share], tf.string),
        }
        return tf.data.Dataset.from_generator(
            lambda: self._elements(start, range(first, first + count), share),
            output_signature=spec,
        )

    def _elements(self, start: int, rows: range, share: int) -> Iterator[Rows]:
        per_lane: dict[int, list[int]] = collections.defaultdict(list)
        for row in rows:
            per_lane[row // self._rows_of_lane].append(row % self._rows_of_lane)
        readers = {lane: _Lane(self, lane) for lane in per_lane}
        shards: dict[int, _Shard] = {}
        step = start
        while True:
            examples = [
                readers[lane].example(step * self._rows_of_lane + place)
                for lane, places in per_lane.items()
                for place in places
            ]
            needed = {shard for _, shard, _ in examples}
            for shard in shards.keys() - needed:
                if not any(reader.shard == shard for reader in readers.values()):
                    del shards[shard]
            for shard in needed - shards.keys():
                shards[shard] = self._open(shard)
            epoch = np.array([epoch for epoch, _, _ in examples], np.int64)
            index = np.array([self._first[shard] + place for _, shard, place in examples])
            record = np.array(
                [_record(shards[shard], place) for _, shard, place in examples], object
            )
            for i in range(0, len(examples), share):
                part = slice(i, i + share)
                yield {"epoch": epoch[part], "index": index[part], "record": record[part]}
            step += 1

    def length(self, lane: int, epochs: int) -> int:
        """Returns the number of examples that a lane reads in its first `epochs` epochs.

        Lanes differ by one example at most, however many epochs there are.
        """
        return (epochs * self._total + self.lanes - 1 - lane) // self.lanes

    def part(self, lane: int, epoch: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Returns the order of the shards in an epoch, and where a lane begins.

        Returns:
          The numbers of the shards in their order, the number of examples up to the end of each,
          and the number of examples before those of the lane.
        """
        order = _permutation(len(self._counts), self._seed, epoch, Stream.SHARD_ORDER)
        before = sum(
            self.length(other, epoch + 1) - self.length(other, epoch) for other in range(lane)
        )
        return order, np.cumsum(self._counts[order]), before

    def shuffled(self, shard: int, epoch: int) -> np.ndarray:
        """Returns the order of the examples of a shard in an epoch."""
        count = int(self._counts[shard])
        return _permutation(count, self._seed, epoch, Stream.RECORD_ORDER, shard)

    def epoch(self, lane: int, number: int) -> int:
        """Returns the epoch of example `number` of a lane."""
        epoch = max(number * self.lanes // self._total - 1, 0)
        while self.length(lane, epoch + 1) <= number:
            epoch += 1
        return epoch

    def _open(self, shard: int) -> _Shard:
        """Opens a shard.

        Raises:
          UserError: it is missing or has changed since it was written.
        """
        path, recorded = self._files.paths[shard], self._files.checksums[shard]
        try:
            with open(path, "rb") as stream:
                data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read: {error}: copy the folder again") from error
        if shard not in self._checked:
            found = checksums.hash_bytes(data)
            if changed := checksums.difference(path, recorded, found):
                raise UserError(
                    f"{changed}: copy the folder again from where it is whole, or make the shards "
                    "again"
                )
            self._checked.add(shard)
        bounds = np.empty((int(self._counts[shard]), 2), np.int64)
        position = 0
        for i in range(len(bounds)):
            begin = position + _HEADER.size
            end = begin + _HEADER.unpack_from(data, position)[0]
            bounds[i] = begin, end
            position = end + _FOOTER
        return _Shard(data, bounds)


class _Lane:
    """The place of a lane in its epoch.

    Attributes:
      shard: the number of the shard that it reads.
    """

    def __init__(self, lanes: Lanes, lane: int):
        self._lanes = lanes
        self._lane = lane
        self._epoch = -1
        self.shard = -1

    def example(self, number: int) -> tuple[int, int, int]:
        """Returns the epoch, the shard and the place in the shard of an example of the lane.

        Args:
          number: the number of the example in the lane, from the beginning of the run; not below
            that of the call before.
        """
        lanes = self._lanes
        if self._epoch < 0 or number >= self._stop:
            self._epoch = lanes.epoch(self._lane, number)
            self._start = lanes.length(self._lane, self._epoch)
            self._stop = lanes.length(self._lane, self._epoch + 1)
            self._shards, self._ends, self._before = lanes.part(self._lane, self._epoch)
            self.shard = -1
        place = self._before + number - self._start
        if self.shard < 0 or place >= self._end:
            i = int(np.searchsorted(self._ends, place, side="right"))
            self.shard = int(self._shards[i])
            self._end = int(self._ends[i])
            self._order = lanes.shuffled(self.shard, self._epoch)
        return self._epoch, self.shard, int(self._order[place - self._end])  # counted from the end


def _record(shard: _Shard, place: int) -> bytes:
    begin, end = shard.bounds[place]
    return shard.data[begin:end]


def _permutation(count: int, *counters: int) -> np.ndarray:
    """Returns a permutation of 0 … count - 1 that the counters determine."""
    draws = seeding.numpy_rng(*counters).bit_generator.random_raw(count)
    return np.argsort(draws, kind="stable")
