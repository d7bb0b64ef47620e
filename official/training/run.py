"""Trains models: `--mode=train` and `--mode=train_and_eval`."""

import collections
import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence

import keras
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.data.checks import check_labels
from official.data.collection import Collection, Measured
from official.data.mixture import Data, Paths, open_data, open_shards
from official.distribution import numerics, strategies
from official.distribution.described_slice import DescribedSlice
from official.evaluation import layer_states, notes
from official.modeling import weight_counts
from official.modeling.model import Model
from official.saving import checkpoints, model_folder, run_lock, task_file, teachers, warm_start
from official.shards import parsing, shard_folder
from official.tasks import beir
from official.training import (
    hooks,
    phases,
    reporting,
    resolve,
    resuming,
    schedules,
    step_memory,
    tpu_memory,
    trainable,
)
from official.training.trainer import Trainer
from official.utils import atomic, gfile, model_packages, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath


def train(
    config: configs.Config | str | os.PathLike,
    data: Paths,
    model_dir: str | os.PathLike,
    *,
    validation_data: Paths | None = None,
    evaluate: bool = True,
    init: str | os.PathLike | None = None,
    checkpoint: str = "best",
    strategy: tf.distribute.Strategy | None = None,
    allow_other_data: bool = False,
    verify_data: bool = False,
    report: Callable[[str], None] = reporting.print_line,
) -> None:
    """Trains a model, or resumes its training from the last checkpoint in `model_dir`.

    `official.load(model_dir)` loads the result.

    Example:
    ```python
    official.train(
        official.config.load("configs/finetune/sst2.yaml", ["recipe.epochs=1"]),
        "run/sst2-shards",
        "run/sst2",
        init="run/pretrained",
    )
    ```

    Args:
      config: a config, or the path of its YAML file.
      data: a folder of shards; a list of folders, one for each task; or, for pretraining, a
        mapping of folders to the share that each has of every batch, or a list, one for each of
        the `phases` of the config. If these have `data_shares`, the list has all folders.
      model_dir: the model folder, which all workers share. Phases before the last one have the
        folders `phase_1`, `phase_2`, ... in it.
      validation_data: shards of held-out text, for pretraining, with phases one or a list; or of
        another task, whose validation split is evaluated in place of that of `data`; or a folder
        of BEIR, whose queries `qrels/dev.tsv` are searched with the vectors of the model.
      evaluate: whether to evaluate, every `recipe.eval_every` steps and at the end.
      init: a model folder with the initial weights.
      checkpoint: the checkpoint of `init`: `best`, `last`, a step or a path.
      strategy: where to compute; None = one device.
      allow_other_data: whether a resumed run may use other data than it began with.
      verify_data: whether to compare every byte of the shards with their manifests before the first
        step. If not, sizes are compared, and each record with its checksum when it is read.
      report: takes the lines to print, on the chief only.

    Raises:
      UserError: the config, the data and the model folders do not belong together.
      Stopped: SIGTERM or SIGINT was received; a checkpoint is saved.
    """
    strategy = strategy or tf.distribute.get_strategy()
    if not strategies.is_chief(strategy):
        report = _nothing
    model_packages.refuse_output(model_dir)
    model_dir = paths.path(model_dir)
    shard_folder.refuse(model_dir)
    options = (evaluate, strategy, allow_other_data, verify_data, report)
    parsed = config if isinstance(config, configs.Config) else configs.load(config)
    read = collections.defaultdict[str, float](float)
    with strategies.lost_workers(strategy), parsing.reported("--data or --validation_data"):
        parts = list(phases.of_run(parsed, data, validation_data, model_dir, init, checkpoint))
        if len(parts) > 1:
            _check_phases(parts, evaluate, strategy)
        for phase in parts:
            _train_phase(phase, read, *options)


def _check_phases(
    parts: Sequence[phases.PhaseOfRun], evaluate: bool, strategy: tf.distribute.Strategy
) -> None:
    """Checks all phases of a run before the first step of the first one.

    Raises:
      UserError: the settings, the data and the initial weights of a phase do not belong together,
        or a phase has other weights than the first one.
    """
    (begun, _), *later = _all_opened(parts, evaluate, strategy)
    for config, _ in later:
        counts = [weight_counts.count(each) for each in (begun, config)]
        theirs, ours = ({**each.encoders, **each.heads} for each in counts)
        changed = [
            f"{part}: {theirs.get(part, 0):,} and {ours.get(part, 0):,}"
            for part in theirs | ours
            if theirs.get(part) != ours.get(part)
        ]
        if changed:
            raise UserError(
                f"phases: {begun.name} and {config.name} have different weights "
                f"({'; '.join(changed)}): a phase may change neither the shapes of weights nor the "
                "heads"
            )


