"""The settings with which a model makes the vectors of texts, without TensorFlow.

The pooling and the norm of a model folder are those of its objective `sentence_embedding`, if it
has one. What `embedding.json` has comes first: `official.convert` writes it from a folder of
sentence-transformers.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from official import config as configs
from official.config.sentence_embedding import SentenceEmbeddingConfig, check_poolings
from official.utils import json_files, paths, strict
from official.utils.errors import UserError
from official.utils.names import nearest
from official.utils.paths import AnyPath

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
# The prompts of each kind of text in embedding.json, as in sentence-transformers.
PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}


@dataclasses.dataclass(frozen=True)
class EmbeddingSettings:
    """How a model makes the vectors of texts.

    Attributes:
      pooling: names of `official.modeling.layers.pooling`; the vectors of several are joined.
      size: the number of first dimensions that a vector keeps, of a model that has learned several
        `sizes`; None = all.
      normalize: whether a vector is divided by its length, after the cut.
      max_length: longer texts are cut to this number of tokens, special tokens included; None =
        the length of the model.
      prompts: texts that may stand before each text, by name.
      default_prompt: the name of the prompt that is taken if none is named; None = none is.
      include_prompt: whether the tokens of a prompt are among those that are pooled.
      similarity: how two vectors are compared; sparse ones by their product.
      max_active_dims: the most words of a sparse vector, those of the largest weights; None = all.
    """

    pooling: tuple[str, ...] = ("mean",)
    normalize: bool = False
    max_length: int | None = None
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_prompt: str | None = None
    include_prompt: bool = True
    similarity: str = "cosine"
    size: int | None = None
    max_active_dims: int | None = None

    def __post_init__(self):
        check_poolings(self.pooling)
        strict.at_least(self, 1, "size", "max_active_dims")
        if self.similarity not in SIMILARITIES:
            raise ValueError(
                f"similarity: {self.similarity!r} is not one of {', '.join(SIMILARITIES)}"
            )
        self.prompt(None)

    def with_values(
        self,
        pooling: str | Sequence[str] | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
        size: int | None = None,
        max_active_dims: int | None = None,
    ) -> "EmbeddingSettings":
        """Returns the settings with each argument that is not None in place of the old value.

        Args:
          pooling: a name, several names joined by commas, or a sequence of names.
          normalize: see the class.
          max_length: see the class.
          size: see the class.
          max_active_dims: see the class.

        Raises:
          UserError: a name is not known.
        """
        if isinstance(pooling, str):
            pooling = pooling.split(",")
        given: dict[str, Any] = {
            "pooling": None if pooling is None else tuple(pooling),
            "normalize": normalize,
            "max_length": max_length,
            "size": size,
            "max_active_dims": max_active_dims,
        }
        try:
            return dataclasses.replace(self, **{k: v for k, v in given.items() if v is not None})
        except ValueError as error:
            raise UserError(str(error)) from None

    def prompt(self, name: str | None) -> str:
        """Returns what stands before each text; None = the default.

        Raises:
          UserError: there is no prompt of this name.
        """
        name = self.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise UserError(
                f"prompt: {name!r} is not a prompt of this model{nearest(name, self.prompts)} "
                f"(known: {known})"
            )
        return self.prompts[name]

    def described(self) -> str:
        """Describes the settings in words."""
        parts = [f"{' and '.join(self.pooling)} pooling"]
        parts += [] if self.size is None else [f"the first {self.size} dimensions"]
        parts += ["normalized"] * self.normalize
        if self.max_active_dims is not None:
            parts.append(f"at most {self.max_active_dims} words of a sparse vector")
        if self.max_length is not None:
            parts.append(f"at most {self.max_length} tokens")
        if named := [name for name, text in self.prompts.items() if text]:
            parts.append(f"prompts {', '.join(named)}")
        if self.default_prompt is not None:
            parts.append(f"{self.default_prompt} if none is named")
        if not self.include_prompt:
            parts.append("prompts are not pooled")
        return ", ".join(parts)


def prompt_of(kind: str, settings: EmbeddingSettings) -> str | None:
    """Returns the name of the prompt of a kind of text, one of `PROMPTS`; None = the default."""
    return next((name for name in PROMPTS[kind] if name in settings.prompts), None)


def read(model_dir: str | os.PathLike, config: configs.Config) -> EmbeddingSettings:
    """Reads the settings of a model folder.

    Args:
      model_dir: the folder.
      config: its config.

    Raises:
      UserError: the file is damaged, or has a setting that is not known.
    """
    return of_values(json_files.optional(file(model_dir)), config, str(file(model_dir)))


def of_values(values: Mapping[str, Any], config: configs.Config, source: str) -> EmbeddingSettings:
    """Returns the settings of what a file has, and of the objective of a config.

    Args:
      values: the content of the file.
      config: the config of the model.
      source: the name of the file, for messages.

    Raises:
      UserError: there is a setting that is not known.
    """
    objective = objective_of(config)
    if objective is not None:
        given = {"pooling": objective.poolings, "normalize": objective.normalize}
        values = {**given, **values}
    return strict.build(EmbeddingSettings, values, source)


def file(model_dir: str | os.PathLike) -> AnyPath:
    """Returns the file of the settings of a model folder."""
    return paths.path(model_dir) / "embedding.json"


def objective_of(config: configs.Config) -> SentenceEmbeddingConfig | None:
    """Returns the objective of a config that learns vectors of texts; None without one."""
    kinds = (o for o in config.objectives if isinstance(o, SentenceEmbeddingConfig))
    return next(kinds, None)
