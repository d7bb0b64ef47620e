"""Checks that shard folders have what a config expects of them.

Every function raises UserError with the folder, what it has, and what the config expects.
"""

import math
import os
from collections.abc import Mapping, Sequence

from official import config as configs
from official.config import yaml_files
from official.config.corruptions import TextToTextConfig
from official.config.distillation import DistillationConfig
from official.config.heads import PooledConfig
from official.config.parts import ObjectiveConfig
from official.config.segments import TEXT_FORMATS
from official.corruption.vocabulary import check_tokens
from official.data.shards import Shards
from official.shards import features, manifest, shard_folder
from official.tasks import KINDS
from official.utils.errors import UserError, warn


def build_command(config: configs.Config, tokenizer: str | os.PathLike) -> str:
    """Returns the command that builds the shards of a config, for messages.

    Args:
      config: the config of the run, or of one of its phases.
      tokenizer: the folder of the tokenizer.
    """
    if config.segments is None:
        return f"python -m tfrecords_tools.build_task_shards ... --tokenizer={tokenizer}"
    name, _, phase = config.name.partition("_phase_")
    path = f"configs/pretrain/{name}.yaml"
    source = path if path in yaml_files.published() else "CONFIG"
    return (
        f"python -m tfrecords_tools.build_shards --config={source} "
        f"{f'--phase={phase} ' * bool(phase)}--input=TEXT --tokenizer={tokenizer} --output=NEW"
    )


def _command(shards: Shards, config: configs.Config) -> str:
    """Returns the command that builds the shards again for a config, with their own tokenizer."""
    return build_command(config, f"{shards.folders[0]}/{manifest.TOKENIZER_FOLDER}")


def _again(shards: Shards, config: configs.Config) -> str:
    """Returns the advice to build shards for a config of pretraining, for messages."""
    command = _command(shards, config)
    if (task := shards.task) is not None:
        return (
            f"these are the shards of the task {task.name}, and the config learns from text: make "
            f"shards of text ({command}), or name the config of a task"
        )
    return f"make the shards again with the config of this run ({command})"


def shards(shards: Shards, config: configs.Config, training: bool, shares: Sequence[float]) -> None:
    """Checks that shards are what the segments, the corruption and the recipe of a config expect.

    Args:
      shards: the shards of a split of all folders.
      config: the config of the run.
      training: whether they are read to train.
      shares: the share that each folder has of a batch, if any are given.
    """
    _folders(shards, training)
    _packing(shards, config)
    _bare_rows(shards, config)
    _stream(shards, config)
    _shares(shards, training, shares)
    _distinct_texts(shards, config, training)
    if shards.static_masks:
        _static_masks(shards, config)
    else:
        _drawn_masks(shards, config)


def _folders(shards: Shards, training: bool) -> None:
    """Checks that several folders can be read together."""
    first, *others = zip(shards.folders, shards.manifests, strict=True)
    for other in others:
        shard_folder.check_alike(*first, *other)
    task = shards.task
    if others and not training and task and KINDS[task.kind].method == "rank":
        raise UserError(
            f"{shards.folder}: each folder has its own candidates: evaluate and predict one "
            "ranking at a time"
        )


def _packing(shards: Shards, config: configs.Config) -> None:
    """Checks whether rows hold one example or several."""
    segments, parts = config.segments, "part_lengths" in shards.features
    if segments is not None and (segments.packing > 1) != parts:
        kind = "several examples in a row" if parts else "one example in a row"
        theirs = shards.manifest.segments if parts else None
        packing, length = (theirs.packing, theirs.row_length) if theirs else (1, None)
        row = "" if length == segments.row_length else f" --override=segments.row_length={length}"
        raise UserError(
            f"{shards.folder} has {kind}, and the config says segments.packing: "
            f"{segments.packing}: {_again(shards, config)}, or read them as they are with "
            f"--override=segments.packing={packing}{row.replace('None', 'null')}"
        )


def _bare_rows(shards: Shards, config: configs.Config) -> None:
    """Checks that rows without special tokens have the format, and the length, of the config.

    Blocks have separators at other positions than other rows, so a model of one format predicts
    poorly on the other. Rows of text alone have the number of raw tokens that the corruption needs.
    """
    segments, corruption = config.segments, config.corruption
    theirs = shards.manifest.segments.format if shards.manifest.segments else None
    if segments is None:
        return
    if theirs != segments.format:
        if {"blocks", *TEXT_FORMATS} & {theirs, segments.format}:
            raise UserError(
                f"{shards.folder} has shards of segments.format: {theirs}, and the config says "
                f"{segments.format}: {_again(shards, config)}, or name a config with this format"
            )
        return
    raw = shards.manifest.max_length
    if theirs not in TEXT_FORMATS or not isinstance(corruption, TextToTextConfig):
        return
    if raw != corruption.row_length(segments.max_length):
        raise UserError(
            f"{shards.folder} has rows of {raw} raw tokens, and corruption.type: "
            f"{corruption.type} needs {corruption.row_length(segments.max_length)} for "
            f"segments.max_length: {segments.max_length}: {_again(shards, config)}"
        )


