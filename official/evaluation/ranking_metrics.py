"""Metrics of rankings, by ir-measures, which asks trec_eval.

Only the expected reciprocal rank is computed here: the library has it from a Perl script that
prints five digits.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np

from official.shards import candidates
from official.tasks import nearest, trec
from official.utils.errors import UserError

# trec_eval's measures by our names; as there, 1 and more is relevant, and a gain is the grade.
_MEASURES = {
    "ndcg_20": ir_measures.nDCG @ 20,
    "mrr": ir_measures.RR,
    "map": ir_measures.AP,
}
MAX_GRADE = 4  # of TREC's web track; the grade that satisfies 15 users of 16


def compute(names: Iterable[str], qrels: trec.Qrels, run: trec.Run) -> dict[str, float]:
    """Computes metrics of `official.tasks.METRICS`, means over the queries of the qrels.

    Args:
      names: the metrics wanted.
      qrels: grades of documents; those that nobody judged are not relevant.
      run: the scores that documents got. A query without any counts as 0.

    Returns:
      The metrics by name, in the order asked for.

    Raises:
      UserError: an unknown name, no queries, or a grade that is too great for `err_20`.
    """
    names = list(names)
    known = (*_MEASURES, *_FUNCTIONS)
    for name in names:
        if name not in known:
            raise UserError(
                f"there is no metric {name!r}{nearest(name, known)}: metrics are {', '.join(known)}"
            )
    if not any(qrels.values()):
        raise UserError("there are no judged queries to compute metrics on")
    qrels = {query: grades for query, grades in qrels.items() if grades}
    # The library takes a mean over what it was given of one kind.
    wanted = {_MEASURES[name]: name for name in names if name in _MEASURES}
    values = {}
    if wanted:
        plain = {query: {d: float(s) for d, s in run.get(query, {}).items()} for query in qrels}
        found = ir_measures.calc_aggregate(list(wanted), qrels, plain)
        values = {wanted[measure]: value for measure, value in found.items()}
    for name in names:
        if name in _FUNCTIONS:
            ranked = (trec.ordered(run.get(query, {})) for query in qrels)
            values[name] = np.mean(
                [
                    _FUNCTIONS[name]([grades.get(document, 0) for document, _ in best])
                    for grades, best in zip(qrels.values(), ranked, strict=True)
                ]
            )
    return {name: float(values[name]) for name in names}


def evaluate(source: Any, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Computes the metrics of a ranking over the candidates of a split.

    Args:
      source: an `official.data.ShardDataset` of a ranking.
      outputs: of every candidate, filler included: `example_weights`, `row` and `score` [B].

    Returns:
      The metrics by name, means over the judged queries whose candidates were scored.

    Raises:
      UserError: the split has no candidates (that for training has triples), or no judgements.
    """
    listed = candidates.read(Path(source.folder), source.manifest, source.split)
    if not listed.qrels:
        raise UserError(
            f"{source.folder}: nothing is known of what is relevant in the {source.split} split: "
            "evaluate on one with judgements, or use --mode=predict"
        )
    real = outputs["example_weights"] > 0
    run = listed.run(outputs["row"][real], outputs["score"][real])
    judged = {query: listed.qrels[query] for query in run if query in listed.qrels}
    return compute(source.manifest.task.metrics, judged, run)


def expected_reciprocal_rank(grades: Iterable[int], cutoff: int = 20) -> float:
    """ERR of one query (Chapelle et al., 2009), as TREC's gdeval has it.

    A document of grade g satisfies a reader with probability (2^g - 1) / 2^4; the measure is the
    mean of 1 / rank of the document at which a reader who goes down the list stops.

    Args:
      grades: of the documents in their order; less than 0 counts as 0.
      cutoff: how many of them count.

    Raises:
      UserError: a grade above 4.
    """
    total, reading = 0.0, 1.0
    for rank, grade in enumerate(list(grades)[:cutoff], 1):
        if grade > MAX_GRADE:
            raise UserError(
                f"grade {grade}: the expected reciprocal rank wants grades of at most {MAX_GRADE}"
            )
        satisfied = (2 ** max(grade, 0) - 1) / 2**MAX_GRADE
        total += reading * satisfied / rank
        reading *= 1 - satisfied
    return total


_FUNCTIONS: dict[str, Callable[[list[int]], float]] = {"err_20": expected_reciprocal_rank}
