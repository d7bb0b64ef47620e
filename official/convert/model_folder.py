"""A model read from another tool's files, and how it becomes a model folder of ours."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from official import atomic, inference, tokenizers
from official import config as configs
from official.errors import UserError
from official.training import checkpoints

# Some models have a table with rows to spare, rounded up to a multiple of at most this.
_ROUNDED_TO = 128


@dataclasses.dataclass(frozen=True)
class Converted:
    """What a reader of foreign files gives.

    Attributes:
      config: with encoder and objectives.
      tokenizer: of the model's vocabulary.
      variables: by path.
      leftover: the foreign tensors that nothing here has a place for.
    """

    config: configs.Config
    tokenizer: tokenizers.Tokenizer
    variables: Mapping[str, np.ndarray]
    leftover: Sequence[str]


def config_of(folder: Path, encoder: Any, objectives: Sequence[Any]) -> configs.Config:
    """The config of a converted model: pretraining heads come with BERT's data settings."""
    kinds = {configs.type_of(objective) for objective in objectives}
    raw: dict[str, Any] = {"name": folder.resolve().name}
    if kinds & {"masked_lm", "sentence_pair"}:
        raw["segments"] = {"format": "pairs", "max_length": min(512, encoder.max_positions)}
    if "masked_lm" in kinds:
        raw["corruption"] = {"type": "token_masks"}
    config = configs.from_dict(raw, str(folder))
    return dataclasses.replace(config, encoder=encoder, objectives=tuple(objectives))


def tokenizer_of(folder: Path, vocab_size: int, source: Path) -> tokenizers.Tokenizer:
    """Loads the WordPiece tokenizer beside the weights.

    Raises:
      UserError: there is none, or it does not fit the size that `source`, the model's config, says.
    """
    vocabulary = folder / "vocab.txt"
    if not vocabulary.exists():
        raise UserError(
            f"{vocabulary} is missing: put the model's vocabulary there, one piece a line"
        )
    tokenizer = tokenizers.load(folder)
    if not 0 <= vocab_size - tokenizer.vocab_size < _ROUNDED_TO:
        raise UserError(
            f"{vocabulary} has {tokenizer.vocab_size} pieces, {source} says vocab_size "
            f"{vocab_size}: take the vocabulary of this model (if its table has rows to spare, add "
            "lines such as [unused999] for them)"
        )
    return tokenizer


def shapes(config: configs.Config) -> dict[str, tuple[int, ...]]:
    """The shape of each variable of the model, by path."""
    variables = inference.build(config).variables_by_path()
    return {path: tuple(variable.shape) for path, variable in variables.items()}


def write(converted: Converted, output: str | os.PathLike) -> None:
    """Writes config.yaml, tokenizer/ and a checkpoint at step 0.

    Raises:
      UserError: `output` is there already.
    """
    with atomic.folder(output) as temporary:
        configs.save(converted.config, temporary / "config.yaml")
        converted.tokenizer.save(temporary / "tokenizer")
        checkpoints.save(temporary, 0, dict(converted.variables), {})
