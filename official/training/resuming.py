"""Checks whether a run may be resumed: the same data and config, and the same state everywhere."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from official import config as configs
from official.data.collection import Measured
from official.distribution import strategies
from official.saving import checkpoints, model_folder, named_arrays
from official.utils.errors import UserError
from official.utils.paths import AnyPath


def data_record(source: Measured) -> dict[str, str | int]:
    """Returns the record of the data in a checkpoint."""
    return {
        "folder": source.folder,
        "examples": source.num_examples,
        "fingerprint": source.fingerprint,
    }


def check_data(
    path: AnyPath,
    state: Mapping[str, Any],
    data: Mapping[str, Mapping[str, str | int]],
    total_steps: int,
) -> None:
    """Refuses a checkpoint of other data. A split that the checkpoint has no record of is accepted.

    Args:
      path: the folder of the checkpoint.
      state: its state.
      data: the current `data_record` of each split by its name.
      total_steps: the current number of steps.

    Raises:
      UserError: a split has changed.
    """
    there = state.get("data", {})
    for split, ours in data.items():
        theirs = there.get(split, ours)
        if theirs["fingerprint"] != ours["fingerprint"]:
            raise UserError(
                f"{path}: this run has other {split} data: {theirs['folder']} with "
                f"{theirs['examples']:,} examples there ({state['total_steps']:,} "
                f"planned steps), {ours['folder']} with {ours['examples']:,} examples now "
                f"({total_steps:,} planned steps). Give the data that it began with, or another "
                "--model_dir; --allow_other_data goes on with the data given now"
            )


def on_all_workers(
    strategy: tf.distribute.Strategy,
    load: Callable[[], checkpoints.Checkpoint | None],
    describe: Callable[[checkpoints.Checkpoint | None], tuple[str, dict[str, str]]],
) -> checkpoints.Checkpoint | None:
    """Loads a checkpoint on every worker, and stops all workers if their states differ.

    Args:
      strategy: the strategy that the workers share.
      load: loads this worker's checkpoint; returns None if there is none.
      describe: returns a description of what was loaded, and digests of everything that must be
        the same on all workers.

    Raises:
      UserError: the states differ, or a worker cannot load its checkpoint. All workers raise it.
    """
    if strategies.num_workers(strategy) == 1:
        return load()
    checkpoint, digest = None, ""
    try:
        checkpoint = load()
        description, digests = describe(checkpoint)
        names = ", ".join(f"{name} {value[:12]}" for name, value in digests.items())
        description += f" ({names})"
        digest = named_arrays.digest({}, digests)
    except UserError as error:
        description = str(error)
    strategies.check_alike(strategy, description, digest)
    return checkpoint


# Keys that may change, because they have no influence on the weights.
_HARMLESS = ("name", "recipe.report_every", "recipe.save_every", "recipe.keep_checkpoints",
             "recipe.eval_batch_size", "recipe.max_bad_steps", "recipe.patience")  # fmt: skip


def check_same_run(config: configs.ResolvedConfig, model_dir: AnyPath) -> None:
    """Refuses to resume a run with another config."""
    path = model_dir / model_folder.CONFIG
    if not path.exists():
        return
    changed = [
        f"{key}: {theirs} there, {ours} now"
        for key, ours, theirs in configs.differences(config, configs.load(path))
        if key not in _HARMLESS
    ]
    if changed:
        raise UserError(
            f"{path}: this model folder was made with another config ({'; '.join(changed[:4])}"
            f"{'; ...' if len(changed) > 4 else ''}). Name another --model_dir; to start from the "
            f"weights there, give --init={model_dir}"
        )
