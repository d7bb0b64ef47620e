"""Vectors of texts by LiteRT and `tokenizers`, without TensorFlow.

Shapes: B texts of a batch, D size of a vector.
"""

import os
from collections.abc import Sequence

import numpy as np

from official.evaluation.nearest_vectors import normalized
from official.saving.embedding_settings import EmbeddingSettings
from official.serving.compute import length_order
from official.serving.light import folder as files
from official.serving.light.runs import POSITIONS, Run, Runs, in_threads
from official.utils import given_texts, paths
from official.utils.batched import batched
from official.utils.errors import UserError
from official.utils.progress import Progress, Report

_CHUNK = 4096  # texts that are split at a time


class LightEmbedder:
    """Computes vectors of texts with the files of a folder.

    Attributes:
      folder: the folder.
      settings: the settings of the vectors; others, such as a shorter length, may be set.
      is_sparse, default_layer: as of an `Embedder`: they are dense, and of one layer.
      max_length: longer texts are cut to this number of tokens, special tokens included.
      cut: the number of texts so far that were longer than `max_length`.

    Raises:
      UserError: a file is missing or damaged, a package is not installed, or the package
        `tokenizers` splits texts in another way than the tokenizer of the model.
    """

    is_sparse = False
    default_layer = None

    def __init__(self, folder: str | os.PathLike):
        self.folder = paths.path(folder)
        self._about = files.read(self.folder)
        self.settings = self._about.embedding
        self.max_length = self._about.max_length
        self.cut = 0
        if missing := files.missing_packages():
            raise UserError(f"{self.folder}: LiteRT needs {' and '.join(missing)}: {files.INSTALL}")
        import tokenizers

        self._tokenizer = tokenizers.Tokenizer.from_file(str(self.folder / files.TOKENIZER))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._check_ids()
        self._run = Runs(self._runner)

    def _check_ids(self) -> None:
        given = list(self._about.examples)
        for text, found in zip(given, self._split(given), strict=True):
            if found.tolist() != [*self._about.examples[text]]:
                raise UserError(
                    f"{self.folder / files.TOKENIZER}: the package tokenizers splits {text!r} in "
                    "another way than the tokenizer of the model: load the model folder with "
                    "runtime='tensorflow'"
                )

    def _runner(self) -> Run:
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(model_path=str(self.folder / files.MODEL), num_threads=1)
        run = interpreter.get_signature_runner(self._about.signature)
        dtypes = {name: about["dtype"] for name, about in run.get_input_details().items()}

        def computed(**inputs: np.ndarray) -> dict[str, np.ndarray]:
            return run(**{name: inputs[name].astype(dtype) for name, dtype in dtypes.items()})

        return computed

    def _split(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Returns the ids of each text, without special tokens."""
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(each.ids, np.int32) for each in encoded]

    def texts(
        self,
        texts: Sequence[str],
        settings: EmbeddingSettings | None = None,
        layer: int | str | None = None,
        batch_size: int = 32,
        state: object = "fresh",
        prompt: str | None = None,
        report: Report | None = None,
    ) -> np.ndarray:
        """Computes a vector for each text; arguments are those of `Embedder.texts`.

        Returns:
          float32 [number of texts, D], in the order of `texts`.

        Raises:
          UserError: a single text is given instead of a list, the prompt does not exist, there is
            no room for a token, or the vectors are others than those of the folder.
        """
        settings = settings or self.settings
        if layer is not None or state != "fresh" or not self.computes(settings):
            raise files.no_whole_model(self.folder)
        before = settings.prompt(prompt)
        given_texts.check_texts(texts, batch_size)
        longest = self._longest(settings.max_length)
        sequences: list[np.ndarray] = []
        for chunk in batched(texts, _CHUNK):
            sequences += self._split([before + t for t in given_texts.plain(chunk, "texts")])
        lengths = np.array([len(ids) for ids in sequences], int) + self._about.rows.specials
        self.cut += int(np.sum(lengths > longest))
        groups = length_order.groups(lengths, longest, batch_size, POSITIONS)
        vectors = np.zeros((len(sequences), self._about.size), np.float32)
        progress = Progress(len(sequences), report, unit="texts")

        def computed(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            batch = self._about.rows.batch([sequences[row] for row in rows], longest)
            given = {name: batch[field] for field, name in self._about.inputs.items()}
            return rows, self._run(**given)[self._about.output]

        for rows, found in in_threads(computed, groups, _cores()):
            vectors[rows] = found
            progress(len(rows))
        is_normalized = self._about.embedding.normalize
        return normalized(vectors) if settings.normalize and not is_normalized else vectors

    def computes(self, settings: EmbeddingSettings) -> bool:
        """Whether these settings have the vectors of the folder, or these normalized."""
        own = self._about.embedding
        return settings == own.with_values(
            normalize=own.normalize or settings.normalize, max_length=settings.max_length
        )

    def shape(self, layer: int | str | None, settings: EmbeddingSettings) -> tuple[int]:
        """Returns the shape of a vector, (D,)."""
        del layer, settings
        return (self._about.size,)

    def _longest(self, max_length: int | None) -> int:
        longest = self.max_length if max_length is None else max_length
        least = self._about.rows.specials + 1
        if not least <= longest <= self.max_length:
            raise UserError(
                f"max_length: {longest} is not from {least} to {self.max_length}, the length of "
                "this model"
            )
        return longest


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
