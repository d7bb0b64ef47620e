"""Files of the vectors of texts and of their tokens.

Shapes: D size of a vector, L layers.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, TypeAlias, cast

import numpy as np

from official.evaluation.sparse_vectors import SparseVectors
from official.saving.embedding_settings import EmbeddingSettings
from official.utils import atomic, paths
from official.utils.batched import batched
from official.utils.errors import UserError
from official.utils.progress import Progress

if TYPE_CHECKING:
    from official.serving.light.embedder import LightEmbedder
    from official.serving.vectors.embedder import Embedder, TokenVectors

    AnyEmbedder: TypeAlias = Embedder | LightEmbedder  # for dense vectors of texts

CHUNK = 2048  # texts of a file that are sorted by length together


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Returns the texts in lists of `CHUNK`, each of which is sorted by length by itself."""
    return batched(texts, CHUNK)


def write_header(stream: IO[bytes], shape: tuple[int, ...]) -> None:
    """Writes the beginning of a `.npy` file of float32 [*shape], which the values follow."""
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)


def write(
    embedder: "AnyEmbedder",
    texts: Iterable[str],
    output: str | os.PathLike,
    *,
    count: int | None = None,
    settings: EmbeddingSettings | None = None,
    layer: int | str | None = None,
    tokens: bool = False,
    state: str = "fresh",
    prompt: str | None = None,
    report: Callable[[str], None] = print,
) -> None:
    """Writes the vectors of texts to a file. The file appears when it is complete.

    Args:
      embedder: computes the vectors; one without TensorFlow those of texts alone, by its own layer.
      texts: the texts in the order of the file. They are read once, and few of them are in memory.
      output: `.npy`: float32 [number of texts, D], or [number of texts, L + 1, D] for the layer
        'all'. `.jsonl`: an object for each text, with `text`
        and `vector`, or with `text` and `tokens`, a list of objects with `piece`, `start`, `end`
        and `vector`. Of a model with sparse vectors `.npz`, see `SparseVectors.save`, which are all
        in memory; or `.jsonl` whose `vector` is an object of pieces and weights.
      count: the number of texts; None = `texts` is a list.
      settings: as for `Embedder.texts`; ignored for tokens.
      layer: as for `Embedder.texts`.
      tokens: whether to write vectors of tokens instead of texts.
      state: as for `Embedder.texts`; `carry` goes on through the whole file.
      prompt: as for `Embedder.texts`; ignored for tokens.
      report: takes the lines of progress and the summary.

    Raises:
      UserError: the file has another suffix, or is `.npy` for tokens; there are not `count` texts;
        or the encoder has no state to carry.
    """
    check_output(output, tokens)
    settings = settings or embedder.settings
    suffix = paths.path(output).suffix
    weighs = embedder.is_sparse and not tokens
    if weighs and (layer is not None or state != "fresh"):
        raise UserError("--layer, --state: not supported for sparse vectors; remove them")
    if suffix == (".npy" if weighs else ".npz"):
        kind, name = ("sparse", ".npz") if weighs else ("dense", ".npy")
        raise UserError(f"{output}: the vectors are {kind}: name a {name} or .jsonl file")
    if layer is None:
        layer = -1 if tokens else embedder.default_layer
    whole = cast("Embedder", embedder)  # for what a light one has not
    reader = whole.reader() if state == "carry" else state
    if count is None:
        texts = list(texts)
        count = len(texts)
    start_time, progress = time.monotonic(), Progress(count, report, unit="texts")
    written, parts = 0, []
    with atomic.file(output, "w" if suffix == ".jsonl" else "wb") as stream:
        if suffix == ".npy":
            write_header(stream, (count, *embedder.shape(layer, settings)))
        for chunk in chunks(texts):
            if tokens:
                _write_tokens(stream, chunk, whole.tokens(chunk, layer, state=reader))
            elif weighs:
                parts.append(whole.sparse(chunk, prompt, settings))
                if suffix == ".jsonl":
                    named = parts.pop().words(whole.tokenizer.pieces)
                    for text, words in zip(chunk, named, strict=True):
                        vector = {word: float(str(np.float32(x))) for word, x in words}
                        _write_line(stream, {"text": text, "vector": vector})
            else:
                vectors = embedder.texts(chunk, settings, layer, state=reader, prompt=prompt)
                if suffix == ".npy":
                    stream.write(vectors.astype("<f4").tobytes())
                else:
                    for text, vector in zip(chunk, vectors, strict=True):
                        _write_line(stream, {"text": text, "vector": vector})
            progress(len(chunk))
            written += len(chunk)
        if suffix == ".npz":
            size = whole.config.encoder.known_vocab_size
            SparseVectors.joined(parts, size).save(stream)
        if written != count:
            raise UserError(f"{output}: there are {written:,} texts, and not {count:,} as expected")
    seconds = time.monotonic() - start_time
    report(
        f"{output}: {count:,} texts, {seconds:.1f} s ({count / seconds:,.0f} texts/s); "
        f"{embedder.cut:,} cut at {(not tokens and settings.max_length) or embedder.max_length} "
        "tokens"
    )


def check_output(output: str | os.PathLike, tokens: bool) -> None:
    """Refuses a file that `write` cannot write."""
    paths.check_suffix(output, "vectors", (".npy", ".npz", ".jsonl"))
    if tokens and paths.path(output).suffix != ".jsonl":
        raise UserError(
            f"{output}: texts have different numbers of tokens, which one array does not hold: "
            "name a .jsonl file"
        )


def _write_tokens(
    stream: IO[str], texts: Sequence[str], token_vectors: Sequence["TokenVectors"]
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
