"""A model with everything that it needs to read text."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from official import config as configs
from official import tokenizers
from official.modeling.model import Model
from official.serving.generation_defaults import GenerationDefaults
from official.serving.text_vectors import EmbeddingSettings


@dataclasses.dataclass(frozen=True)
class TextModel:
    """A model with everything that it needs to read text.

    Attributes:
      config: the config of the run that made the model.
      tokenizer: the tokenizer of the model.
      model: the model with its weights.
      max_length: the maximum number of tokens of a sequence, special tokens included.
      task: the task of the training data (`official.saving.model_folder.task`).
      generation: the defaults of generation.
      embedding: the settings of the vectors of texts.
    """

    config: configs.Config
    tokenizer: tokenizers.Tokenizer
    model: Model
    max_length: int
    task: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    generation: GenerationDefaults = GenerationDefaults()
    embedding: EmbeddingSettings = EmbeddingSettings()
