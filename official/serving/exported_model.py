"""A SavedModel that `official.export` has written, with the methods of a loaded model folder.

Shapes: N texts, D dimensions.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (the ops of tokenizers)
from typing_extensions import override

from official.saving.embedding_settings import EmbeddingSettings
from official.serving.export.saved_model import LABELS
from official.serving.predictor import Predictor
from official.utils import paths
from official.utils.errors import UserError

GRAPH = "saved_model.pb"
# The inputs of the signatures of texts in the order in which the methods give them.
_INPUTS = {
    "answer": ("question", "context"),
    "choose": ("context", "question", "choices"),
    "embed": ("text",),
    "generate": ("text",),
    "pair": ("text", "text_b"),
    "rank": ("query", "documents"),
    "sample": ("text", "temperature", "top_k", "top_p", "seed"),
    "single": ("text",),
    "tag": ("text",),
    "tag_words": ("words", "lengths"),
}
# The methods by the signature, and by an output of it, from which a model is known to have them.
_METHODS = {
    "encode": ("embed", "vectors"),
    "classify": ("single", "probabilities"),
    "score": ("single", "score"),
    "rank": ("rank", "scores"),
    "tag": ("tag", "types"),
    "answer": ("answer", "answer"),
    "choose": ("choose", "choice"),
    "generate": ("generate", "text"),
}


class _HeadConfig(NamedTuple):
    type: str
    labels: tuple[str, ...]


class _Head(NamedTuple):
    name: str
    config: _HeadConfig


class ExportedModel(Predictor):
    """The model of a SavedModel: its methods are those whose signatures it has.

    What a graph has inside cannot be changed: the pooling, the prompt and the norm of vectors, the
    search of generation, whether a question may have no answer. A SavedModel is a program: load
    none of strangers.

    Args:
      folder: the SavedModel.

    Attributes:
      methods: the names of the methods of `official.load` that it can do.
      embedder: computes vectors, as `LoadedModel.embedder` does.

    Raises:
      UserError: it is no SavedModel, or none of `official.export`.
    """

    def __init__(self, folder: str | os.PathLike):
        path = paths.path(folder)
        if not (path / GRAPH).exists():
            raise UserError(f"{folder}: not a SavedModel, which has the file {GRAPH}")
        with paths.opened_folder(path) as local:
            self._loaded = tf.saved_model.load(str(local))  # has the weights
        self._graphs = self._loaded.signatures
        self.methods = tuple(method for method, has in _METHODS.items() if self._has(*has))
        if not self.methods:
            names = ", ".join(sorted(self._graphs)) or "none"
            raise UserError(
                f"{folder}: its signatures ({names}) are none that is served: take the model folder"
            )
        labels = path / LABELS
        self._labels = tuple(labels.read_text("utf-8").splitlines()) if labels.exists() else ()
        self.embedder = _Embedder(self)

    def _has(self, name: str, output: str) -> bool:
        return name in self._graphs and output in self._graphs[name].structured_outputs

    @override
    def tasks(self, method: str) -> list[str]:
        return [""] * (method in self.methods)

    def generate(
        self,
        prompts: Sequence[str],
        batch_size: int = 8,
        task: str | None = None,
        **draws: float | int,
    ) -> list[str]:
        """Continues texts, or generates texts from them, as the export searches.

        Args:
          prompts: any number of texts.
          batch_size: the number of texts in a batch.
          task: None; an export has that of its `--task`.
          **draws: `temperature`, `top_k`, `top_p` and `seed` of sampling.

        Raises:
          UserError: `task` is given, or the model generates no text.
        """
        head = self._objective("generate", task)
        if not draws:
            rows = self._rows(head, [list(prompts)], batch_size, "generate")
            return [text.decode() for text in rows.get("text", ())]
        given = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0, **draws}
        values = self._signature(head, "sample", alone=False)(
            tf.constant(list(prompts)),
            tf.constant(given["temperature"], tf.float32),
            tf.constant(given["top_k"], tf.int32),
            tf.constant(given["top_p"], tf.float32),
            tf.constant(given["seed"], tf.int64),
        )
        return [text.decode() for text in values["text"].numpy()]

    @override
    def _objective(self, method: str, task: str | None = None) -> Any:
        if method not in self.methods:
            raise UserError(
                f"{method}: this export has no such signature; it can {', '.join(self.methods)}"
            )
        if task is not None:
            raise UserError(f"task: {task!r}: an export has one head; remove it")
        kind = "ranking" if method == "rank" else method
        return _Head(method, _HeadConfig(kind, self._labels))

    @override
    def _signature(
        self, head: Any, name: str, alone: bool, no_answers: bool | None = None
    ) -> Callable[..., dict[str, tf.Tensor]]:
        if no_answers is not None:
            raise UserError("no_answers: an export has this inside; remove it")
        graph, names = self._graphs[name], _INPUTS[name]
        return lambda *inputs: graph(**dict(zip(names, inputs, strict=True)))


class _Embedder:
    """Computes vectors with the signature `embed`.

    Attributes:
      settings: those of vectors that are as the export makes them.
      repeatable: as that of `official.serving.vectors.embedder.Embedder`; graphs are.
    """

    def __init__(self, model: ExportedModel):
        self._model = model
        self.settings = EmbeddingSettings()
        self.repeatable = True

    def texts(
        self,
        texts: Sequence[str],
        settings: EmbeddingSettings | None = None,
        *,
        batch_size: int = 32,
        prompt: str | None = None,
    ) -> np.ndarray:
        """Computes a vector for each text: float32 [N, D].

        Raises:
          UserError: the model has no vectors of texts, or a prompt is named.
        """
        del settings
        head = self._model._objective("encode")
        if prompt is not None:
            raise UserError(f"prompt: {prompt!r}: an export has its prompt inside; remove it")
        rows = self._model._rows(head, [list(texts)], batch_size, "embed")
        return rows.get("vectors", np.zeros((0, 0), np.float32))
