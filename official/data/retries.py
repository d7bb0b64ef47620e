"""Batches one by one, with new tries to read them from a remote file system."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

import tensorflow as tf

from official.utils import gfile

if TYPE_CHECKING:
    from official.data import ShardDataset
    from official.data.mixture import Mixture

T = TypeVar("T")

_END = object()


def batches(read: Callable[[int], Iterable[T]], folder: str) -> Iterator[T]:
    """Yields the batches of a source; if one cannot be read, reading begins again at this one.

    Args:
      read: returns the batches from a number on.
      folder: the folder of the source, for messages.

    Raises:
      UserError: a batch cannot be read after several tries.
    """
    number, rest, patience = 0, iter(read(0)), gfile.Patience(folder)
    while True:
        try:
            batch = next(rest, _END)
        except tf.errors.OpError as error:
            if not gfile.may_pass(error):
                raise
            patience.wait(error)
            rest = iter(read(number))
            continue
        if batch is _END:
            return
        yield batch
        number, patience = number + 1, gfile.Patience(folder)


def each_batch(source: "ShardDataset | Mixture", batch_size: int) -> Iterator[dict[str, tf.Tensor]]:
    """Yields the batches of a source in this process; see `batches`."""
    return batches(lambda start: source.dataset(batch_size, start_step=start), source.folder)
