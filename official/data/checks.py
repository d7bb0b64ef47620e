"""Checks that shard folders have what a config expects of them.

Every function raises UserError with the folder, what it has, and what the config expects.
"""

import math
import os
from collections.abc import Mapping, Sequence

from official import config as configs
from official.config.segments import TEXT_FORMATS
from official.data.batches import STATIC_MASKS
from official.shards import features as feature_names
from official.shards import manifest, shard_folder
from official.utils.errors import UserError


def folders(
    paths: Sequence[str | os.PathLike], manifests: Sequence[manifest.Manifest], training: bool
) -> None:
    """Checks that several folders can be read together."""
    for path, other in zip(paths[1:], manifests[1:], strict=True):
        shard_folder.check_alike(paths[0], manifests[0], path, other)
    task = manifests[0].task
    if len(paths) > 1 and not training and task and task.kind == "ranking":
        raise UserError(
            f"{', '.join(map(str, paths))}: each folder lists candidates of its own: evaluate and "
            "predict one ranking at a time"
        )


def shares(
    folder: str, content: manifest.Manifest, given: Sequence[float], training: bool, stream: bool
) -> None:
    """Checks that folders can have the shares of the batches that are given, if any are."""
    if not all(0 < share < math.inf for share in given):
        raise UserError(f"{folder}: shares {', '.join(map(str, given))}: all must be above 0")
    if given and not training:
        raise UserError(f"{folder}: shares are of training: name the folders without them")
    if given and content.task:
        raise UserError(
            f"{folder}: shares are of corpora: name the folders of tasks without them; "
            "recipe.task_sampling says how often each task is drawn"
        )
    if given and stream:
        raise UserError(
            f"{folder} is a stream, each row of which continues one text, so folders cannot have "
            "shares of a batch: make one stream of the texts of all corpora"
        )


def static_masks(
    folder: str, content: manifest.Manifest, features: frozenset[str], config: configs.Config
) -> bool:
    """Returns whether the masks are static; refuses them if the config expects otherwise."""
    static = STATIC_MASKS <= features
    segments, corruption = config.segments, config.corruption
    if segments is not None and segments.static_masks != static:
        kind = "static masks" if static else "no static masks"
        raise UserError(
            f"{folder} has {kind}, and the config says segments.static_masks: "
            f"{str(segments.static_masks).lower()}: change the config, or make the shards "
            "again with it"
        )
    if not static:
        return False
    theirs = content.corruption.max_predictions
    ours = getattr(corruption, "max_predictions", theirs)
    if ours != theirs:
        raise UserError(
            f"{folder} was made with corruption.max_predictions: {theirs}, and the config "
            f"says {ours}: its masks are static, so take the same number"
        )
    return True


def units(folder: str, features: frozenset[str], config: configs.Config) -> None:
    """Checks that the shards have the features that the corruption reads."""
    if (corruption := config.corruption) is None:
        return
    for name in sorted(corruption.needs() - features):
        raise UserError(
            f"{folder} has no {name}, which corruption.unit: {corruption.unit} is known "
            f"by: make the shards again, with the lexicon ({feature_names.LEXICONS[name]}=FILE)"
        )


def packing(folder: str, features: frozenset[str], config: configs.Config) -> None:
    """Checks whether rows hold one example or several."""
    segments, parts = config.segments, "part_lengths" in features
    if segments is not None and (segments.packing > 1) != parts:
        kind = "several examples in a row" if parts else "one example in a row"
        raise UserError(
            f"{folder} has {kind}, and the config says segments.packing: "
            f"{segments.packing}: change the config, or make the shards again with it"
        )


def bare_rows(folder: str, content: manifest.Manifest, config: configs.Config) -> None:
    """Checks that rows without special tokens have the format, and the length, of the config.

    Blocks have separators at other positions than other rows, so a model of one format predicts
    poorly on the other. Rows of text alone have the number of raw tokens that the corruption needs.
    """
    segments, theirs = config.segments, content.segments.format if content.segments else None
    if segments is None:
        return
    if theirs == segments.format:
        if theirs in TEXT_FORMATS and config.corruption is not None:
            _raw_tokens(folder, content, config)
        return
    if {"blocks", *TEXT_FORMATS} & {theirs, segments.format}:
        raise UserError(
            f"{folder} has shards of segments.format: {theirs}, and the config says "
            f"{segments.format}: change the config, or make the shards again with it"
        )


