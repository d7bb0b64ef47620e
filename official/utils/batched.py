"""Lists of items of an iterable."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yields the items in lists of `size`, of which the last one may be shorter.

    `itertools.batched` of Python 3.12 yields tuples.
    """
    items = iter(items)
    while batch := list(itertools.islice(items, size)):
        yield batch
