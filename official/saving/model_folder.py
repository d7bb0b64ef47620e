"""Reads and writes model folders: config, tokenizer, weights and model card."""

import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from official import config as configs
from official import tokenizers
from official.modeling.layers import low_rank
from official.modeling.model import Model
from official.saving import (
    checkpoints,
    embedding_settings,
    generation_settings,
    metrics_log,
    model_card,
    named_arrays,
    task_file,
)
from official.shards import manifest
from official.utils import atomic, json_files, keras_private, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

CONFIG = "config.yaml"


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """What a model folder has, read once; its weights are read when the model is built.

    Attributes:
      path: the folder.
      config: the config of the run that made the model.
      tokenizer: the tokenizer of the model.
      max_length: the length of the longest training sequence, or else the maximum of the encoder.
        Where the training is unknown, the length of the vectors of texts comes first, and the
        tokenizer of a converted model may cut texts earlier than the encoder.
      task: what `task.json` has of the training data; empty if unknown, as in pretraining.
      generation: the defaults of generation.
      embedding: the settings of the vectors of texts.
      has_embedding: whether a file has such settings.
      variables: reads the variables of the checkpoint by path, into a dictionary of the caller's,
        and says where they are from.
    """

    path: AnyPath
    config: configs.ResolvedConfig
    tokenizer: tokenizers.Tokenizer
    max_length: int
    task: Mapping[str, Any]
    generation: generation_settings.GenerationDefaults
    embedding: embedding_settings.EmbeddingSettings
    has_embedding: bool
    variables: Callable[[], tuple[dict[str, np.ndarray], str]]

    @classmethod
    def open(cls, model_dir: str | os.PathLike, checkpoint: str = "best") -> "ModelFolder":
        """Reads a model folder.

        Args:
          model_dir: the folder.
          checkpoint: `best` (the last one if there was no evaluation), `last`, a step or a path.

        Raises:
          UserError: it is not a model folder, a file is damaged, or its parts do not belong
            together.
        """

        def variables() -> tuple[dict[str, np.ndarray], str]:
            loaded = checkpoints.load(path, checkpoint)
            return dict(loaded.variables), str(loaded.path)

        path = paths.path(model_dir)
        config = config_of(path)
        tokenizer = tokenizers.load(path / "tokenizer")
        if tokenizer.vocab_size > (config.encoder.vocab_size or 0):
            raise UserError(
                f"{path / 'tokenizer'} has {tokenizer.vocab_size} pieces, but encoder.vocab_size "
                f"in config.yaml is {config.encoder.vocab_size}: the tokenizer of another model?"
            )
        task, embedding = task_file.read(path), embedding_settings.read(path, config)
        return cls(
            path=path,
            config=config,
            tokenizer=tokenizer,
            max_length=max_length(path, config, tokenizer, task, embedding),
            task=task,
            generation=generation_settings.read(path),
            embedding=embedding,
            has_embedding=embedding_settings.file(path).exists(),
            variables=variables,
        )

    def model(self, precision: str = "float32", finished: bool = False) -> Model:
        """Builds the model with the weights of the checkpoint; the arguments are those of `build`.

        Raises:
          UserError: the checkpoint is damaged, or of another model.
        """
        variables, source = self.variables()
        # The shapes are checked before the variables take memory.
        with keras_private.uninitialized_variables():
            model = build(self.config, precision, finished)
        named_arrays.initialize(model.variables_by_path(), variables, source)
        return model


def max_length(
    path: AnyPath,
    config: configs.ResolvedConfig,
    tokenizer: tokenizers.Tokenizer,
    task: Mapping[str, Any],
    embedding: embedding_settings.EmbeddingSettings,
) -> int:
    """Returns `ModelFolder.max_length`; the arguments are its other attributes."""
    positions = config.encoder.max_positions
    for length, most, what, file in (
        (task.get("max_length") or None, manifest.MAX_TOKENS, "", task_file.path(path)),
        (
            embedding.max_length,
            positions,
            ", the positions of the encoder",
            embedding_settings.file(path),
        ),
    ):
        if length is not None:
            if type(length) is not int or not 4 <= length <= most:
                raise UserError(
                    f"{file}: max_length: {length!r} is not a whole number from 4 to {most}{what}"
                )
            return length
    if config.segments:
        return config.segments.max_length
    return min(positions, tokenizer.max_tokens or positions)


