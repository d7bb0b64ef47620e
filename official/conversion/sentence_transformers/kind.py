"""The base class of the kinds of folders of sentence-transformers."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from official import config as configs
from official.config.parts import ObjectiveConfig
from official.conversion.converted_model import Converted
from official.conversion.sentence_transformers.folder import DEFAULT_TYPE, MODULES, ROUTER, Folder
from official.saving.model_folder import ModelFolder
from official.tokenizers import folder_keys
from official.utils.errors import UserError
from official.utils.paths import AnyPath

TASK = "transformer_task"


class ReadModel(Protocol):
    """Reads the files of transformers in a folder; `keys` are added to its config.json."""

    def __call__(  # noqa: D102
        self, folder: AnyPath, keys: Mapping[str, Any] | None = None
    ) -> Converted: ...


class Kind:
    """A kind of folders: how it is recognized, read and written.

    A kind is a subclass with these attributes, and one instance of it is a row of `kinds.KINDS`.

    Attributes:
      model_type: the name of the kind in `config_sentence_transformers.json`.
      chains: the supported chains of modules, by the names of their classes.
      query_chains: those of queries, which a Router has.
      modules: the same in words, for messages.
      task: what the Transformer computes, the `transformer_task` of its settings.
      reads: the keys of these settings that the kind reads, beside the length.
    """

    model_type: ClassVar[str] = DEFAULT_TYPE
    chains: ClassVar[Sequence[tuple[str, ...]]]
    query_chains: ClassVar[Sequence[tuple[str, ...]]] = ((),)
    modules: ClassVar[str]
    task: ClassVar[str] = "feature-extraction"
    reads: ClassVar[Collection[str]] = ()

    def describes(self, folder: Folder) -> bool:
        """Returns whether a folder is of this kind; the first kind in the table that says so is."""
        return bool(folder.modules) and folder.model_type == self.model_type

    def check(self, folder: Folder) -> None:
        """Refuses modules, and settings of the Transformer, that are not supported.

        Raises:
          UserError: the chain is none of `chains`, or the Transformer has another task or an
            unknown key.
        """
        if folder.chain not in self.chains:
            raise UserError(
                f"{folder.path / MODULES}: the modules are {', '.join(folder.chain) or 'none'}: "
                f"{self.modules} are supported"
            )
        queries = tuple(module.name for module in folder.queries)
        if queries not in self.query_chains:
            known = " or ".join(", ".join(chain) for chain in self.query_chains if chain)
            raise UserError(
                f"{folder.path / ROUTER}: queries have the modules {', '.join(queries)}: "
                f"{known or f'a {self.model_type} with a Router is not supported'}"
                f"{' is supported' if known else ''}"
            )
        settings, source = folder.transformer()
        others = {key: value for key, value in settings.items() if key not in self.reads}
        folder_keys.check(folder_keys.LENGTHS, others, source)
        if settings.get(TASK) not in (None, self.task):
            raise UserError(
                f"{source}: {TASK} is {settings[TASK]!r}, but that of a {self.model_type} is "
                f"{self.task!r}"
            )

    def read(self, folder: Folder, read_model: ReadModel) -> Converted:
        """Reads a folder whose chain is supported.

        Args:
          folder: the folder.
          read_model: reads the files of transformers of its Transformer.

        Raises:
          UserError: a file is missing or damaged, or a setting is not supported.
        """
        raise NotImplementedError

    def is_of(self, source: ModelFolder) -> bool:
        """Returns whether a model folder is written as this kind; the first kind decides."""
        raise NotImplementedError

    def network(self, config: configs.ResolvedConfig) -> configs.ResolvedConfig:
        """Returns the config of the part of a model that is written as files of transformers."""
        return config

    def variables(self, variables: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Returns the variables of this part by their paths in `network`."""
        return variables

    def max_length(self, source: ModelFolder) -> int:
        """Returns the number of tokens to which the written model cuts texts."""
        return source.max_length

    def places(self, source: ModelFolder) -> Sequence[str]:
        """Returns the folder of the files of transformers, and folders of the tokenizer alone.

        "" is the whole folder.
        """
        return ("",)

    def write(
        self,
        source: ModelFolder,
        variables: Mapping[str, np.ndarray],
        max_length: int,
        folder: AnyPath,
    ) -> None:
        """Writes the files beside those of transformers.

        Args:
          source: the model folder.
          variables: the variables of the model by path.
          max_length: what `max_length` returns.
          folder: the folder of `save_pretrained`.

        Raises:
          UserError: sentence-transformers has no such model.
        """
        raise NotImplementedError


def with_objective(
    converted: Converted, objective: ObjectiveConfig, variables: Mapping[str, np.ndarray]
) -> Converted:
    """Returns a converted model with one more objective and its variables."""
    config = converted.config
    return dataclasses.replace(
        converted,
        config=dataclasses.replace(config, objectives=(*config.objectives, objective)),
        variables={**converted.variables, **variables},
    )


def without(config: configs.ResolvedConfig, kind: type[ObjectiveConfig]) -> configs.ResolvedConfig:
    """Returns a config without the objectives of a kind that transformers has no heads for."""
    kept = tuple(o for o in config.objectives if not isinstance(o, kind))
    return dataclasses.replace(config, objectives=kept)
