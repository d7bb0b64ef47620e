"""Reads and writes model folders: config, tokenizer, weights and model card."""

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from official import config as configs
from official import tokenizers
from official.modeling.model import Model
from official.saving import checkpoints, metrics_log, model_card, named_arrays, task_file
from official.shards import manifest
from official.tokenizers import file_formats
from official.utils import atomic, json_files, keras_private, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath


def restore(
    model_dir: str | os.PathLike,
    checkpoint: str = "best",
    precision: str = "float32",
    finished: bool = False,
) -> tuple[configs.ResolvedConfig, tokenizers.Tokenizer, Model]:
    """Builds the model of a model folder (see `build`) and loads the weights of a checkpoint.

    `finished` is that of `official.modeling.model.Model`.

    Raises:
      UserError: it is not a model folder, or its parts do not belong together.
    """
    model_dir = paths.path(model_dir)
    config = config_of(model_dir)
    tokenizer = tokenizers.load(model_dir / "tokenizer")
    if tokenizer.vocab_size > (config.encoder.vocab_size or 0):
        raise UserError(
            f"{model_dir / 'tokenizer'} has {tokenizer.vocab_size} pieces, but encoder.vocab_size "
            f"in config.yaml is {config.encoder.vocab_size}: the tokenizer of another model?"
        )
    loaded = checkpoints.load(model_dir, checkpoint)
    # The shapes are checked before the variables take memory.
    with keras_private.uninitialized_variables():
        model = build(config, precision, finished)
    named_arrays.initialize(model.variables_by_path(), loaded.variables, str(loaded.path))
    return config, tokenizer, model


def config_of(
    model_dir: str | os.PathLike, overrides: Sequence[str] = ()
) -> configs.ResolvedConfig:
    """Reads the config of a model folder.

    Args:
      model_dir: the folder.
      overrides: as in `config.load`.

    Raises:
      UserError: it is not a model folder, or its config has no encoder.
    """
    path = paths.path(model_dir) / CONFIG
    if not path.is_file():
        phases = (phase_folder(path.parent, number) for number in itertools.count(1))
        begun = list(itertools.takewhile(lambda phase: (phase / CONFIG).is_file(), phases))
        hint = "Training makes one (--model_dir), and so does official.convert"
        if begun:
            hint = f"Its run has not come to the last phase yet: name {begun[-1]}, or train on"
        raise UserError(f"{model_dir}: not a model folder: there is no config.yaml in it. {hint}")
    return configs.load_resolved(path, overrides)


def phase_folder(model_dir: AnyPath, number: int) -> AnyPath:
    """Returns the model folder of a phase before the last one, by its number from 1."""
    return model_dir / f"phase_{number}"


def build(
    config: configs.ResolvedConfig, precision: str = "float32", finished: bool = False
) -> Model:
    """Builds the model of a config for inference, without mixed precision.

    It computes in float32, or in float64 if it was trained in float64. With the precision
    `bfloat16` the encoder and the output of a decoder are stored and compute in bfloat16, and other
    heads in float32. `finished` is that of `Model`.
    """
    if precision == "bfloat16":
        return Model(config, dtype="bfloat16", head_dtype="float32", finished=finished)
    return Model(config, dtype=config.recipe.weights_dtype, finished=finished)