def _raw_tokens(folder: str, content: manifest.Manifest, config: configs.Config) -> None:
    """Checks that rows of text alone have the length that the corruption needs."""
    wanted = config.corruption.row_length(config.segments.max_length)
    if not config.corruption.reads_rows_of(content.max_length, config.segments.max_length):
        raise UserError(
            f"{folder} has rows of {content.max_length} raw tokens, and corruption.type: "
            f"{config.corruption.type} needs {wanted} for segments.max_length: "
            f"{config.segments.max_length}: make the shards again with this config"
        )


def stream_rows(
    folder: str, config: configs.Config, manifests: Sequence[manifest.Manifest]
) -> int | None:
    """Returns the number of rows of a stream; None if the shards are no stream.

    Args:
      folder: the folders, for messages.
      config: the config, whose segments and recipe are used.
      manifests: the manifests of the folders, which have the same features.

    Raises:
      UserError: the shards do not match the config's `segments`, or have different numbers of rows.
    """
    all_settings = [each.segments for each in manifests]
    theirs, ours = all_settings[0], config.segments
    stream = theirs is not None and theirs.format == "stream"
    if ours is not None and (stream or ours.format == "stream"):
        kind = "row-continuous" if stream else "shuffled, not row-continuous,"
        for name in ("format", "reuse_length", "backward", "sentences"):
            shards_say, config_says = getattr(theirs, name, None), getattr(ours, name)
            if shards_say != config_says:
                raise UserError(
                    f"{folder} has {kind} shards of segments.{name}: {shards_say}, and the "
                    f"config says {config_says}: change the config, or make the shards again "
                    "with it"
                )
    if not stream:
        return None
    counts = sorted({settings.rows for settings in all_settings})
    if len(counts) > 1:
        raise UserError(
            f"{folder} are streams of {' and '.join(map(str, counts))} rows, which cannot be read "
            "one after the other: make all with the same segments.rows"
        )
    if config.recipe.bucket_lengths:
        raise UserError(
            f"{folder} is a stream, whose rows are all of one length: leave out "
            "recipe.bucket_lengths"
        )
    return counts[0]


def objectives(folder: str, split: str, fields: frozenset[str], config: configs.Config) -> None:
    """Checks that the batches have the fields that the objectives read."""
    for objective in config.objectives:
        if lacking := sorted(objective.needs() - fields):
            raise UserError(
                f"{folder}: the {split} split does not give {', '.join(lacking)}, which "
                f"{objective.type} needs; it gives {', '.join(sorted(fields))}: name other "
                "shards, or other objectives"
            )


def positions(folder: str, longest: int, config: configs.Config) -> None:
    """Checks that the encoder has positions for the longest sequence, in tokens."""
    limit = getattr(config.encoder, "max_positions", None)
    if limit and longest > limit:
        raise UserError(
            f"{folder}: examples have up to {longest} tokens, and the encoder has positions for "
            f"{limit} (encoder.max_positions): make the shards again with max_length {limit} or "
            "less, or take an encoder with more positions"
        )


def batch_parts(batch_size: int, replicas: int, accumulation: int) -> None:
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


def labels_for(objective, labels: Mapping[str, tuple[str, ...]] | None) -> tuple[str, ...]:
    """Returns the labels that an objective learns: those of its task, or of the only task."""
    labels = labels or {}
    if task := getattr(objective, "task", ""):
        return labels.get(task, ())
    return next(iter(labels.values()), ()) if len(labels) == 1 else ()


def task_labels(content: manifest.Manifest) -> dict[str, tuple[str, ...]]:
    """Returns the labels of each task of a manifest, by the name of the task."""
    tasks = content.task.by_name if content.task else {}
    return {name: task.labels for name, task in tasks.items()}


def check_labels(config: configs.Config, content: manifest.Manifest, folder: str) -> None:
    """Checks that the labels of the data are those of a trained model.

    The names may differ, as they do for converted models. The number of labels must be the same,
    and the same names must have the same ids.

    Args:
      config: the config of the model.
      content: the manifest of the data.
      folder: the folder of the data, for messages.

    Raises:
      UserError: the labels differ.
    """
    for objective in config.objectives:
        ours, labels = getattr(objective, "labels", ()), labels_for(objective, task_labels(content))
        if not ours or not labels:
            continue
        if len(ours) != len(labels) or (ours != labels and set(ours) == set(labels)):
            raise UserError(
                f"{folder}: its labels are {', '.join(labels)}, and the model knows "
                f"{', '.join(ours)}: name the shards of the model's own task"
            )
