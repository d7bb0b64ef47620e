"""Metrics of rankings, and their predictions as TREC runs.

The metrics are those of ir-measures, which calls trec_eval. Two are computed here: the expected
reciprocal rank, which the library gets from a Perl script that prints only five digits, and the
reciprocal rank with a cutoff, for which it breaks ties otherwise than trec_eval does.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from official import config as configs
from official.data import ShardDataset
from official.evaluation import rows
from official.shards import side_texts
from official.tasks import METRICS, trec
from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.names import nearest
from official.utils.paths import AnyPath

# Measures of ir-measures by our names. Documents of grade 1 or more are relevant, and the gain of a
# document is its grade.
_MEASURES = {
    "ndcg_10": "nDCG@10",
    "ndcg_20": "nDCG@20",
    "mrr": "RR",
    "map": "AP",
    "recall_1": "R@1",
    "recall_100": "R@100",
}


class Scorer:
    """See `official.evaluation.evaluator.Scorer`."""

    outputs = ("score",)

    def __init__(self, config: configs.ResolvedConfig, source: ShardDataset):
        self._config, self._source = config, source

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """See `evaluate`."""
        return evaluate(self._source, outputs)

    def check_output(self, output: AnyPath) -> None:
        """Refuses a file that is not a run, and a split without candidates."""
        paths.check_suffix(output, "TREC runs", (trec.SUFFIX,))
        self._candidates()

    def write(self, outputs: Mapping[str, np.ndarray], output: AnyPath, top: int = 0) -> None:
        """Writes the candidates of each query, the best first; at most `top` of them, 0 = all."""
        numbers, outputs = rows.in_order(outputs, self._source)
        run = self._candidates().run(numbers, outputs["score"])
        with atomic.file(output) as stream:
            trec.write_run(stream, run, self._config.name, top)

    def _candidates(self) -> side_texts.Candidates:
        source = self._source
        return side_texts.read_candidates(paths.path(source.folder), source.manifest, source.split)


def compute(names: Iterable[str], qrels: trec.Qrels, run: trec.Run) -> dict[str, float]:
    """Computes metrics of `official.tasks.METRICS` as means over the queries of the qrels.

    Args:
      names: the names of the metrics.
      qrels: the grades of documents. Documents without a grade are not relevant.
      run: the scores of documents. A query without scores counts as 0.

    Returns:
      The metrics by name, in the order of `names`.

    Raises:
      UserError: a name is unknown, there are no queries, or a grade is too high for `err_20`.
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
    # The library computes the mean over all queries of a measure.
    wanted = {_MEASURES[name]: name for name in names if name in _MEASURES}
    values: dict[str, Any] = {}  # floats of Python and of NumPy
    if wanted:
        import ir_measures  # of the extra `eval`

        plain = {query: {d: float(s) for d, s in run.get(query, {}).items()} for query in qrels}
        measures = [ir_measures.parse_measure(measure) for measure in wanted]
        means = ir_measures.calc_aggregate(measures, qrels, plain)
        values = {wanted[str(measure)]: value for measure, value in means.items()}
    for name in names:
        if name in _FUNCTIONS:
            ranked = (trec.ordered(run.get(query, {})) for query in qrels)
            scores = [
                _FUNCTIONS[name]([grades.get(document, 0) for document, _ in best])
                for grades, best in zip(qrels.values(), ranked, strict=True)
            ]
            values[name] = np.mean(scores)
    return {name: float(values[name]) for name in names}


def score_run(
    qrels: AnyPath, run: AnyPath, metrics: Iterable[str] = METRICS["ranking"]
) -> tuple[dict[str, float], int]:
    """Computes metrics of a TREC run file.

    Returns:
      The metrics by name, and the number of judged queries that they are means over.

    Raises:
      UserError: a file cannot be read, a metric is unknown, or no query is judged.
    """
    ranked, grades = trec.read_run(run), trec.read_qrels(qrels)
    judged = {query: grades[query] for query in ranked if query in grades}
    if not judged:
        raise UserError(f"{run}: {qrels} judges none of its {len(ranked):,} queries")
    return compute(metrics, judged, ranked), len(judged)


def evaluate(source: ShardDataset, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Computes the metrics of a ranking over the candidates of a split.

    Args:
      source: the examples of a ranking.
      outputs: `example_weights`, `row` and `score` [B] of every candidate and of filler.

    Returns:
      The metrics by name, as means over the judged queries whose candidates were scored.

    Raises:
      UserError: the split has no candidates (the training split has triples) or no judgments.
    """
    listed = side_texts.read_candidates(paths.path(source.folder), source.manifest, source.split)
    if not listed.qrels:
        raise UserError(
            f"{source.folder}: the {source.split} split has no relevance judgments: evaluate on "
            "one with judgments, or use --mode=predict"
        )
    real = outputs["example_weights"] > 0
    run = listed.run(outputs["row"][real], outputs["score"][real])
    judged = {query: listed.qrels[query] for query in run if query in listed.qrels}
    return compute(source.task.metrics, judged, run)


def expected_reciprocal_rank(grades: Iterable[int], cutoff: int = 20) -> float:
    """Computes the ERR of one query (Chapelle et al., 2009) as TREC's gdeval does.

    A document of grade g satisfies a reader with probability (2^g - 1) / 2^4. A reader goes down
    the list and stops at the first satisfying document. ERR is the mean of 1 / rank of this
    document.

    Args:
      grades: the grades of the documents in their order. Negative grades count as 0.
      cutoff: the number of documents that count.

    Raises:
      UserError: a grade is above 4.
    """
    total, reading = 0.0, 1.0
    for rank, grade in enumerate(list(grades)[:cutoff], 1):
        if grade > trec.MAX_GRADE:
            raise UserError(
                f"grade {grade}: the expected reciprocal rank takes grades up to {trec.MAX_GRADE}"
            )
        satisfied = (2 ** max(grade, 0) - 1) / 2**trec.MAX_GRADE
        total += reading * satisfied / rank
        reading *= 1 - satisfied
    return total


def reciprocal_rank(grades: Iterable[int], cutoff: int = 10) -> float:
    """Returns 1 / the rank of the first relevant document of one query; 0 beyond the cutoff."""
    ranks = (rank for rank, grade in enumerate(list(grades)[:cutoff], 1) if grade > 0)
    return 1 / next(ranks, float("inf"))


_FUNCTIONS: dict[str, Callable[[list[int]], float]] = {
    "err_20": expected_reciprocal_rank,
    "mrr_10": reciprocal_rank,
}
