"""Runs functions on Ray: see `shuffle.Runner`.

Functions run in tasks of their own (`official.utils.ray`), and the records go from the tasks that
make them to those that write them by the shuffle of Ray Data, in blocks, as rows of Arrow. What
does not fit the object stores is in files.
"""

import functools
import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import ray.data
from ray import ObjectRef

from official.utils import ray as tasks
from tfrecords_tools.writing import blocks
from tfrecords_tools.writing.blocks import Block, shard_records
from tfrecords_tools.writing.shuffle import (
    AnyCounts,
    Counts,
    Item,
    Keyed,
    Result,
    ShardRecords,
    sorted_blocks,
)

_BLOCK = [(name, pa.large_binary()) for name in Block._fields]
_PART = [("part", pa.int64()), *_BLOCK]


class Runner(tasks.Runner):
    """Runs functions in tasks of Ray."""

    def call(self, function: Callable[[Item], Result], item: Item) -> Result:
        """See `shuffle.Runner`."""
        (result,) = self.ordered(function, [item])
        return result

    def shuffle(
        self,
        make: Callable[[Item], Iterator[Keyed[AnyCounts]]],
        items: Iterable[Item],
        parts: Callable[[int, int], int],
        write: Callable[[ShardRecords], Result],
        counts: type[AnyCounts],
        counted: Callable[[Sequence[Item], AnyCounts], None],
    ) -> list[Result]:
        """See `shuffle.Runner`."""
        listed = list(items)
        made = self.results(
            functools.partial(_make, make=make, counts=counts),
            ((pickle.dumps(item),) for item in listed),
            make,
            references=1,
        )
        tables: list[ObjectRef] = []
        sizes = np.zeros(2, np.int64)  # of records, and of their bytes
        for item, (head, table) in zip(listed, made, strict=True):
            item_counts, item_sizes = pickle.loads(head)
            counted([item], item_counts)
            sizes += item_sizes
            tables.append(table)
        total = parts(*sizes.tolist())
        written = self.results(
            functools.partial(_write, write=write, total=total),
            ((reference,) for reference in _shuffled(tables, total)),
            write,
        )
        results = {number: result for (data,) in written for number, result in pickle.loads(data)}
        empty = [number for number in range(total) if number not in results]
        given = (ShardRecords(number, total, []) for number in empty)
        results.update(zip(empty, self.ordered(write, given), strict=True))
        return [results[number] for number in range(total)]


def _make(
    item: bytes, make: Callable[[Any], Iterator[Keyed]], counts: type[Counts]
) -> tuple[bytes, pa.Table]:
    """Makes the records of an item.

    Returns:
      The counts, and the numbers of records and of their bytes; and blocks of the records.
    """
    total = counts()
    made = [
        Block.of(keys, records)
        for keys, records in sorted_blocks(make(pickle.loads(item)), total, blocks.BYTES)
    ]
    sizes = np.array([block.sizes() for block in made], np.int64).reshape(-1, 2).sum(0)
    columns = zip(*made, strict=True) if made else ((), (), ())
    return pickle.dumps((total, sizes)), _table(columns, _BLOCK)


def _table(columns: Iterable[Iterable], schema: list[tuple[str, pa.DataType]]) -> pa.Table:
    arrays = [
        pa.array(list(column), kind) for column, (_, kind) in zip(columns, schema, strict=True)
    ]
    return pa.table(arrays, pa.schema(schema))


def _shuffled(tables: list[ObjectRef], total: int) -> Iterator[ObjectRef]:
    """Yields tables of all blocks of some parts each."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with tasks.user_errors():
        parts = (
            ray.data.from_arrow_refs(tables)
            .map_batches(_cut, batch_size=None, batch_format="pyarrow", fn_kwargs={"total": total})
            .repartition(total, keys=["part"])
        )
        for bundle in parts.iter_internal_ref_bundles():
            yield from bundle.block_refs


def _cut(table: pa.Table, total: int) -> pa.Table:
    """Cuts blocks at the ends of parts."""
    rows = [(number, *part) for block in _blocks(table) for number, part in block.parts(total)]
    return _table(zip(*rows, strict=True) if rows else ((),) * len(_PART), _PART)


def _blocks(table: pa.Table) -> list[Block]:
    return [
        Block(*row)
        for row in zip(*(table[name].to_pylist() for name in Block._fields), strict=True)
    ]


def _write(table: pa.Table, write: Callable[[ShardRecords], Any], total: int) -> tuple[bytes]:
    """Writes the parts of a table; returns their numbers and results."""
    results = []
    numbers = table["part"].to_numpy()
    for number in np.unique(numbers).tolist():
        own = _blocks(table.take(np.flatnonzero(numbers == number)))
        results.append((number, write(shard_records(number, total, own))))
    return (pickle.dumps(results),)