def _stream(shards: Shards, config: configs.Config) -> None:
    """Checks that streams have as many rows as the config, and the same number in all folders."""
    theirs, ours = shards.manifest.segments, config.segments
    stream = shards.rows is not None
    if ours is not None and (stream or ours.format == "stream"):
        for name in ("format", "reuse_length", "backward", "sentences"):
            shards_say, config_says = getattr(theirs, name, None), getattr(ours, name)
            if shards_say != config_says:
                kind = "whose rows continue from batch to batch" if stream else "of single rows"
                raise UserError(
                    f"{shards.folder} has shards {kind}, with segments.{name}: {shards_say}, and "
                    f"the config says {config_says}: {_again(shards, config)}, or name a config "
                    "for such shards"
                )
    if not stream:
        return
    counts = sorted({each.segments.rows for each in shards.manifests if each.segments})
    if len(counts) > 1:
        raise UserError(
            f"{shards.folder} are streams of {' and '.join(map(str, counts))} rows, which cannot "
            "be read one after the other: make all with the same segments.rows"
        )
    if config.recipe.bucket_lengths:
        raise UserError(
            f"{shards.folder} is a stream, whose rows all have one length: remove "
            "recipe.bucket_lengths"
        )


def _shares(shards: Shards, training: bool, shares: Sequence[float]) -> None:
    """Checks that folders can have the shares of the batches that are given, if any are."""
    if not all(0 < share < math.inf for share in shares):
        raise UserError(f"{shards.folder}: shares {', '.join(map(str, shares))}: all must exceed 0")
    if not shares:
        return
    if not training:
        raise UserError(f"{shards.folder}: shares are not supported outside training: remove them")
    if shards.manifest.task:
        raise UserError(
            f"{shards.folder}: folders of one task cannot have shares of a batch: remove them, or "
            "give each folder a task of its own (build_task_shards --task_name)"
        )
    if shards.rows is not None:
        raise UserError(
            f"{shards.folder} is a stream, each row of which continues one text, so folders cannot "
            "have shares of a batch: make one stream of the texts of all corpora"
        )


def _distinct_texts(shards: Shards, config: configs.Config, training: bool) -> None:
    """Checks that the texts of examples are known, if no text may stand twice in a batch."""
    if training and config.recipe.distinct_texts and "text_hashes" not in shards.features:
        raise UserError(
            f"{shards.folder} has no text_hashes, which recipe.distinct_texts needs: name shards "
            "of a task of the kind embedding, or remove it"
        )


def _static_masks(shards: Shards, config: configs.Config) -> None:
    """Checks that the config has static masks, and as many predictions as the shards."""
    _expects_static(shards, config)
    corruption = shards.manifest.corruption
    assert corruption is not None, "static masks have a corruption"
    theirs = corruption.max_predictions
    ours = getattr(config.corruption, "max_predictions", theirs)
    if ours != theirs:
        raise UserError(
            f"{shards.folder} was made with corruption.max_predictions: {theirs}, and the config "
            f"says {ours}: its masks are static, so take the same number, by "
            f"--override=corruption.max_predictions={theirs}"
        )


def _drawn_masks(shards: Shards, config: configs.Config) -> None:
    """Checks that the shards and their tokenizer have what the corruption reads."""
    _expects_static(shards, config)
    if (corruption := config.corruption) is None:
        return
    for name in sorted(corruption.needs() - shards.features):
        who = f"unit: {corruption.unit}" if corruption.unit else f"type: {corruption.type}"
        raise UserError(
            f"{shards.folder} has no {name}, which corruption.{who} needs: make shards with a "
            f"lexicon ({_command(shards, config)} {features.LEXICONS[name]}=FILE), or hide other "
            "units: --override=corruption.unit=word"
        )
    check_tokens(corruption, shards.tokenizer, f"the tokenizer of {shards.folder}")


def _expects_static(shards: Shards, config: configs.Config) -> None:
    """Checks that shards have static masks if the config says so, and none if not."""
    if config.segments is not None and config.segments.static_masks != shards.static_masks:
        kind = "static masks" if shards.static_masks else "no static masks"
        raise UserError(
            f"{shards.folder} has {kind}, and the config says segments.static_masks: "
            f"{str(config.segments.static_masks).lower()}: {_again(shards, config)}, or read them "
            f"as they are with --override=segments.static_masks={str(shards.static_masks).lower()}"
        )


