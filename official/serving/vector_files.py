"""Writes the vectors of texts and of their tokens to files.

Shapes: D hidden, L layers.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from typing import IO

import numpy as np

from official.serving.embedder import Embedder, TokenVectors
from official.serving.text_vectors import EmbeddingSettings
from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.progress import Progress

CHUNK = 2048  # texts of a file that are sorted by length together


def write(
    embedder: Embedder,
    texts: Sequence[str],
    output: str | os.PathLike,
    *,
    settings: EmbeddingSettings | None = None,
    layer: int | str | None = None,
    tokens: bool = False,
    state: str = "fresh",
    prompt: str | None = None,
    report: Callable[[str], None] = print,
) -> None:
    """Writes the vectors of texts to a file. The file appears when it is complete.

    Args:
      embedder: computes the vectors.
      texts: the texts in the order of the file.
      output: `.npy`: float32 [number of texts, D], or [number of texts, L + 1, D] for the layer
        'all'. `.jsonl`: an object for each text, with `text`
        and `vector`, or with `text` and `tokens`, a list of objects with `piece`, `start`, `end`
        and `vector`.
      settings: as for `Embedder.texts`; ignored for tokens.
      layer: as for `Embedder.texts`.
      tokens: whether to write vectors of tokens instead of texts.
      state: as for `Embedder.texts`; `carry` goes on through the whole file.
      prompt: as for `Embedder.texts`; ignored for tokens.
      report: takes the lines of progress and the summary.

    Raises:
      UserError: the file has another suffix, or is `.npy` for tokens; or the encoder has no state
        to carry.
    """
    check_output(output, tokens)
    settings = settings or embedder.settings
    if layer is None:
        layer = -1 if tokens else embedder.default_layer
    reader = embedder.reader() if state == "carry" else state
    start_time, progress = time.monotonic(), Progress(len(texts), report, unit="texts")
    suffix = paths.path(output).suffix
    with atomic.file(output, "wb" if suffix == ".npy" else "w") as stream:
        if suffix == ".npy":
            shape = (len(texts), *embedder.shape(layer, settings))
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, len(texts), CHUNK):
            chunk = texts[start : start + CHUNK]
            if tokens:
                _write_tokens(stream, chunk, embedder.tokens(chunk, layer, state=reader))
            else:
                vectors = embedder.texts(chunk, settings, layer, state=reader, prompt=prompt)
                if suffix == ".npy":
                    stream.write(vectors.astype("<f4").tobytes())
                else:
                    for text, vector in zip(chunk, vectors, strict=True):
                        _write_line(stream, {"text": text, "vector": vector})
            progress(len(chunk))
    seconds = time.monotonic() - start_time
    report(
        f"{output}: {len(texts):,} texts, {seconds:.1f} s ({len(texts) / seconds:,.0f} texts/s); "
        f"{embedder.cut:,} cut at {(not tokens and settings.max_length) or embedder.max_length} "
        "tokens"
    )


def check_output(output: str | os.PathLike, tokens: bool) -> None:
    """Refuses a file that `write` cannot write."""
    if paths.path(output).suffix not in (".npy", ".jsonl"):
        raise UserError(f"{output}: vectors are written as .npy or .jsonl: name such a file")
    if tokens and paths.path(output).suffix == ".npy":
        raise UserError(
            f"{output}: texts have different numbers of tokens, which one array does not hold: "
            "name a .jsonl file"
        )


def _write_tokens(
    stream: IO[str], texts: Sequence[str], token_vectors: Sequence[TokenVectors]
) -> None:
    for text, (pieces, starts, ends, vectors) in zip(texts, token_vectors, strict=True):
        tokens = zip(pieces, starts.tolist(), ends.tolist(), vectors, strict=True)
        objects = [
            {"piece": piece, "start": start, "end": end, "vector": vector}
            for piece, start, end, vector in tokens
        ]
        _write_line(stream, {"text": text, "tokens": objects})


def _write_line(stream: IO[str], line: dict[str, object]) -> None:
    def numbers(vectors: np.ndarray) -> list:
        # Through `str`, which gives the shortest number that is the same float32.
        return [float(str(x)) for x in vectors] if vectors.ndim == 1 else list(vectors)

    stream.write(json.dumps(line, ensure_ascii=False, default=numbers) + "\n")
