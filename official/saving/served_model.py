"""A model with everything that it needs to read text."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from official import config as configs
from official import tokenizers
from official.config.parts import EncoderConfig
from official.modeling.model import Model
from official.saving.embedding_settings import EmbeddingSettings
from official.saving.generation_settings import GenerationDefaults
from official.saving.model_folder import ModelFolder
from official.tasks import no_such_head
from official.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """A model with everything that it needs to read text.

    Attributes:
      config: the config of the run that made the model.
      tokenizer: the tokenizer of the model.
      model: the model with its weights.
      max_length: the maximum number of tokens of a sequence, special tokens included.
      task: the task of the training data (`official.saving.task_file.read`).
      generation: the defaults of generation.
      embedding: the settings of the vectors of texts.
    """

    config: configs.ResolvedConfig
    tokenizer: tokenizers.Tokenizer
    model: Model
    max_length: int
    task: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    generation: GenerationDefaults = GenerationDefaults()
    embedding: EmbeddingSettings = EmbeddingSettings()

    @classmethod
    def of(cls, folder: ModelFolder, precision: str = "float32") -> "ServedModel":
        """Reads all of a model folder; the model is finished, see `Model`."""
        return cls(
            folder.config,
            folder.tokenizer,
            folder.model(precision, finished=True),
            folder.max_length,
            folder.task,
            folder.generation,
            folder.embedding,
        )


def with_one_head(
    config: configs.ResolvedConfig, model: Model, task: str | None
) -> configs.ResolvedConfig:
    """Removes all heads but that of one task from a model; returns the config of the result.

    Raises:
      UserError: no head has the name `task`, or the model has several tasks and `task` is None.
    """
    names = [objective.task for objective in config.objectives]
    if task is None and not any(names):
        return config
    if task is None or task not in names:
        raise no_such_head(task, names)
    index = names.index(task)
    head = dataclasses.replace(config.objectives[index], task="")
    model.objectives = [model.objectives[index]]
    model.objectives[0].config = head
    return dataclasses.replace(config, objectives=(head,))


def check_max_length(max_length: int, encoder: EncoderConfig, before: str = "max_length: ") -> None:
    """Raises UserError if an encoder cannot read texts that are cut to this number of tokens.

    Args:
      max_length: the number of tokens, special tokens included.
      encoder: the config of the encoder.
      before: what stands before the number in the message.
    """
    positions = encoder.max_positions
    if not 4 <= max_length <= positions:
        raise UserError(
            f"{before}{max_length} is not from 4 to {positions}, the positions of this encoder"
        )
