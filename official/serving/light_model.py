"""A model of vectors that begins without TensorFlow: `official.load(DIR, runtime="litert")`."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from official.serving.light import folder
from official.serving.light.embedder import LightEmbedder
from official.serving.vectors import search
from official.utils import given_texts
from official.utils.progress import Report


class LightModel:
    """Encodes and searches texts by LiteRT, with the settings of a model folder.

    What needs more, such as another pooling or a head, is done by the model that TensorFlow loads
    at that moment.

    Attributes:
      vectors: computes the vectors.
      max_length: longer texts are cut to this number of tokens, special tokens included.
    """

    def __init__(self, embedder: LightEmbedder, load: Callable[[], Any] | None = None):
        """Wraps an embedder.

        Args:
          embedder: computes the vectors.
          load: loads the whole model, by TensorFlow; None = there are only the files for LiteRT.
        """
        self.vectors = embedder
        self.max_length = embedder.max_length
        self._load = load

    @functools.cached_property
    def whole(self) -> Any:
        """The model that TensorFlow loads.

        Raises:
          UserError: there are only the files for LiteRT.
        """
        if self._load is None:
            raise folder.no_whole_model(self.vectors.folder)
        return self._load()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.whole, name)

    def encode(
        self,
        texts: Sequence[str],
        batch_size: int = 32,
        pooling: str | Sequence[str] | None = None,
        *arguments: Any,
        normalize: bool | None = None,
        prompt: str | None = None,
        max_length: int | None = None,
        report: Report | None = None,
        **options: Any,
    ) -> Any:
        """Computes a vector for each text; see `LoadedModel.encode`.

        Args:
          texts: any number of texts.
          batch_size: the number of texts in a batch.
          pooling: with another value than that of the folder, as with other arguments than those
            named here, TensorFlow loads the model.
          *arguments: those of `LoadedModel.encode`.
          normalize: whether a vector is divided by its length; None = as the folder has it.
          prompt: the name of a prompt of the folder; None = its default prompt, if it has one.
          max_length: the number of tokens in place of `max_length` of the model.
          report: is called with lines of progress; None = there are none.
          **options: those of `LoadedModel.encode`.

        Returns:
          float32 [number of texts, D], in the order of `texts`.

        Raises:
          UserError: as there.
        """
        settings = self.vectors.settings.with_values(pooling, normalize, max_length)
        if arguments or options or not self.vectors.computes(settings):
            return self.whole.encode(
                texts, batch_size, pooling, *arguments, normalize=normalize, prompt=prompt,
                max_length=max_length, report=report, **options,
            )  # fmt: skip
        return self.vectors.texts(
            texts, settings, batch_size=batch_size, prompt=prompt, report=report
        )

    def search(
        self,
        queries: Sequence[str],
        documents: Sequence[str] | None = None,
        top_k: int = 10,
        batch_size: int = 32,
        sparse: bool | None = None,
        report: Report | None = None,
        *,
        vectors: str | os.PathLike | None = None,
        rescore: str | os.PathLike | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the documents whose vectors are nearest to those of queries, exactly.

        Arguments, results and errors are those of `LoadedModel.search`; with `vectors` or `sparse`
        TensorFlow loads the model.
        """
        if documents is None or sparse or vectors is not None or rescore is not None:
            return self.whole.search(
                queries, documents, top_k, batch_size, sparse, report, vectors=vectors,
                rescore=rescore,
            )  # fmt: skip
        given_texts.check_list(queries, "queries")
        given_texts.check_list(documents, "documents")
        best = search.nearest(
            self.vectors, queries, documents, top_k, batch_size, report, len(documents)
        )
        return best.found