def _train_phase(
    phase: phases.PhaseOfRun,
    read: collections.defaultdict[str, float],
    evaluate: bool,
    strategy: tf.distribute.Strategy,
    allow_other_data: bool,
    verify: bool,
    report: Callable[[str], None],
) -> None:
    """Trains a phase of a run, or a run that has none, to its end.

    `read` is that of `PhaseOfRun.data_offset`, and the other arguments are those of `train`.
    """
    model_dir = phase.model_dir
    config, source, held_out = _opened(phase, evaluate, strategy, verify)
    mode = "train_and_eval" if evaluate else "train"
    strategies.check_run(
        strategy, config, {"--mode": mode}, {"--data": source, "--validation_data": held_out}
    )
    offset = phase.data_offset(source, read)
    with _locked(strategy, model_dir, report) as check_lock:
        resuming.check_same_run(config, model_dir)
        if phase.is_over:
            if not allow_other_data:
                _check_data(phase, config, source, held_out)
            report(f"{model_dir}: trained already, to step {config.recipe.steps}")
            return

        def train_on():
            trainer = _trainer(config, source, strategy, phase, offset, allow_other_data, report)
            check_lock()
            for line in notes.of_source(held_out) if held_out is not None else ():
                report(line)
            trainer.train(held_out)
            if strategies.is_chief(strategy):
                model_folder.save_card(model_dir, config, source.tokenizer)

        if strategies.can_lose(strategy):
            train_on()
        else:
            _with_patience(train_on, source.folder, model_dir, report)


def _check_data(
    phase: phases.PhaseOfRun,
    config: configs.ResolvedConfig,
    source: Data,
    held_out: Measured | None,
) -> None:
    """Refuses other data for a finished phase, whose folder may have no checkpoint any more."""
    if checkpoints.last_step(phase.model_dir) is None:
        return
    path = checkpoints.find(phase.model_dir, "last")
    data = {"train": resuming.data_record(source)}
    if held_out is not None:
        data["validation"] = resuming.data_record(held_out)
    resuming.check_data(path, checkpoints.load_state(path), data, config.recipe.steps)


def check(
    config: configs.Config | str | os.PathLike,
    data: Paths,
    model_dir: str | os.PathLike,
    *,
    validation_data: Paths | None = None,
    evaluate: bool = True,
    init: str | os.PathLike | None = None,
) -> None:
    """Checks that a config, its data and its initial weights belong together, as `train` does.

    Args:
      config: a config, or the path of its YAML file.
      data: the shards.
      model_dir: the model folder.
      validation_data: shards of held-out text, or a folder of BEIR.
      evaluate: whether the run will evaluate.
      init: a model folder with the initial weights.

    Raises:
      UserError: they do not belong together.
    """
    strategy = tf.distribute.get_strategy()
    parsed = config if isinstance(config, configs.Config) else configs.load(config)
    parts = list(phases.of_run(parsed, data, validation_data, paths.path(model_dir), init, "best"))
    _check_phases(parts, evaluate, strategy)


def estimate_memory(
    config: configs.Config | str | os.PathLike,
    data: Paths,
    *,
    init: str | os.PathLike | None = None,
) -> Iterator[tuple[configs.ResolvedConfig, step_memory.Estimate]]:
    """Estimates the memory that training takes on one device, without a step of it.

    Args:
      config: a config, or the path of its YAML file.
      data: the shards.
      init: a model folder with the initial weights. They are not read.

    Yields:
      The config of each phase, or of a run that has none, and its estimate.

    Raises:
      UserError: config, data and initial weights do not belong together.
    """
    strategy = tf.distribute.get_strategy()
    with tempfile.TemporaryDirectory() as folder:
        for resolved, source in _phases_of(config, data, folder, init, strategy):
            keras.backend.clear_session()
            model = strategies.build_model(resolved, strategy, resolved.recipe.lora)
            teachers.attach(model, resolved, source.tokenizer, source.manifest.max_length)
            trainer = Trainer(resolved, model, source, strategy, paths.path(folder))
            yield resolved, trainer.estimate_memory()


def estimate_tpu_memory(
    config: configs.Config | str | os.PathLike,
    data: Paths,
    topology: str,
    *,
    init: str | os.PathLike | None = None,
    find_batch: bool = False,
) -> Iterator[tuple[configs.ResolvedConfig, tpu_memory.Estimate]]:
    """Compiles the steps of a training for a TPU, which need not be there.

    Args:
      config: a config, or the path of its YAML file.
      data: the shards.
      topology: the kind of the chips and their arrangement, such as `v5e:2x2`.
      init: a model folder with the initial weights. They are not read.
      find_batch: whether to search for the largest batch that fits.

    Yields:
      The config of each phase, or of a run that has none, and what its step takes on a core.

    Raises:
      UserError: config, data and initial weights do not belong together; libtpu is not installed,
        or does not know the topology; the step has an operation that XLA lacks.
    """
    slice_ = tpu_memory.describe(topology)
    strategy = DescribedSlice(slice_.cores)
    with tempfile.TemporaryDirectory() as folder:
        for resolved, source in _phases_of(config, data, folder, init, strategy):
            find = tpu_memory.find_batch if find_batch else tpu_memory.estimate
            yield resolved, find(resolved, source, slice_)