def restore(
    model_dir: str | os.PathLike, checkpoint: str = "best", finished: bool = False
) -> tuple[configs.ResolvedConfig, tokenizers.Tokenizer, Model]:
    """Returns config, tokenizer and model of a folder; see `ModelFolder`."""
    folder = ModelFolder.open(model_dir, checkpoint)
    return folder.config, folder.tokenizer, folder.model(finished=finished)


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


def write_new(
    config: configs.ResolvedConfig,
    tokenizer: tokenizers.Tokenizer,
    variables: Mapping[str, np.ndarray],
    output: str | os.PathLike,
    generation: Mapping[str, Any] | None = None,
    embedding: Mapping[str, Any] | None = None,
    task: Mapping[str, Any] | None = None,
    origin: Mapping[str, str] | None = None,
) -> None:
    """Writes a model that was not trained here: config, tokenizer and a checkpoint at step 0.

    Args:
      config: the config.
      tokenizer: the tokenizer.
      variables: the variables by path, with those of the low-rank updates of the config, if any.
      output: the folder.
      generation: the defaults of generation; None = there are none.
      embedding: the settings of the vectors of texts; None = there are none.
      task: what is known of the task of its head; None = nothing.
      origin: the license and the base of its weights, as in `model_card.text`.

    Raises:
      UserError: `output` exists.
    """
    with atomic.folder(output, CONFIG) as temporary:
        configs.save(config, temporary / CONFIG)
        tokenizer.save(temporary / "tokenizer")
        lora = config.recipe.lora if any(map(low_rank.is_update, variables)) else None
        state = {} if lora is None else {checkpoints.LORA_FACTOR: lora.factor}
        checkpoints.save(temporary, 0, dict(variables), state)
        name = paths.path(output).name
        card = model_card.text(name, config, {}, {}, {}, _mask_of(tokenizer), origin)
        (temporary / model_card.FILE).write_text(card, "utf-8")
        for path, values in (
            (generation_settings.file(temporary), generation),
            (embedding_settings.file(temporary), embedding),
            (task_file.path(temporary), task),
        ):
            if values:
                with path.open("w", encoding="utf-8") as stream:
                    json_files.dump(values, stream)


def save_card(
    model_dir: AnyPath,
    config: configs.ResolvedConfig,
    tokenizer: tokenizers.Tokenizer,
    init: str | os.PathLike | None = None,
) -> None:
    """Writes `README.md` of a model folder, unless there is one that this program did not write.

    If the last checkpoint is damaged, the file stays as it is. The license and the base are those
    of the card of `init`, the folder of the initial weights; None = those that the file has.
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
        evaluations = _evaluations(model_dir)
        chosen = [r for r in evaluations if best and r.step == best["step"]] or evaluations[-1:]
        metrics = chosen[-1].metrics if chosen else {}
    card = model_card.text(
        model_dir.name, config, task_file.read(model_dir), state, metrics, _mask_of(tokenizer),
        model_card.origin_of(path if init is None else paths.path(init) / model_card.FILE),
    )  # fmt: skip
    with atomic.file(path) as stream:
        stream.write(card)


def described(model_dir: AnyPath, config: configs.ResolvedConfig, checkpoint: str) -> list[str]:
    """Returns paragraphs about a checkpoint for the card of a folder that is made of it.

    They are the table of its card, and the metrics of its step with the command that measures them.
    """
    state = checkpoints.load_state(checkpoints.find(model_dir, checkpoint))
    step = state["step"]
    found = next((e.metrics for e in reversed(_evaluations(model_dir)) if e.step == step), {})
    measured = model_card.measured(found, step)
    if measured:
        command = (
            f"python -m official.main --mode=eval --model_dir={model_dir} --data=SHARDS "
            f"--checkpoint={step}"
        )
        measured.append(f"```\n{command}\n```")
    return [model_card.facts(config, task_file.read(model_dir), state), *measured]


def _evaluations(model_dir: AnyPath) -> list[metrics_log.Record]:
    """Returns the records of the validation split."""
    records = metrics_log.read(model_dir) if (model_dir / metrics_log.FILE).exists() else []
    return [record for record in records if record.split == "validation"]


def _mask_of(tokenizer: tokenizers.Tokenizer) -> str | None:
    return None if tokenizer.mask_id is None else tokenizer.pieces[tokenizer.mask_id]
