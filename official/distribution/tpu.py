"""TPUs: the connection, and the data that the host of a TPU can read.

The host of a TPU that `--tpu` names reads the shards. The local TPU is one of this machine.
"""

import os
from collections.abc import Iterable

import tensorflow as tf

from official.utils import paths
from official.utils.errors import UserError

_LOCAL = "local"


def create(address: str) -> tf.distribute.Strategy:
    """Connects to a TPU.

    Args:
      address: address or name of the TPU; empty = the local one.

    Raises:
      UserError: no TPU answers.
    """
    address = address or _LOCAL
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].partition(". ")[0]
        raise UserError(
            f"--distribution_strategy=tpu: no TPU answers at {address!r} ({reason}); give its "
            "address with --tpu, or choose one_device or mirrored"
        ) from None
    return tf.distribute.TPUStrategy(resolver)


def is_tpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the replicas of a strategy are those of a TPU."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def check_data(address: str, folders: Iterable[str | os.PathLike], layer_states: bool) -> None:
    """Checks, before a TPU is asked for, that its host can read the data.

    Args:
      address: as in `create`.
      folders: the folders of shards.
      layer_states: whether the run reads cached states of an encoder (`recipe.layer_states`).

    Raises:
      UserError: a folder is on this machine, or Python of this process would read the states.
    """
    if address in ("", _LOCAL):
        return
    for folder in folders:
        if not paths.is_remote(folder):
            raise UserError(
                f"{folder}: the host of --tpu={address} reads the data, and this folder is on this "
                "machine: copy it to a file system that both reach, such as gs://BUCKET/shards"
            )
    if layer_states:
        raise UserError(
            f"recipe.layer_states: this process reads the states, and the host of --tpu={address} "
            "reads the other data: leave it out, or use a TPU of this machine (--tpu=)"
        )
