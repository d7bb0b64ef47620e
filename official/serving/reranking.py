"""Orders the documents of a run anew, by a model that reads query and document together.

Shapes: N pairs of a query and a document.
"""

import os
from collections.abc import Mapping

from official.serving.predictor import Predictor
from official.serving.vectors import search
from official.tasks import text_files, trec
from official.utils import atomic
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.progress import Progress, Report

QUERIES = 32  # whose documents are scored together, those of similar length in a batch


def write(
    model: Predictor,
    queries: Mapping[str, str],
    documents: AnyPath,
    run: trec.Run,
    output: str | os.PathLike,
    top_k: int,
    name: str,
    report: Report | None = None,
) -> list[str]:
    """Scores the best documents of a run, and writes the new run.

    The texts of these documents are in memory.

    Args:
      model: a model with the objective `ranking`; see `Predictor.rank`.
      queries: id → text, of all queries of the run.
      documents: a file of ids and texts: see `official.tasks.text_files`.
      run: query → document → score.
      output: the file, which appears when it is complete.
      top_k: the number of documents of a query that are scored.
      name: the name of the new run.
      report: is called with lines of progress; None = there are none.

    Returns:
      The ids of the documents of the file.

    Raises:
      UserError: a document of the run is not in the file, the file cannot be read, or the model
        has no such objective.
    """
    search.check_output(output)
    search.check_top_k(top_k)
    chosen = {
        query: [document for document, _ in trec.ordered(scores)[:top_k]]
        for query, scores in run.items()
    }
    wanted = {document for found in chosen.values() for document in found}
    ids: list[str] = []
    texts: dict[str, str] = {}
    for identity, text in text_files.unique(documents):
        ids.append(identity)
        if identity in wanted:
            texts[identity] = text
    for document in sorted(wanted - texts.keys()):
        raise UserError(f"{documents}: document {document!r} of the run is missing")
    progress = Progress(sum(map(len, chosen.values())), report, unit="documents")
    with atomic.file(output) as stream:
        names = list(chosen)
        for start in range(0, len(names), QUERIES):
            pairs = [(q, d) for q in names[start : start + QUERIES] for d in chosen[q]]
            scores = model.rank([queries[q] for q, _ in pairs], [texts[d] for _, d in pairs])
            found: trec.Run = {}
            for (query, document), score in zip(pairs, scores, strict=True):
                found.setdefault(query, {})[document] = score
            trec.write_run(stream, found, name)
            progress(len(pairs))
    return ids
