"""The memory of an encoder, carried from one batch to the next.

Row b of each batch continues row b of the previous batch (`segments.format: stream`), so the states
that the encoder kept of one row are the memory of the next. Every replica has the memory of its own
rows. Checkpoints have the memory of all rows in order, so a run can continue with another number of
replicas.

Shapes: R rows of the batch, B those of one replica, L layers, M positions, D hidden.
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from official import config as configs
from official.distribution import strategies
from official.saving.checkpoints import MEMORY
from official.utils.errors import UserError

_STATES, _MASK = f"{MEMORY}states", f"{MEMORY}mask"


class Memory:
    """The memory of the rows of a batch, under a strategy.

    Args:
      encoder: config of an encoder with `memory_length` M and `memory_shape` (L, M, D).
      strategy: distributes the rows over replicas.
      rows: R.
      dtype: that of the states.
    """

    def __init__(
        self, encoder, strategy: tf.distribute.Strategy, rows: int, dtype: str = "float32"
    ):
        self.rows = rows
        self._strategy = strategy
        self._share = rows // strategy.num_replicas_in_sync
        shape = (self._share, *encoder.memory_shape)
        options = {
            "trainable": False,
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.NONE,
        }
        self._dtype = tf.as_dtype(dtype)
        # The workers share the initial value of a variable, and their collectives have no bfloat16.
        wide = self._dtype == tf.bfloat16 and strategies.num_workers(strategy) > 1
        stored = tf.float32 if wide else self._dtype
        with strategy.scope():
            self._states = tf.Variable(tf.zeros(shape, stored), **options)
            self._mask = tf.Variable(tf.zeros((shape[0], shape[2]), tf.bool), **options)
        # A TPU runs functions in graphs only.
        self._gather = tf.function(self._all_rows, autograph=False)
        self._clear = tf.function(lambda: strategy.run(self._clear_mask), autograph=False)
        self._assign = tf.function(
            lambda *values: strategy.run(self._put, args=values), autograph=False
        )

    def read(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Adds the memory of its rows to the batch of a replica.

        Args:
          batch: has `continues` [B], 0 for rows that begin a document and have no memory.

        Returns:
          The batch with `memory` [B, L, M, D] and `memory_mask` bool [B, M].
        """
        continues = batch["continues"][:, None] > 0
        return {
            **batch,
            "memory": tf.cast(self._states.read_value(), self._dtype),
            "memory_mask": self._mask.read_value() & continues,
        }

    def write(self, states: tf.Tensor, mask: tf.Tensor) -> None:
        """Keeps the memory that the encoder returned for the batch of a replica.

        The memory of a row with states that are not finite is cleared: they would spread to all
        later batches.

        Args:
          states: [B, L, M, D].
          mask: bool [B, M].
        """
        finite = tf.reduce_all(tf.math.is_finite(states), axis=[1, 2, 3])
        kept = tf.where(finite[:, None, None, None], states, 0)
        self._states.assign(tf.cast(kept, self._states.dtype))
        self._mask.assign(mask & finite[:, None])

    def clear(self) -> None:
        """Clears the memory of all rows."""
        self._clear()

    def arrays(self) -> dict[str, np.ndarray]:
        """Copies the memory of all rows to the host; every worker must take part.

        Returns:
          `memory/states` [R, L, M, D] (bfloat16 as float32) and `memory/mask` bool [R, M].
        """
        states, mask = self._gather()
        return {_STATES: states.numpy(), _MASK: mask.numpy() > 0}

    def assign(self, arrays: Mapping[str, np.ndarray], source: str) -> None:
        """Restores what `arrays` returned, on any number of replicas.

        Raises:
          UserError: the memory is missing or has another size; `source` is the name of its origin.
        """
        shape = (self.rows, *self._states.shape[1:])
        stored = arrays[_STATES].shape if _STATES in arrays else None
        if stored != shape:
            kept = "no memory of rows" if stored is None else f"a memory of shape {list(stored)}"
            raise UserError(
                f"{source}: has {kept}, and this run needs {list(shape)}: the checkpoint belongs "
                "to another config; use the config.yaml of its model folder"
            )

        def replica_values(context):
            first = context.replica_id_in_sync_group * self._share
            mine = slice(first, first + self._share)
            return (
                tf.cast(arrays[_STATES][mine], self._states.dtype),
                tf.constant(arrays[_MASK][mine]),
            )

        self._assign(
            *(
                self._strategy.experimental_distribute_values_from_function(
                    lambda context, i=i: replica_values(context)[i]
                )
                for i in range(2)
            )
        )

    def _put(self, states: tf.Tensor, mask: tf.Tensor) -> None:
        self._states.assign(states)
        self._mask.assign(mask)

    def _clear_mask(self) -> None:
        self._mask.assign(tf.zeros(self._mask.shape, tf.bool))

    def _all_rows(self) -> tuple[tf.Tensor, tf.Tensor]:
        def local():
            states = self._states.read_value()
            if states.dtype == tf.bfloat16:
                states = tf.cast(states, tf.float32)
            return states, tf.cast(self._mask.read_value(), tf.int32)

        return tuple(self._strategy.gather(value, axis=0) for value in self._strategy.run(local))


def make_memory(
    config: configs.ResolvedConfig,
    strategy: tf.distribute.Strategy,
    rows: int,
    dtype: str = "float32",
) -> Memory | None:
    """Makes the memory that a run needs; None if its encoder or its data has none.

    Args:
      config: the config.
      strategy: the strategy of the run.
      rows: number of rows in a batch.
      dtype: that of the states that the encoder computes.
    """
    stream = config.segments is not None and config.segments.format == "stream"
    if not stream or not config.encoder.memory_length:
        return None
    return Memory(config.encoder, strategy, rows, dtype)
