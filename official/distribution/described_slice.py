"""A slice of a TPU that is not there: a step is traced for its cores, and never run.

Variables are on this machine, once. What the replicas exchange are collective operations, which
XLA's compiler for TPUs takes. `tf.distribute.TPUStrategy` has operations of its own for them, and
needs a TPU.

Shapes: B rows of a replica, R replicas.
"""

from typing import Any

import tensorflow as tf
from typing_extensions import override


class DescribedSlice(tf.distribute.OneDeviceStrategy):
    """Has the number of replicas of a slice.

    Args:
      cores: R.
    """

    def __init__(self, cores: int):
        super().__init__("CPU:0")
        self._cores = cores

    @property
    def num_replicas_in_sync(self) -> int:
        """R."""
        return self._cores

    def replica(self, number: tf.Tensor) -> tf.distribute.ReplicaContext:
        """Returns the context in which the step of a replica is traced.

        Args:
          number: that of the replica, a scalar int32 that a program gets.
        """
        return _Replica(self, number)


class _Replica(tf.distribute.ReplicaContext):
    """Sums and gathers tensors by operations that XLA compiles."""

    @override
    def all_reduce(self, reduce_op, value, options=None):
        del options
        if reduce_op != tf.distribute.ReduceOp.SUM:
            raise NotImplementedError(f"{reduce_op}: sums alone are traced for a described slice")
        return tf.nest.map_structure(self._sum, value)

    @override
    def all_gather(self, value, axis, options=None):
        """The sum over replicas of rows that are 0 but for those of one."""
        del options
        if axis:
            raise NotImplementedError(f"axis {axis}: rows alone are gathered in a described slice")
        return tf.nest.map_structure(self._gathered, value)

    def _sum(self, value: tf.Tensor) -> tf.Tensor:
        if self.num_replicas_in_sync == 1:
            return value

        @tf.custom_gradient
        def summed(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
            result = tf.raw_ops.CollectiveReduceV2(
                input=x,
                group_size=self.num_replicas_in_sync,
                group_key=0,
                instance_key=0,
                ordering_token=[],
                merge_op="Add",
                final_op="Id",
            )
            return result, self._sum

        return summed(value)

    def _gathered(self, rows: tf.Tensor) -> tf.Tensor:
        mine = tf.one_hot(
            self.replica_id_in_sync_group, self.num_replicas_in_sync, dtype=rows.dtype
        )
        shape = [self.num_replicas_in_sync, *[1] * rows.shape.rank]
        placed = tf.reshape(mine, shape) * rows[None]  # [R, B, ...]
        return tf.reshape(self._sum(placed), [-1, *rows.shape[1:]])