def _phases_of(
    config: configs.Config | str | os.PathLike,
    data: Paths,
    model_dir: str,
    init: str | os.PathLike | None,
    strategy: tf.distribute.Strategy,
) -> Iterator[tuple[configs.ResolvedConfig, Data]]:
    """Yields the config and the data of each phase of a run that is not begun."""
    parsed = config if isinstance(config, configs.Config) else configs.load(config)
    with parsing.reported("--data"):
        parts = list(phases.of_run(parsed, data, None, paths.path(model_dir), init, "best"))
        yield from _all_opened(parts, False, strategy)


def _all_opened(
    parts: Sequence[phases.PhaseOfRun], evaluate: bool, strategy: tf.distribute.Strategy
) -> Iterator[tuple[configs.ResolvedConfig, Data]]:
    """Yields the config and the data of each phase, before the first step of the first one.

    Raises:
      UserError: the settings, the data and the initial weights of a phase do not belong together.
    """
    first, *later = parts
    begun, source, _ = _opened(first, evaluate, strategy, False)
    yield begun, source
    for phase in later:
        resolve.inherit(phase.config, begun)
        config, source, _ = _opened(phase.begun_by(first), evaluate, strategy, False)
        yield config, source


def _opened(
    phase: phases.PhaseOfRun, evaluate: bool, strategy: tf.distribute.Strategy, verify: bool
) -> tuple[configs.ResolvedConfig, Data, Measured | None]:
    """Returns the whole config, and the examples for training and for evaluation."""
    opened = open_shards(phase.data, "train", verify)
    resolved = resolve.resolve(phase.config, opened, phase.init)
    resolved = _on_devices(resolved, strategy, phase.model_dir)
    numerics.set_precision(resolved.recipe.precision)
    source = opened.read(resolved, training=True)
    source.check(resolved, strategy.num_replicas_in_sync)
    held_out = None
    if evaluate:
        held_out = _held_out(phase, resolved, source, strategy, verify)
        _take_metrics(source, held_out)
        notes.check_best(hooks.best_metric(resolved, source.manifest.task)[0], held_out)
    return resolved, source, held_out