def objectives(shards: Shards, fields: frozenset[str], config: configs.Config) -> None:
    """Checks that the batches have the fields that the objectives read."""
    folder, split = shards.folder, shards.split
    _windows(shards, config)
    for objective in config.objectives:
        if lacking := sorted(objective.needs() - fields):
            if config.segments is not None:
                raise UserError(_lacking(shards, objective, lacking, config))
            if shards.task is None and manifest.TARGETS & {*lacking}:
                raise UserError(
                    f"{folder} has shards of text, and the objective {objective.type} learns "
                    f"{', '.join(lacking)} of a task: name the shards of a task "
                    "(tfrecords_tools.build_task_shards makes them), or a config of pretraining"
                )
            raise UserError(
                f"{folder}: the {split} split does not give {', '.join(lacking)}, which "
                f"{objective.type} needs; it gives {', '.join(sorted(fields))}: name other "
                "shards, or other objectives"
            )


def _windows(shards: Shards, config: configs.Config) -> None:
    """Checks that the objectives join the outputs of texts in windows, and have some to join."""
    folder = shards.folder
    for i, objective in enumerate(config.objectives):
        if shards.windows and not isinstance(objective, PooledConfig | DistillationConfig):
            raise UserError(
                f"{folder} has texts in windows, and objectives.{i}: {objective.type} does not "
                "join them: make the shards again without --windows, or remove the objective"
            )
        join = objective.join if isinstance(objective, PooledConfig) else None
        if not shards.windows and join is not None:
            raise UserError(
                f"{folder} has no texts in windows, which objectives.{i}.join: {join} "
                "is for: make the shards again with build_task_shards --windows, or remove join"
            )
    if shards.windows and config.recipe.layer_states:
        raise UserError(
            f"{folder} has texts in windows, and recipe.layer_states has the states of single "
            "rows: make the shards again without --windows, or remove recipe.layer_states"
        )


def _lacking(
    shards: Shards, objective: ObjectiveConfig, lacking: Sequence[str], config: configs.Config
) -> str:
    """Returns the message about shards of text without what an objective reads."""
    segments = shards.manifest.segments
    form = segments and f" (segments.format: {segments.format}, relation: {segments.relation})"
    others = [f"{{type: {other.type}}}" for other in config.objectives if other != objective]
    alone = f", or train without it: --override='objectives=[{', '.join(others)}]'"
    return (
        f"{shards.folder} has no {', '.join(lacking)}{form or ''}, which the objective "
        f"{objective.type} reads: {_again(shards, config)}{alone * bool(others)}"
    )


def positions(folder: str, longest: int, config: configs.ResolvedConfig) -> None:
    """Checks that the encoder has positions for the longest sequence, in tokens."""
    limit = config.encoder.max_positions
    flag = "--max_length" if config.segments is None else "--override=segments.max_length"
    if longest > limit:
        raise UserError(
            f"{folder}: examples have up to {longest} tokens, and the encoder has positions for "
            f"{limit} (encoder.max_positions): make the shards again with {flag}={limit} or less, "
            "or take an encoder with more positions"
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
    """Returns the labels that an objective learns: those of its task, or those of all tasks."""
    if not objective.takes_labels:
        return ()
    labels = labels or {}
    if task := objective.task:
        return labels.get(task, ())
    return next(iter(labels.values())) if len(set(labels.values())) == 1 else ()


def task_labels(content: manifest.Manifest) -> dict[str, tuple[str, ...]]:
    """Returns the labels of each task of a manifest, by the name of the task."""
    tasks = content.task.by_name if content.task else {}
    return {name: task.labels for name, task in tasks.items()}


def check_labels(config: configs.Config, content: manifest.Manifest, folder: str) -> None:
    """Checks that the labels of the data are those of a trained model.

    The names may differ, as they do for converted models: a warning then says which class is taken
    for which. The number of labels must be the same, and the same names must have the same ids.

    Args:
      config: the config of the model.
      content: the manifest of the data.
      folder: the folder of the data, for messages.

    Raises:
      UserError: the labels differ.
    """
    for objective in config.objectives:
        ours, labels = objective.labels, labels_for(objective, task_labels(content))
        if not ours or not labels or ours == labels:
            continue
        pairs = list(zip(ours, labels, strict=False))
        moved = any(mine != other and mine in labels for mine, other in pairs)
        if len(ours) != len(labels) or moved:
            raise UserError(
                f"{folder}: its labels are {', '.join(labels)}, and the model knows "
                f"{', '.join(ours)}: name the shards of the model's own task"
            )
        shown = ", ".join(f"{mine} = {other}" for mine, other in pairs if mine != other)
        warn(f"{folder}: the classes of the model are those of the data by their order: {shown}")
