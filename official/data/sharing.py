"""Splits batches among workers, replicas and accumulation steps.

Shapes: n rows of a batch.
"""

import tensorflow as tf

from official.utils.errors import UserError


def check(batch_size: int, replicas: int, accumulation: int) -> None:
    """Checks that a batch can be split into equal parts.

    Args:
      batch_size: examples of a batch.
      replicas: the number of replicas on all workers together.
      accumulation: the number of accumulation steps of each replica.

    Raises:
      UserError: the batch size is not a multiple of the number of parts.
    """
    parts = replicas * accumulation
    if batch_size % parts:
        steps = f" × {accumulation} accumulation steps" if accumulation > 1 else ""
        below = batch_size - batch_size % parts
        near = f"{below} or {below + parts}" if below else f"{parts}"
        raise UserError(
            f"a batch of {batch_size} cannot be shared by {replicas} replicas{steps} = {parts} "
            f"parts: make it a multiple of {parts}, such as {near}"
        )


def split(
    batches: tf.data.Dataset, share: int, worker: int, replicas_per_worker: int
) -> tf.data.Dataset:
    """Splits each batch into one element for each replica of a worker.

    Args:
      batches: dicts of tensors [n, ...].
      share: rows of one replica.
      worker: the index of this worker.
      replicas_per_worker: the number of elements that a batch becomes.
    """
    size = replicas_per_worker * share
    rows_of_worker = slice(worker * size, (worker + 1) * size)
    batches = batches.map(lambda rows: {name: x[rows_of_worker] for name, x in rows.items()})
    return batches.rebatch(share)
