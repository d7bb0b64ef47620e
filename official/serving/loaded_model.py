"""A model folder as an object that answers: `official.load(DIR)`.

Shapes: B batch, T length, D hidden.
"""

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from official import config as configs
from official import tokenizers
from official.modeling.model import Model
from official.saving import model_folder
from official.serving.embedder import Embedder, TokenVectors
from official.serving.generator import Generator
from official.serving.predictor import Predictor
from official.serving.sampling import Settings


class LoadedModel(Predictor):
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


def load(model_dir: str | os.PathLike, checkpoint: str = "best") -> LoadedModel:
    """Loads a model folder.

    Args:
      model_dir: made by training or by `official.convert`.
      checkpoint: `best` (the last, where no evaluation named one), `last`, a step or a path.

    Raises:
      UserError: it is not a model folder, or its parts do not fit together.
    """
    config, tokenizer, model = model_folder.restore(model_dir, checkpoint)
    max_length = model_folder.max_length(model_dir, config)
    return LoadedModel(config, tokenizer, model, max_length, model_folder.task(model_dir))
