"""Finds the documents whose vectors are nearest to those of queries: exact, in bounded memory.

The vectors of all queries are in memory. Documents are read, encoded and compared block by block,
and only the best of each query are kept. So memory does not depend on the number of documents, but
for their ids. Vectors that are stored are not computed again.

Shapes: N documents, B documents of a block, D size of a vector.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from official.evaluation.max_sim import max_sim
from official.evaluation.nearest_vectors import Best, Found
from official.evaluation.sparse_vectors import SparseBest, SparseVectors
from official.saving import embedding_settings
from official.saving.embedding_settings import EmbeddingSettings
from official.serving.vectors import stored
from official.serving.vectors.indexes.dense import BLOCK, TOKENS_BLOCK
from official.serving.vectors.stored import Stored
from official.tasks import text_files, trec
from official.utils import atomic, input_files, paths
from official.utils.batched import batched
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.progress import Progress, Report

if TYPE_CHECKING:
    from official.serving.vectors.embedder import Embedder
    from official.serving.vectors.vector_files import AnyEmbedder

TOP_K = 100
CANDIDATES = 10  # times as many documents are compared again


def nearest(
    embedder: "AnyEmbedder",
    queries: Sequence[str],
    documents: Iterable[str],
    top_k: int,
    batch_size: int = 32,
    report: Report | None = None,
    count: int | None = None,
    sparse: bool | None = None,
) -> Best | SparseBest:
    """Searches documents for queries.

    Args:
      embedder: computes the vectors, with the settings and the prompts of its model.
      queries: texts.
      documents: N texts, which are read once.
      top_k: the number of documents for each query.
      batch_size: the number of texts in a batch.
      report: is called with lines of progress; None = there are none.
      count: N, for the progress; None = unknown.
      sparse: whether the vectors are sparse; None = as the embedder has it.

    Raises:
      UserError: `top_k` is less than 1, there are no queries, or one text is given for the list.
    """
    best, blocks = compared(embedder, queries, documents, top_k, batch_size, report, count, sparse)
    for vectors in blocks:
        best.add(vectors)
    return best


def compared(
    embedder: "AnyEmbedder",
    queries: Sequence[str],
    documents: Iterable[str],
    top_k: int,
    batch_size: int = 32,
    report: Report | None = None,
    count: int | None = None,
    sparse: bool | None = None,
) -> tuple[Any, Iterator[Any]]:
    """Returns an empty `Best`, and the vectors of the documents in blocks.

    With sparse vectors they are a `SparseBest` and `SparseVectors`.

    Arguments and errors are those of `nearest`, which adds all blocks.
    """
    check_top_k(top_k)
    of = stored.kind_of(embedder, sparse)
    asked = encoded(embedder, queries, "query", batch_size, of)
    size = TOKENS_BLOCK if of == "tokens" else BLOCK
    if of == "sparse":
        best: Best | SparseBest = SparseBest(asked, top_k)
    else:
        late = of == "tokens"
        settings = cast("Embedder", embedder).late.config if late else settings_of(embedder)
        best = Best(asked, top_k, settings.similarity)

    def vectors() -> Iterator[Any]:
        progress = Progress(count, report, unit="documents")
        for block in batched(documents, size):
            yield encoded(embedder, block, "document", batch_size, of)
            progress(len(block))

    return best, vectors()


def opened(
    embedder: "Embedder", folder: str | os.PathLike, finer: str | os.PathLike | None = None
) -> Stored:
    """Opens stored vectors of documents, and checks that they are whole and those of a model.

    Args:
      embedder: the model.
      folder: the folder.
      finer: see `Stored`; None = there is none.

    Raises:
      UserError: see `Stored`, its `check`, its `check_model` and its `check_texts`.
    """
    vectors = Stored(folder)
    if finer is not None:
        vectors.finer = opened(embedder, finer)
        vectors.check_texts(vectors.finer)
    kind = stored.kind_of(embedder)
    if vectors.manifest["kind"] != kind:
        raise UserError(
            f"{vectors.folder}: its vectors are {vectors.manifest['kind']}, and those that this "
            f"model compares are {kind}: embed the texts with it, without --pooling and --layer"
        )
    vectors.check_model(embedder, settings_of(embedder))
    vectors.check()
    return vectors


def nearest_stored(
    embedder: "AnyEmbedder",
    queries: Sequence[str],
    vectors: Stored,
    top_k: int,
    batch_size: int = 32,
) -> Found:
    """Searches stored documents for queries: as `nearest`, but for the documents.

    Args:
      embedder: as for `nearest`.
      queries: as for `nearest`.
      vectors: what `opened` has opened for this embedder.
      top_k: as for `nearest`.
      batch_size: as for `nearest`.
    """
    check_top_k(top_k)
    asked = encoded(embedder, queries, "query", batch_size)
    if vectors.finer is None:
        return vectors.index.search(asked, top_k)
    found = vectors.index.search(asked, CANDIDATES * top_k)
    return vectors.finer.index.again(asked, found.numbers, top_k)


def write(
    embedder: "AnyEmbedder",
    queries: Mapping[str, str],
    documents: AnyPath | Stored,
    output: str | os.PathLike,
    top_k: int,
    name: str,
    report: Report | None = None,
    own: bool = True,
) -> list[str]:
    """Searches documents, and writes a TREC run.

    Args:
      embedder: as in `nearest`.
      queries: id → text.
      documents: a file of ids and texts (see `official.tasks.text_files`), or their vectors, which
        `opened` has opened.
      output: the file, which appears when it is complete.
      top_k: as in `nearest`.
      name: the name of the run.
      report: as in `nearest`.
      own: whether a document may be found whose id is that of the query.

    Returns:
      The ids of the documents.

    Raises:
      UserError: the file cannot be read or changes meanwhile, or an id occurs twice.
    """
    check_output(output)
    check_top_k(top_k)
    wanted = top_k if own else top_k + 1
    if isinstance(documents, Stored):
        ids = documents.ids
        found = nearest_stored(embedder, list(queries.values()), documents, wanted)
    else:
        ids, found = _nearest_in_file(embedder, list(queries.values()), documents, wanted, report)
    with atomic.file(output) as stream:
        for query, scores in found.runs(queries, ids, top_k, own):
            trec.write_run(stream, {query: scores}, name)
    return ids


def _nearest_in_file(
    embedder: "AnyEmbedder",
    queries: Sequence[str],
    documents: AnyPath,
    top_k: int,
    report: Report | None,
) -> tuple[list[str], Found]:
    """Searches a file of documents; returns their ids and what is found."""
    counted = text_files.Counted(documents)
    ids: list[str] = []

    def texts() -> Iterator[str]:
        with input_files.explained(counted.check):
            for identity, text in text_files.once(counted, documents):
                ids.append(identity)
                yield text

    best = nearest(embedder, queries, texts(), top_k, report=report, count=counted.count)
    return ids, best.found


def check_top_k(top_k: int) -> None:
    """Raises UserError for a number of documents below 1."""
    if top_k < 1:
        raise UserError(f"top_k: {top_k} is less than 1")


def check_output(output: str | os.PathLike) -> None:
    """Refuses a file whose name is not that of a run."""
    paths.check_suffix(output, "TREC runs", (trec.SUFFIX,))


def settings_of(embedder: "AnyEmbedder") -> EmbeddingSettings:
    """Returns the settings of the vectors that are compared."""
    settings = embedder.settings
    return settings.with_values(normalize=True) if settings.similarity == "cosine" else settings


def pair_scores(
    embedder: "Embedder", queries: Sequence[str], documents: Sequence[str], batch_size: int = 32
) -> np.ndarray:
    """Returns the scores of pairs of texts by the vectors of their tokens: float32 [N].

    The vectors of so many pairs as of documents of a block are in memory.

    Args:
      embedder: computes the vectors, of a model of the objective `late_interaction`.
      queries: N texts.
      documents: N texts.
      batch_size: the number of texts in a batch.
    """
    mean = embedder.late.config.mean
    scores = np.zeros(len(documents), np.float32)
    for start in range(0, len(documents), TOKENS_BLOCK):
        rows = slice(start, start + TOKENS_BLOCK)
        found = []
        for texts, kind in ((queries[rows], "query"), (documents[rows], "document")):
            each = list(dict.fromkeys(texts))
            found.append(dict(zip(each, _tokens(embedder, each, kind, batch_size), strict=True)))
        pairs = zip(queries[rows], documents[rows], strict=True)
        for number, (query, document) in enumerate(pairs, start):
            scores[number] = max_sim([found[0][query]], [found[1][document]], mean)[0, 0]
    return scores


def encoded(
    embedder: "AnyEmbedder", texts: Sequence[str], kind: str, batch_size: int, of: str | None = None
) -> Any:
    """Returns the vectors of texts that are compared.

    Args:
      embedder: computes them.
      texts: the texts.
      kind: one of `embedding_settings.PROMPTS`.
      batch_size: the number of texts in a batch.
      of: the kind of the vectors; None = that of the model.
    """
    call = {"dense": _encoded, "tokens": _tokens, "sparse": _weighed}[
        of or stored.kind_of(embedder)
    ]
    return call(cast("Embedder", embedder), texts, kind, batch_size)


def _tokens(
    embedder: "Embedder", texts: Sequence[str], kind: str, batch_size: int
) -> list[np.ndarray]:
    """Returns the vectors of the tokens of texts; a document without text has none."""
    found = embedder.compared_tokens(texts, kind, batch_size)
    if kind == "document":
        found = [x if text.strip() else x[:0] for text, x in zip(texts, found, strict=True)]
    return found


def _encoded(
    embedder: "AnyEmbedder", texts: Sequence[str], kind: str, batch_size: int
) -> np.ndarray:
    """Returns the vectors of texts with the prompt of their kind; see `prompt_of`."""
    settings = settings_of(embedder)
    prompt = embedding_settings.prompt_of(kind, settings)
    return embedder.texts(texts, settings, batch_size=batch_size, prompt=prompt)


def _weighed(
    embedder: "Embedder", texts: Sequence[str], kind: str, batch_size: int
) -> SparseVectors:
    """Returns the sparse vectors of texts of a kind; see `_encoded`."""
    prompt = embedding_settings.prompt_of(kind, embedder.settings) or kind
    return embedder.sparse(texts, prompt, batch_size=batch_size)
