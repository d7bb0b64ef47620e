"""Where a run computes: one device, mirrored devices, several workers, or a TPU.

Several workers run the same program, each in its own process. What one of them knows alone reaches
the others by `gather`, which all call at the same point of the program.
"""

import contextlib
import functools
import json
import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from official import config as configs
from official.data import ShardDataset
from official.data.mixture import Mixture
from official.modeling.model import Model
from official.utils.errors import UserError

NAMES = ("one_device", "mirrored", "multi_worker", "tpu")
_TEXT = 1024  # bytes of a text that a worker sends to the others; the rest is cut off


def create(name: str, tpu: str = "", replicas: int = 0) -> tf.distribute.Strategy:
    """Makes a strategy. Must be called before TensorFlow has touched its devices.

    Args:
      name: one of `NAMES`.
      tpu: address or name of the TPU, for `tpu` only; empty = the local one.
      replicas: how many devices to use; 0 = all GPUs, or one CPU. More CPUs than one are logical
        devices of the same processor: slower than one, useful to try things out.

    Raises:
      UserError: what was asked for is not there.
    """
    if name not in NAMES:
        raise UserError(f"--distribution_strategy={name}: known are {', '.join(NAMES)}")
    if name == "tpu":
        return _tpu(tpu)
    if tpu:
        raise UserError(f"--tpu={tpu} goes with --distribution_strategy=tpu only")
    if name == "multi_worker":
        return _multi_worker()
    devices = _devices(1 if name == "one_device" else replicas)
    if name == "one_device":
        if replicas > 1:
            raise UserError(
                f"--num_replicas={replicas} is more than one device: use "
                "--distribution_strategy=mirrored"
            )
        return tf.distribute.get_strategy()
    return mirrored(devices)


def mirrored(devices: list[str]) -> tf.distribute.Strategy:
    """Mirrors variables over devices of this machine.

    On CPUs sums are made on one device: collectives gain nothing there, and two strategies of one
    process would mix up theirs.
    """
    on_cpu = all("CPU" in device for device in devices)
    reduction = tf.distribute.ReductionToOneDevice() if on_cpu else None
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes files: worker 0 of several, or the only one."""
    return _worker(strategy)[0] == 0


def num_workers(strategy: tf.distribute.Strategy) -> int:
    """How many processes run the same program together."""
    return _worker(strategy)[1]


def gather(strategy: tf.distribute.Strategy, values: np.ndarray) -> np.ndarray:
    """The values that each worker gives; every worker must take part.

    Args:
      strategy: that the workers share.
      values: [n], numbers of the same type and as many on each worker.

    Returns:
      [workers, n], the same on all of them.
    """
    workers = num_workers(strategy)
    if workers == 1:
        return values[None]
    rows = _gather(strategy)(tf.constant(values)[None])  # [replicas, n]
    return rows.numpy()[:: len(rows) // workers]


def gather_texts(strategy: tf.distribute.Strategy, text: str) -> list[str]:
    """The text that each worker gives, cut to 1,024 bytes of UTF-8."""
    data = np.zeros(_TEXT, np.int32)
    coded = text.encode()[:_TEXT]
    data[: len(coded)] = list(coded)
    rows = gather(strategy, data)
    return [bytes(row.tolist()).rstrip(b"\0").decode(errors="ignore") for row in rows]


def check_alike(strategy: tf.distribute.Strategy, holds: str, digest: str) -> None:
    """Stops all workers unless each of them has the same.

    Args:
      strategy: that the workers share.
      holds: what this worker has, in words.
      digest: of what it has; empty where it cannot go on.

    Raises:
      UserError: on every worker: what each of them has.
    """
    found = [text.split("\n", 1) for text in gather_texts(strategy, f"{digest}\n{holds}")]
    digests, words = zip(*found, strict=True)
    if len(set(digests)) == 1 and digests[0]:
        return
    if len(set(words)) == 1 and not any(digests):
        raise UserError(words[0])
    each = "; ".join(f"worker {i}: {text}" for i, text in enumerate(words))
    raise UserError(
        f"the workers do not go on from the same place: {each}. Give all of them the same command "
        "and the same folders, which they share"
    )


@contextlib.contextmanager
def together(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """A block that all workers end together: where one of them fails, all do.

    Raises:
      UserError: on every worker: that of the first worker that had one.
    """
    if num_workers(strategy) == 1:
        yield
        return
    failed = ""
    try:
        yield
    except UserError as error:
        failed = str(error)
    for text in gather_texts(strategy, failed):
        if text:
            raise UserError(text)


@contextlib.contextmanager
def lost_workers(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Says in words that another worker has ended before its time.

    Raises:
      UserError: the others cannot be reached.
    """
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        if num_workers(strategy) == 1:
            raise
        raise UserError(
            "another worker has ended or cannot be reached; its own output may say why. Start all "
            "workers again with the same command: the run goes on from its last checkpoint"
        ) from error