def shapes(config: configs.ResolvedConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the variables of a model by path, without making the variables."""
    with keras_private.uninitialized_variables():
        variables = build(config).variables_by_path()
    return {path: tuple(variable.shape) for path, variable in variables.items()}


def max_length(model_dir: str | os.PathLike, config: configs.ResolvedConfig) -> int:
    """Returns the length of the longest training sequence, or else the maximum of the encoder.

    Where the training is unknown, the length of `embedding.json` comes first, and the tokenizer of
    a converted model may cut texts earlier than the encoder.
    """
    if length := task_file.read(model_dir).get("max_length"):
        if type(length) is not int or not 4 <= length <= manifest.MAX_TOKENS:
            raise UserError(
                f"{task_file.path(model_dir)}: max_length: {length!r} is not a whole number "
                f"from 4 to {manifest.MAX_TOKENS}"
            )
        return length
    positions = config.encoder.max_positions
    if (length := embedding(model_dir).get("max_length")) is not None:
        if type(length) is not int or not 4 <= length <= positions:
            raise UserError(
                f"{embedding_file(model_dir)}: max_length: {length!r} is not a whole number "
                f"from 4 to {positions}, the positions of the encoder"
            )
        return length
    if config.segments:
        return config.segments.max_length
    settings = file_formats.read_settings(paths.path(model_dir) / "tokenizer")
    return min(positions, file_formats.max_tokens(settings) or positions)


CONFIG = "config.yaml"


def generation(model_dir: str | os.PathLike) -> dict[str, Any]:
    """Reads the defaults of generation; empty if there are none."""
    path = generation_file(model_dir)
    return json_files.checked(json_files.read(path), path) if path.exists() else {}


def generation_file(model_dir: str | os.PathLike) -> AnyPath:
    """Returns the file of the defaults of generation."""
    return paths.path(model_dir) / "generation.json"


def embedding(model_dir: str | os.PathLike) -> dict[str, Any]:
    """Reads the settings of the vectors of texts; empty if there are none."""
    path = embedding_file(model_dir)
    return json_files.checked(json_files.read(path), path) if path.exists() else {}


def embedding_file(model_dir: str | os.PathLike) -> AnyPath:
    """Returns the file of the settings of the vectors of texts."""
    return paths.path(model_dir) / "embedding.json"


def write_new(
    config: configs.ResolvedConfig,
    tokenizer: tokenizers.Tokenizer,
    variables: Mapping[str, np.ndarray],
    output: str | os.PathLike,
    generation: Mapping[str, Any] | None = None,
    embedding: Mapping[str, Any] | None = None,
) -> None:
    """Writes a model that was not trained here: config, tokenizer and a checkpoint at step 0.

    Args:
      config: the config.
      tokenizer: the tokenizer.
      variables: the variables by path.
      output: the folder.
      generation: the defaults of generation; None = there are none.
      embedding: the settings of the vectors of texts; None = there are none.

    Raises:
      UserError: `output` exists.
    """
    with atomic.folder(output, CONFIG) as temporary:
        configs.save(config, temporary / CONFIG)
        tokenizer.save(temporary / "tokenizer")
        checkpoints.save(temporary, 0, dict(variables), {})
        name = paths.path(output).name
        card = model_card.text(name, config, {}, {}, {}, _mask_of(tokenizer))
        (temporary / model_card.FILE).write_text(card, "utf-8")
        for path, values in (
            (generation_file(temporary), generation),
            (embedding_file(temporary), embedding),
        ):
            if values:
                with path.open("w", encoding="utf-8") as stream:
                    json_files.dump(values, stream)


def save_card(
    model_dir: AnyPath, config: configs.ResolvedConfig, tokenizer: tokenizers.Tokenizer
) -> None:
    """Writes `README.md` of a model folder, unless somebody has one of their own there.

    If the last checkpoint is damaged, the file stays as it is.
    """
    path = model_dir / model_card.FILE
    if path.exists() and model_card.MARK not in path.read_text("utf-8"):
        return
    state: Mapping[str, Any] = {}
    metrics: Mapping[str, float] = {}
    if checkpoints.last_step(model_dir) is not None:
        try:
            state = checkpoints.load_state(checkpoints.find(model_dir, "last"))
        except UserError:
            return
        best = checkpoints.best(model_dir)
        state = {**state, "best": best or state.get("best")}
        records = metrics_log.read(model_dir) if (model_dir / metrics_log.FILE).exists() else []
        evaluations = [record for record in records if record.split == "validation"]
        chosen = [r for r in evaluations if best and r.step == best["step"]] or evaluations[-1:]
        metrics = chosen[-1].metrics if chosen else {}
    card = model_card.text(
        model_dir.name, config, task_file.read(model_dir), state, metrics, _mask_of(tokenizer)
    )
    with atomic.file(path) as stream:
        stream.write(card)


def _mask_of(tokenizer: tokenizers.Tokenizer) -> str | None:
    return None if tokenizer.mask_id is None else tokenizer.pieces[tokenizer.mask_id]