@contextlib.contextmanager
def _locked(
    strategy: tf.distribute.Strategy, model_dir: AnyPath, report: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Keeps other runs from the model folder; the chief holds the lock for all workers."""
    with contextlib.ExitStack() as stack:
        check: Callable[[], None] = lambda: None  # noqa: E731
        with strategies.together(strategy):
            if strategies.is_chief(strategy):
                check = stack.enter_context(run_lock.held(model_dir, report))
        yield check


def _on_devices(
    config: configs.ResolvedConfig, strategy: tf.distribute.Strategy, model_dir: AnyPath
) -> configs.ResolvedConfig:
    """Decides what the recipe leaves to the devices; a run that goes on keeps it."""
    earlier = model_dir / model_folder.CONFIG
    if earlier.exists():
        begun = configs.load(earlier).recipe
        recipe = config.recipe
        if recipe.precision == "auto":
            recipe = dataclasses.replace(recipe, precision=begun.precision)
        if recipe.jit_compile is None:
            recipe = dataclasses.replace(recipe, jit_compile=begun.jit_compile)
        config = dataclasses.replace(config, recipe=recipe)
    return dataclasses.replace(config, recipe=numerics.suited(config.recipe, strategy))


def _with_patience(
    train_on: Callable[[], object], folder: str, model_dir: AnyPath, report: Callable[[str], None]
) -> None:
    """Trains on from the last checkpoint when a step has failed to read its batch.

    A remote file system may fail for a while. The graph of the steps cannot try again, and the
    variables may be in the middle of an update.

    Args:
      train_on: trains from the last checkpoint, or from the beginning.
      folder: the shards, for messages.
      model_dir: the model folder.
      report: takes the lines to print.

    Raises:
      UserError: there were enough tries without a new checkpoint.
    """
    patience, reached = gfile.Patience(folder), checkpoints.last_step(model_dir)
    while True:
        try:
            train_on()
            return
        except tf.errors.OpError as error:
            if not gfile.may_pass(error):
                raise
            before, reached = reached, checkpoints.last_step(model_dir)
            if reached != before:
                patience = gfile.Patience(folder)
            patience.wait(error)
            report(f"{gfile.words(error)}: training again from step {reached or 0}")


def _nothing(line: str) -> None:
    """Reports nothing."""


def _held_out(
    phase: phases.PhaseOfRun,
    config: configs.ResolvedConfig,
    source: Data,
    strategy: tf.distribute.Strategy,
    verify: bool,
) -> Measured:
    """Opens the examples for evaluation."""
    if (folder := _folder_of_beir(phase.validation_data)) is not None:
        return _collection(folder, config, source, strategy)
    held, split = phase.validation_data or phase.data, "validation"
    if config.segments is not None:
        if not phase.validation_data:
            raise UserError(
                "--validation_data is missing: name shards made of held-out text, or train without "
                "evaluation (garden train --evaluate=false, or official.main --mode=train)"
            )
        split = "train"
    held_out = open_data(held, config, split, verify)
    held_out.check(config, strategy.num_replicas_in_sync)
    check_labels(config, held_out.manifest, held_out.folder)
    if held_out.tokenizer.fingerprint != source.tokenizer.fingerprint:
        raise UserError(
            f"{held_out.folder}: made with another tokenizer than {source.folder}: make both with "
            "the same --tokenizer"
        )
    return held_out


def _folder_of_beir(validation_data: Paths | None) -> str | os.PathLike | None:
    """Returns the folder if the validation data is a folder of BEIR, else None."""
    folders = validation_data or ()
    folders = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
    return folders[0] if len(folders) == 1 and beir.is_folder(folders[0]) else None


def _collection(
    folder: str | os.PathLike,
    config: configs.ResolvedConfig,
    source: Data,
    strategy: tf.distribute.Strategy,
) -> Collection:
    """Opens the folder of BEIR that is searched for evaluation."""
    collection = Collection(folder, config, source.tokenizer, source.manifest.max_length)
    collection.check(config, strategy.num_replicas_in_sync)
    return collection


def _take_metrics(source: Data, held_out: Measured) -> None:
    """Gives the training task the metrics of the evaluated task, if the two differ."""
    task = source.manifest.task
    other = held_out if isinstance(held_out, Collection) else held_out.manifest.task
    if task is not None and other is not None:
        task = dataclasses.replace(task, metrics=other.metrics)
        source.manifest = dataclasses.replace(source.manifest, task=task)


def _trainer(
    config: configs.ResolvedConfig,
    source: Data,
    strategy: tf.distribute.Strategy,
    phase: phases.PhaseOfRun,
    data_offset: int,
    allow_other_data: bool,
    report: Callable[[str], None],
) -> Trainer:
    """Builds the model with its initial weights, writes its folder, and makes the trainer."""
    model_dir, init, checkpoint = phase.model_dir, phase.init, phase.checkpoint
    model = strategies.build_model(config, strategy, config.recipe.lora)
    taken = config.recipe.init_weights
    fresh = checkpoints.last_step(model_dir) is None
    if init and fresh:
        report(_warm_start(model, init, checkpoint, taken, source.tokenizer))
    if config.recipe.layer_states and fresh:
        source.check_encoder(layer_states.checksum(model))
    teachers.attach(model, config, source.tokenizer, source.manifest.max_length, strategy.scope)
    if strategies.is_chief(strategy):
        atomic.make_folder(model_dir)
        configs.save(config, model_dir / model_folder.CONFIG)
        source.tokenizer.save(model_dir / "tokenizer")
        task_file.save(source.manifest, model_dir)
        if fresh:
            model_folder.save_card(model_dir, config, source.tokenizer, init)
    trainer = Trainer(
        config, model, source, strategy, model_dir, allow_other_data, report, data_offset
    )
    if init and taken == "run" and fresh:
        trainer.continue_from(init, checkpoint)
    weights = trainable.described(model, config.recipe)
    report(
        f"{config.name}: {weights}, {source.num_examples:,} training examples, "
        f"{trainer.total_steps:,} steps of {config.recipe.batch_size} on "
        f"{strategy.num_replicas_in_sync} replica(s), {config.recipe.precision}"
    )
    if (short := schedules.shortfall(config.recipe, trainer.total_steps)) is not None:
        report(f"warning: {short}")
    return trainer


def _warm_start(
    model: Model,
    init: str | os.PathLike,
    checkpoint: str,
    weights: str,
    tokenizer: tokenizers.Tokenizer,
) -> str:
    """Copies the initial weights from another model; returns the line that reports it."""
    count, others = warm_start.start_from(model, str(init), checkpoint, weights, tokenizer)
    rest = f"; these are fresh: {', '.join(others)}" if others else ""
    return f"{count} variables set from {init} ({weights}){rest}"