@functools.cache
def _gather(strategy: tf.distribute.Strategy):
    """A graph that gathers what each replica gives."""

    def gathered(values: tf.Tensor) -> tf.Tensor:
        return strategy.gather(strategy.run(tf.identity, args=(values,)), axis=0)

    return tf.function(gathered, autograph=False)


def _worker(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    resolver = strategy.cluster_resolver
    if resolver is None or not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 0, 1
    cluster = resolver.cluster_spec().as_dict()
    return resolver.task_id or 0, max(1, len(cluster.get("worker", [])))


def _devices(count: int) -> list[str]:
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        if count > len(gpus):
            raise UserError(f"--num_replicas={count}: this machine has {len(gpus)} GPUs")
        return [f"GPU:{i}" for i in range(count or len(gpus))]
    count = count or 1
    if count > 1:
        try:
            tf.config.set_logical_device_configuration(
                tf.config.list_physical_devices("CPU")[0],
                [tf.config.LogicalDeviceConfiguration()] * count,
            )
        except (RuntimeError, ValueError):  # TensorFlow has started: its devices stay as they are.
            found = len(tf.config.list_logical_devices("CPU"))
            if found < count:
                raise UserError(
                    f"--num_replicas={count}: TensorFlow has started with {found} CPU devices"
                ) from None
    return [f"CPU:{i}" for i in range(count)]


def _multi_worker() -> tf.distribute.Strategy:
    text = os.environ.get("TF_CONFIG")
    if not text:
        raise UserError(
            "--distribution_strategy=multi_worker needs the variable TF_CONFIG, for example "
            '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
            '"task": {"type": "worker", "index": 0}}'
        )
    try:
        config = json.loads(text)
        workers, index = config["cluster"]["worker"], int(config["task"]["index"])
        workers[index]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise UserError(f"TF_CONFIG={text}: {type(error).__name__}: {error}") from None
    return tf.distribute.MultiWorkerMirroredStrategy()


def _tpu(address: str) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address or "local")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].partition(". ")[0]
        raise UserError(
            f"--distribution_strategy=tpu: no TPU answers at {address or 'local'!r} ({reason}); "
            "give its address with --tpu, or choose one_device or mirrored"
        ) from None
    return tf.distribute.TPUStrategy(resolver)


def build_model(config: configs.Config, strategy: tf.distribute.Strategy) -> Model:
    """Makes the model and all its variables on the devices of a strategy."""
    with strategy.scope():
        return Model(config)


def distribute(
    strategy: tf.distribute.Strategy,
    source: ShardDataset | Mixture,
    batch_size: int,
    start_step: int = 0,
):
    """The batches of a source, shared out over the replicas of a strategy."""

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        workers = context.num_input_pipelines
        return source.dataset(
            batch_size,
            start_step=start_step,
            workers=workers,
            worker=context.input_pipeline_id,
            replicas_per_worker=context.num_replicas_in_sync // workers,
        )

    return strategy.distribute_datasets_from_function(dataset)
