"""The object that MTEB's runner takes as a model (mteb 2): `official.load(DIR).for_mteb()`.

Neither mteb nor PyTorch is imported: mteb passes its own objects, and takes numpy arrays.

Shapes: N texts, M others, D size of a vector.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from official.evaluation.nearest_vectors import normalized, similarity
from official.saving import embedding_settings
from official.serving.vectors.embedder import Embedder

if TYPE_CHECKING:
    import mteb


class MTEBEncoder:
    """An encoder for `mteb.evaluate`; see mteb's `EncoderProtocol`."""

    def __init__(self, embedder: Embedder, name: str, revision: str | None = None):
        """Takes the encoder.

        Args:
          embedder: computes the vectors, with the settings of its model.
          name: the name of the results, with an organization before a slash.
          revision: the version of the results; None = a checksum of the weights and the settings.
            mteb reads results that it has for a name and a revision again.
        """
        self._embedder, self._name, self._revision = embedder, name, revision

    @property
    def revision(self) -> str:
        """The version of the results."""
        return self._revision or self._embedder.checksum(self._embedder.settings)

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        batch_size: int = 32,
        **kwargs: Any,
    ) -> np.ndarray:
        """Computes the vectors of texts.

        Args:
          inputs: batches with the list `text`, which has the title of a document too.
          task_metadata: its `name` and `type` choose the prompt; see `prompt_name`.
          hf_split: the split, which changes nothing.
          hf_subset: the subset, which changes nothing.
          prompt_type: whether the texts are queries or documents; None = neither.
          batch_size: the number of texts in a batch of the encoder.
          **kwargs: other settings of mteb, which change nothing.

        Returns:
          float32 [N, D].
        """
        del hf_split, hf_subset, kwargs
        texts = [text for batch in inputs for text in batch["text"]]
        prompt = self.prompt_name(task_metadata.name, task_metadata.type, prompt_type)
        return self._embedder.texts(texts, batch_size=batch_size, prompt=prompt)

    def prompt_name(self, task: str, task_type: str, prompt_type: Any = None) -> str | None:
        """Returns the name of the first prompt of `embedding.json` in mteb's order.

        These are `TASK-query`, `TASK`, `TYPE-query`, `TYPE` and `query`. In place of `document`
        there may be `passage` or `corpus`, as in sentence-transformers.

        Args:
          task: the name of a task, such as "STSBenchmark".
          task_type: its type, such as "STS".
          prompt_type: mteb's `PromptType`, or "query" or "document"; None = neither.

        Returns:
          The name; None = there is none, so that the default prompt is taken.
        """
        of = str(getattr(prompt_type, "value", prompt_type or ""))

        def names() -> Iterator[str]:
            for each in (task, task_type):
                yield f"{each}-{of}"
                yield each
            yield from embedding_settings.PROMPTS.get(of, ())

        return next((name for name in names() if name in self._embedder.settings.prompts), None)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Compares each vector of [N, D] with each of [M, D]; returns float32 [N, M]."""
        first, second = self._comparable(embeddings1, embeddings2)
        return similarity(first, second, self._kind)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Compares the vectors of two arrays [N, D] one by one; returns float32 [N]."""
        pairs = zip(*self._comparable(embeddings1, embeddings2), strict=True)
        return np.array(
            [similarity(a[None], b[None], self._kind)[0, 0] for a, b in pairs], np.float32
        )

    @property
    def _kind(self) -> str:
        return self._embedder.settings.similarity

    def _comparable(self, *embeddings: Any) -> list[np.ndarray]:
        """Returns arrays as `nearest_vectors.similarity` takes them."""
        arrays = [np.atleast_2d(np.asarray(each, np.float32)) for each in embeddings]
        if self._kind != "cosine":
            return arrays
        return [normalized(array) for array in arrays]

    @property
    def mteb_model_meta(self) -> "mteb.ModelMeta":
        """What mteb writes beside the results."""
        from mteb.models import ModelMeta

        embedder = self._embedder
        settings, variables = embedder.settings, embedder.model.variables_by_path()
        values = {
            "name": self._name,
            "revision": self.revision,
            "n_parameters": sum(int(np.prod(weights.shape)) for weights in variables.values()),
            "max_tokens": settings.max_length or embedder.max_length,
            "embed_dim": embedder.shape(embedder.default_layer, settings)[-1],
            "similarity_fn_name": settings.similarity,
            "framework": ["TensorFlow"],
            "use_instructions": bool(settings.prompts),
        }
        described = ModelMeta.create_empty().model_dump() | values
        return ModelMeta.model_validate(described)
