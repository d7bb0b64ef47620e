"""Whether a run may go on: with the data that it began with, from the same place on all workers."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from official import config as configs
from official.data import ShardDataset
from official.distribution import strategies
from official.saving import checkpoints, model_folder
from official.utils.errors import UserError

Found = checkpoints.Checkpoint | None  # None = there is no checkpoint


def description(source: ShardDataset) -> dict[str, str | int]:
    """What a checkpoint says of the data."""
    return {
        "folder": source.folder,
        "examples": source.num_examples,
        "fingerprint": source.fingerprint,
    }


def check_data(
    found: checkpoints.Checkpoint, data: Mapping[str, Mapping], total_steps: int
) -> None:
    """Refuses a checkpoint of other data; older ones do not say of which data they are.

    Args:
      found: the checkpoint.
      data: the `description` of each split now, by the name of the split.
      total_steps: that are planned now.

    Raises:
      UserError: a split has changed.
    """
    there = found.state.get("data", {})
    for split, ours in data.items():
        theirs = there.get(split, ours)
        if theirs["fingerprint"] != ours["fingerprint"]:
            raise UserError(
                f"{found.path}: this run has other {split} data: {theirs['folder']} with "
                f"{theirs['examples']:,} examples there ({found.state['total_steps']:,} planned "
                f"steps), {ours['folder']} with {ours['examples']:,} examples now "
                f"({total_steps:,} planned steps). Give the data that it began with, or another "
                "--model_dir; --allow_other_data goes on with the data given now"
            )


def on_all_workers(
    strategy: tf.distribute.Strategy,
    load: Callable[[], Found],
    holds: Callable[[Found], tuple[str, Any]],
) -> Found:
    """Loads a checkpoint on every worker, and stops them all unless they then hold the same.

    Args:
      strategy: that the workers share.
      load: loads this worker's checkpoint, where there is one.
      holds: says of what was loaded where it is from, in words, and gives digests by name of all
        that must be the same.

    Raises:
      UserError: on every worker: what each of them holds, or why it cannot go on.
    """
    if strategies.num_workers(strategy) == 1:
        return load()
    found, digest = None, ""
    try:
        found = load()
        words, digests = holds(found)
        words += f" ({', '.join(f'{name} {value[:12]}' for name, value in digests.items())})"
        digest = checkpoints.digest({}, digests)
    except UserError as error:
        words = str(error)
    strategies.check_alike(strategy, words, digest)
    return found


# Changing these when a run goes on changes nothing of what it computes.
_HARMLESS = ("name", "recipe.report_every", "recipe.save_every", "recipe.keep_checkpoints",
             "recipe.eval_batch_size", "recipe.max_bad_steps", "recipe.patience")  # fmt: skip


def check_same_run(config: configs.Config, model_dir: Path) -> None:
    """Refuses to go on with a run under another config than the one it began with."""
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
