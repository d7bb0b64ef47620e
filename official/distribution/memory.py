"""What an encoder remembers of each row, carried from one batch to the next.

Row b of each batch goes on where row b of the batch before left off (`segments.format: stream`), so
the states that the encoder kept of the one are what the other one reads first. Every replica holds
the memory of its own rows. Checkpoints hold that of all rows, in their order, so a run may go on
with another number of replicas.

Shapes: R rows of the batch, B those of one replica, L layers, M positions, D hidden.
"""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from official import config as configs
from official.saving.checkpoints import MEMORY
from official.utils.errors import UserError

_STATES, _MASK = f"{MEMORY}states", f"{MEMORY}mask"


class Memory:
    """The memory of the rows of one kind of batch, under a strategy.

    Args:
      encoder: config of an encoder with `memory_length` M.
      strategy: shares the rows out.
      rows: R.
    """

    def __init__(self, encoder, strategy: tf.distribute.Strategy, rows: int):
        self.rows = rows
        self._strategy = strategy
        self._share = rows // strategy.num_replicas_in_sync
        shape = (self._share, encoder.num_layers, encoder.memory_length, encoder.hidden_size)
        options = {
            "trainable": False,
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.NONE,
        }
        dtype = keras.config.dtype_policy().compute_dtype
        with strategy.scope():
            self._states = tf.Variable(tf.zeros(shape, dtype), **options)
            self._mask = tf.Variable(tf.zeros((shape[0], shape[2]), tf.bool), **options)
        self._gather = tf.function(self._all_rows, autograph=False)

    def read(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Adds to a replica's batch what is remembered of its rows.

        Args:
          batch: with `continues` [B], 0 where the row begins anew and remembers nothing.

        Returns:
          The batch with `memory` [B, L, M, D] and `memory_mask` bool [B, M].
        """
        goes_on = batch["continues"][:, None] > 0
        return {
            **batch,
            "memory": self._states.read_value(),
            "memory_mask": self._mask.read_value() & goes_on,
        }

    def write(self, states: tf.Tensor, mask: tf.Tensor) -> None:
        """Keeps what the encoder returned for a replica's batch.

        A row whose states are not finite is forgotten: they would spread to every later batch.

        Args:
          states: [B, L, M, D].
          mask: bool [B, M].
        """
        finite = tf.reduce_all(tf.math.is_finite(states), axis=[1, 2, 3])
        self._states.assign(tf.where(finite[:, None, None, None], states, 0))
        self._mask.assign(mask & finite[:, None])

    def clear(self) -> None:
        """Forgets all rows."""
        self._strategy.run(self._mask_nothing)

    def arrays(self) -> dict[str, np.ndarray]:
        """Copies the memory of all rows to the host; every worker must take part.

        Returns:
          `memory/states` [R, L, M, D] (bfloat16 as float32) and `memory/mask` bool [R, M].
        """
        states, mask = self._gather()
        return {_STATES: states.numpy(), _MASK: mask.numpy() > 0}

    def assign(self, arrays: Mapping[str, np.ndarray], source: str) -> None:
        """Puts back what `arrays` gave, on as many replicas as there are now.

        Raises:
          UserError: there is none, or it is of another size; `source` says where it came from.
        """
        shape = (self.rows, *self._states.shape[1:])
        found = arrays[_STATES].shape if _STATES in arrays else None
        if found != shape:
            kept = "no memory of rows" if found is None else f"a memory of shape {list(found)}"
            raise UserError(
                f"{source}: has {kept}, and this run needs {list(shape)}: it belongs to another "
                "config"
            )

        def of_replica(context):
            first = context.replica_id_in_sync_group * self._share
            mine = slice(first, first + self._share)
            return (
                tf.cast(arrays[_STATES][mine], self._states.dtype),
                tf.constant(arrays[_MASK][mine]),
            )

        states, mask = (
            self._strategy.experimental_distribute_values_from_function(
                lambda context, i=i: of_replica(context)[i]
            )
            for i in range(2)
        )
        self._strategy.run(self._put, args=(states, mask))

    def _put(self, states: tf.Tensor, mask: tf.Tensor) -> None:
        self._states.assign(states)
        self._mask.assign(mask)

    def _mask_nothing(self) -> None:
        self._mask.assign(tf.zeros(self._mask.shape, tf.bool))

    def _all_rows(self) -> tuple[tf.Tensor, tf.Tensor]:
        def local():
            states = self._states.read_value()
            if states.dtype == tf.bfloat16:
                states = tf.cast(states, tf.float32)
            return states, tf.cast(self._mask.read_value(), tf.int32)

        return tuple(self._strategy.gather(value, axis=0) for value in self._strategy.run(local))


def make_memory(
    config: configs.Config, strategy: tf.distribute.Strategy, rows: int
) -> Memory | None:
    """Makes the memory that a run needs; None where its encoder or its data has none.

    Args:
      config: as resolved.
      strategy: that the run computes under.
      rows: of a batch.
    """
    stream = config.segments is not None and config.segments.format == "stream"
    if not stream or not getattr(config.encoder, "memory_length", 0):
        return None
    return Memory(config.encoder, strategy, rows)
