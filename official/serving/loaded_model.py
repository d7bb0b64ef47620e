"""A model folder as an object that answers: `official.load(DIR)`.

Shapes: B batch, T length, D hidden.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from official import config as configs
from official import tokenizers
from official.modeling import uninitialized
from official.modeling.model import Model
from official.saving import checkpoints
from official.serving.embedder import Embedder, TokenVectors
from official.serving.generator import Generator
from official.serving.predictor import Predictor
from official.serving.sampling import Settings
from official.shards import manifest
from official.utils import json_files
from official.utils.errors import UserError


class Loaded(Predictor):
    """A model and its tokenizer, ready to encode text and to say what its heads say of it.

    Attributes:
      config: of the run that made the model.
      tokenizer: text to ids and back.
      model: `official.modeling.model.Model` with the checkpoint's weights.
      max_length: longer texts are cut to this many tokens, special tokens counted.
    """

    def __init__(
        self,
        config: configs.Config,
        tokenizer: tokenizers.Tokenizer,
        model: Model,
        max_length: int,
        task: Mapping[str, Any] = MappingProxyType({}),
    ):
        super().__init__(config, tokenizer, model, max_length, task)
        self._generator: Generator | None = None
        self.embedder = Embedder(config, tokenizer, model, max_length)

    def encode(
        self,
        texts: Sequence[str],
        batch_size: int = 32,
        pooling: str = "mean",
        layer: int = -1,
    ) -> np.ndarray:
        """Gives each text a vector.

        Args:
          texts: any number of texts; those longer than `max_length` are cut.
          batch_size: how many are computed at a time; texts of like length go together.
          pooling: of a layer the `mean` over the tokens, special ones counted, the `first` or the
            `last` of them; or the `pooled` output.
          layer: 0 = the embeddings, 1 = the first layer, ...; -1 = the last one.

        Returns:
          float32 [number of texts, D], in the order of `texts`.

        Raises:
          UserError: a single text instead of a list, a pooling or a layer that is not there.
        """
        return self.embedder.texts(texts, pooling, layer, batch_size)

    def tokens(
        self, texts: Sequence[str], batch_size: int = 32, layer: int = -1
    ) -> list[TokenVectors]:
        """Gives each token of each text a vector, and says which characters it stands for.

        Args:
          texts: as for `encode`.
          batch_size: as for `encode`.
          layer: as for `encode`.

        Returns:
          For each text its tokens, special ones left out: pieces, starts, ends and vectors.

        Raises:
          UserError: a single text instead of a list, or a layer that is not there.
        """
        return self.embedder.tokens(texts, layer, batch_size)

    def generate(self, prompts: Sequence[str], batch_size: int = 8, **settings: Any) -> list[str]:
        """Lets a causal LM go on with texts.

        Args:
          prompts: any number of texts; an empty one will do.
          batch_size: how many are computed at a time.
          **settings: `max_new_tokens`, `temperature`, `top_k`, `top_p` and `seed`, as in
            `official.serving.sampling.Settings`.

        Returns:
          Each prompt with what was written to it.

        Raises:
          UserError: the model is no causal LM, a setting that cannot be, or a prompt without room
            for the new tokens.
        """
        if self._generator is None:
            self._generator = Generator(self.config, self.tokenizer, self.model)
        return self._generator.texts(prompts, Settings(**settings), batch_size)


def load(model_dir: str | os.PathLike, checkpoint: str = "best") -> Loaded:
    """Loads a model folder.

    Args:
      model_dir: made by training or by `official.convert`.
      checkpoint: `best` (the last, where no evaluation named one), `last`, a step or a path.

    Raises:
      UserError: it is not a model folder, or its parts do not fit together.
    """
    config, tokenizer, model = restore(model_dir, checkpoint)
    return Loaded(config, tokenizer, model, max_length(model_dir, config), task(model_dir))


def restore(
    model_dir: str | os.PathLike, checkpoint: str = "best", precision: str = "float32"
) -> tuple[configs.Config, tokenizers.Tokenizer, Model]:
    """Builds the model of a model folder and gives it the weights of a checkpoint.

    It computes as `build` has it.

    Raises:
      UserError: it is not a model folder, or its parts do not fit together.
    """
    model_dir = Path(model_dir)
    if not (model_dir / "config.yaml").is_file():
        raise UserError(
            f"{model_dir}: not a model folder: there is no config.yaml in it. Training makes one "
            "(--model_dir), and so does official.convert"
        )
    config = configs.load(model_dir / "config.yaml")
    tokenizer = tokenizers.load(model_dir / "tokenizer")
    if config.encoder is None:
        raise UserError(f"{model_dir / 'config.yaml'}: encoder: missing")
    if tokenizer.vocab_size > (config.encoder.vocab_size or 0):
        raise UserError(
            f"{model_dir / 'tokenizer'} has {tokenizer.vocab_size} pieces, but encoder.vocab_size "
            f"in config.yaml is {config.encoder.vocab_size}: the tokenizer of another model?"
        )
    found = checkpoints.load(model_dir, checkpoint)
    # Before there is a model of any size.
    checkpoints.check(shapes(config), found.variables, str(found.path))
    model = build(config, precision)
    checkpoints.assign(model.variables_by_path(), found.variables, str(found.path))
    return config, tokenizer, model


def build(config: configs.Config, precision: str = "float32") -> Model:
    """The model of a config for use, not for training: mixed precision is left aside.

    It computes in float32, or in float64 where it was trained in it. With the precision `bfloat16`
    the encoder is kept and computes in that, and the heads in float32.
    """
    if precision == "bfloat16":
        return Model(config, dtype="bfloat16", head_dtype="float32")
    return Model(config, dtype="float64" if config.recipe.precision == "float64" else "float32")


def shapes(config: configs.Config) -> dict[str, tuple[int, ...]]:
    """The shape of each variable of the model of a config, by path; no variable is made."""
    with uninitialized.scope():
        variables = build(config).variables_by_path()
    return {path: tuple(variable.shape) for path, variable in variables.items()}


def task(model_dir: str | os.PathLike) -> dict[str, Any]:
    """What training noted of the task: `pair`, `max_length` and more; empty where it did not."""
    path = Path(model_dir) / "task.json"
    return json_files.checked(json_files.read(path), path) if path.exists() else {}


def max_length(model_dir: str | os.PathLike, config: configs.Config) -> int:
    """The longest sequence the model was trained on, or else the longest it can take."""
    if length := task(model_dir).get("max_length"):
        if type(length) is not int or not 4 <= length <= manifest.MOST_TOKENS:
            raise UserError(
                f"{Path(model_dir) / 'task.json'}: max_length: {length!r} is not a whole number "
                f"from 4 to {manifest.MOST_TOKENS}"
            )
        return length
    return config.segments.max_length if config.segments else config.encoder.max_positions
