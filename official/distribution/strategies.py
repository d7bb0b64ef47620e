"""Distribution strategies: one device, mirrored devices, several workers, or a TPU.

Several workers run the same program, each in its own process. They exchange values with `gather`,
which all workers call at the same point of the program. The host of a TPU that `--tpu` names reads
the shards. The local TPU is one of this machine.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from official import config as configs
from official.config.trainable import LoRA
from official.data.collection import Measured, Texts
from official.data.mixture import Data
from official.distribution import cluster
from official.distribution.described_slice import DescribedSlice
from official.modeling.model import Model
from official.utils import gfile, paths, progress
from official.utils.errors import UserError

NAMES = ("one_device", "mirrored", "multi_worker", "tpu")
_SHOWN = 5  # settings that a message names
_LOCAL = "local"  # the TPU of this machine


def create(name: str, address: str = "", replicas: int = 0) -> tf.distribute.Strategy:
    """Makes a strategy. It must be called before TensorFlow initializes its devices.

    Args:
      name: one of `NAMES`.
      address: address or name of the TPU, for `tpu` only; empty = the local one.
      replicas: number of devices; 0 = all GPUs, or one CPU. Several CPUs are logical devices of the
        same processor, which are slower than one and are meant for tests.

    Raises:
      UserError: the requested devices do not exist, or TF_CONFIG does not name the workers.
    """
    if name not in NAMES:
        raise UserError(f"--distribution_strategy={name}: choose one of {', '.join(NAMES)}")
    if name == "tpu":
        return connect_tpu(address)
    if address:
        raise UserError(f"--tpu={address} goes with --distribution_strategy=tpu only")
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
    """Makes a strategy that mirrors variables over devices of this machine.

    On CPUs, sums are computed on one device: collectives are not faster there, and those of two
    strategies in a process would interfere.
    """
    on_cpu = all("CPU" in device for device in devices)
    reduction = tf.distribute.ReductionToOneDevice() if on_cpu else None
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def all_rows(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | int]:
    """Returns the rows of all replicas, in their order, and the number of the first own one.

    The gradient of a row is the sum of its gradients on all replicas. Call it in `strategy.run`.

    Args:
      x: [B, ...], with the same shape on each replica.
    """
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if replicas == 1:
        return x, 0
    rows = context.all_gather(x, axis=0)
    shape = tf.TensorShape([x.shape[0] and replicas * x.shape[0], *x.shape[1:]])
    first = context.replica_id_in_sync_group * tf.shape(x)[0]
    return tf.ensure_shape(rows, shape), first


def compare_all_rows(model: Model) -> None:
    """Makes objectives that compare rows, compare the rows of all replicas."""
    for objective in model.objectives:
        if objective.compares_rows:
            objective.all_rows = all_rows


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes files: it is worker 0, or the only worker."""
    return _worker(strategy)[0] == 0


def num_workers(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of processes that run the program together."""
    return _worker(strategy)[1]


def gather(strategy: tf.distribute.Strategy, values: np.ndarray) -> np.ndarray:
    """Gathers the values of all workers. Every worker must call it.

    Args:
      strategy: the strategy of the workers.
      values: [n], with the same dtype and length on each worker.

    Returns:
      [workers, n], the same on all of them.
    """
    workers = num_workers(strategy)
    if workers == 1:
        return values[None]
    rows = _gather(strategy)(tf.constant(values)[None])  # [replicas, n]
    return rows.numpy()[:: len(rows) // workers]


def gather_texts(strategy: tf.distribute.Strategy, text: str) -> list[str]:
    """Gathers a text of each worker."""
    encoded = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
    sizes = gather(strategy, np.array([encoded.size], np.int32))[:, 0]
    # Lengths are rounded up, because each length needs a graph.
    padded = np.zeros(1024 * -(-max(*sizes, 1) // 1024), np.int32)
    padded[: encoded.size] = encoded
    rows = gather(strategy, padded)
    return [bytes(row[:size].tolist()).decode() for row, size in zip(rows, sizes, strict=True)]


def check_run(
    strategy: tf.distribute.Strategy,
    config: configs.ResolvedConfig,
    flags: Mapping[str, Any],
    data: Mapping[str, Measured | None],
) -> None:
    """Checks that all workers have the same config, flags and data.

    Folders may have other names: each machine may have copies of its own.

    Args:
      strategy: the strategy of the workers.
      config: the resolved config.
      flags: values of flags by name.
      data: open data by the name of its flag; None = none.

    Raises:
      UserError: see `check_settings`.
    """
    settings = {**dict(configs.flatten(configs.to_dict(config))), **flags}
    for flag, source in data.items():
        if source is not None:
            settings[f"{flag} (examples)"] = source.num_examples
            settings[f"{flag} (fingerprint)"] = source.fingerprint
    check_settings(strategy, settings)


def check_settings(strategy: tf.distribute.Strategy, settings: Mapping[str, Any]) -> None:
    """Checks that all workers have the same settings, before they make variables together.

    Args:
      strategy: the strategy of the workers.
      settings: values that JSON can hold by their names, such as dotted keys of a config.

    Raises:
      UserError: on every worker, with the names that differ and the values of each worker.
    """
    if num_workers(strategy) == 1:
        return
    plain = json.dumps(settings, sort_keys=True)
    digests = gather_texts(strategy, hashlib.sha256(plain.encode()).hexdigest())
    if len(set(digests)) == 1:
        return
    workers = [json.loads(text) for text in gather_texts(strategy, plain)]
    different = [
        f"{name}: " + ", ".join(f"{found} on worker {i}" for i, found in enumerate(values))
        for name in dict.fromkeys(name for worker in workers for name in worker)
        if len(set(values := [_shown(worker, name) for worker in workers])) > 1
    ]
    more = f"; and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
    _fail_together(
        strategy,
        f"the workers were started with different settings ({'; '.join(different[:_SHOWN])}{more})."
        " Give all of them the same command, config and data",
    )


def _shown(settings: Mapping[str, Any], name: str) -> str:
    return json.dumps(settings[name]) if name in settings else "not set"


def check_alike(strategy: tf.distribute.Strategy, holds: str, digest: str) -> None:
    """Checks that all workers have the same state, and stops all of them otherwise.

    Args:
      strategy: the strategy of the workers.
      holds: a description of the state of this worker.
      digest: a digest of the state; empty if this worker cannot continue.

    Raises:
      UserError: on every worker, with the descriptions of all workers.
    """
    states = [text.split("\n", 1) for text in gather_texts(strategy, f"{digest}\n{holds}")]
    digests, words = zip(*states, strict=True)
    if len(set(digests)) == 1 and digests[0]:
        return
    if len(set(words)) == 1 and not any(digests):
        _fail_together(strategy, words[0])
    each = "; ".join(f"worker {i}: {text}" for i, text in enumerate(words))
    _fail_together(
        strategy,
        f"the workers do not go on from the same place: {each}. Give all of them the same command "
        "and the same folders, which they share",
    )


@contextlib.contextmanager
def together(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Makes all workers fail if one of them fails in the block.

    Raises:
      UserError: on every worker, the error of the first worker that failed.
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
            _fail_together(strategy, text)


def _fail_together(strategy: tf.distribute.Strategy, message: str) -> NoReturn:
    """Raises an error that every worker raises, once all of them know of it.

    A worker reads the values of the others from their processes: one that ended at once would take
    its values with it.
    """
    with contextlib.suppress(tf.errors.OpError):  # if the others have not waited for this worker
        gather(strategy, np.zeros(1, np.int32))
    raise UserError(message)


@contextlib.contextmanager
def lost_workers(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Reports the loss of another worker or of a TPU, or of a remote file system, as a user error.

    Raises:
      UserError: another worker or the TPU cannot be reached, or shards cannot be read.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if not can_lose(strategy) or not gfile.may_pass(error):
            raise
        lost, restart = (
            "another worker has ended or cannot be reached (its own output may say why)",
            "Start all workers again with the same command",
        )
        if is_tpu(strategy):
            lost, restart = (
                "the TPU cannot be reached any more (it may have been preempted or restarted)",
                "Once it runs again, start the same command",
            )
        raise UserError(
            f"{lost}, or a file system fails ({gfile.words(error)}). {restart}: training goes on "
            "from its last checkpoint"
        ) from error


def can_lose(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the run needs another machine: a worker, or the host of a TPU."""
    return num_workers(strategy) > 1 or is_tpu(strategy)


@functools.cache
def _gather(strategy: tf.distribute.Strategy):
    """Returns a graph that gathers a value of each replica."""

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
        except (RuntimeError, ValueError):  # TensorFlow has initialized its devices.
            existing = len(tf.config.list_logical_devices("CPU"))
            if existing < count:
                raise UserError(
                    f"--num_replicas={count}: TensorFlow has started with {existing} CPU devices"
                ) from None
    return [f"CPU:{i}" for i in range(count)]


def _multi_worker() -> tf.distribute.Strategy:
    cluster.wait(cluster.read(), progress.say)
    return tf.distribute.MultiWorkerMirroredStrategy()


def build_model(
    config: configs.ResolvedConfig, strategy: tf.distribute.Strategy, lora: LoRA | None = None
) -> Model:
    """Makes a model with its variables on the devices of a strategy; `lora` is that of `Model`."""
    with strategy.scope():
        return Model(config, lora=lora)


def distribute(
    strategy: tf.distribute.Strategy,
    source: Data | Texts,
    batch_size: int,
    start_step: int = 0,
):
    """Distributes the batches of a source over the replicas of a strategy.

    Rows for a TPU have one length, also with `recipe.bucket_lengths`: it takes static shapes only.
    """

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        workers = context.num_input_pipelines
        return source.dataset(
            batch_size,
            start_step=start_step,
            workers=workers,
            worker=context.input_pipeline_id,
            replicas_per_worker=context.num_replicas_in_sync // workers,
            one_length=is_tpu(strategy),
        )

    return strategy.distribute_datasets_from_function(dataset)


def connect_tpu(address: str) -> tf.distribute.Strategy:
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
        lacks = _missing_kernels() if address == _LOCAL else ""
        raise UserError(
            f"--distribution_strategy=tpu: no TPU answers at {address!r} ({reason}); {lacks}give "
            "its address with --tpu, or choose one_device or mirrored"
        ) from None
    return tf.distribute.TPUStrategy(resolver)


def _missing_kernels() -> str:
    """Returns what TensorFlow lacks for the TPU of this machine, and the way out; often nothing.

    tensorflow-tpu and the package tensorflow, which tensorflow-text requires, have files of the
    same names.
    """
    try:
        package = importlib.metadata.distribution("tensorflow-tpu")
    except importlib.metadata.PackageNotFoundError:
        return "for the TPU of this machine, install the extra tpu-runtime; otherwise "
    for file in package.files or ():
        if file.name.startswith("libtensorflow") and os.stat(file.locate()).st_size != file.size:
            again = f"--force-reinstall --no-deps tensorflow-tpu=={package.version}"
            return (
                "the package tensorflow has replaced files of tensorflow-tpu, so run `python -m "
                f"pip install {again}`; otherwise "
            )
    return ""


def is_tpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the replicas of a strategy are those of a TPU, there or described."""
    return isinstance(strategy, tf.distribute.TPUStrategy | DescribedSlice)


def check_tpu_data(address: str, folders: Iterable[str | os.PathLike], layer_states: bool) -> None:
    """Checks, before a TPU is asked for, that its host can read the data.

    Args:
      address: as in `create`.
      folders: the folders of shards.
      layer_states: whether the run reads cached states of an encoder (`recipe.layer_states`).

    Raises:
      UserError: a folder is on this machine or is opened by fsspec, or Python of this process
        would read the states.
    """
    if address in ("", _LOCAL):
        return
    for folder in folders:
        if not paths.is_remote(folder) or gfile.by_fsspec(str(folder)):
            raise UserError(
                f"{folder}: the host of --tpu={address} reads the data, and TensorFlow there "
                "cannot open this folder: copy it to what it knows, such as gs://BUCKET/shards"
            )
    if layer_states:
        raise UserError(
            f"recipe.layer_states: not supported with --tpu={address}: this process reads the "
            "states, and the host of the TPU reads the other data. Remove recipe.layer_states, or "
            "use a TPU of this machine (--tpu=)"
        )
