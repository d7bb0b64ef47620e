import importlib.resources
import itertools
import shutil
import subprocess
import types

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from ir_measures import AP, ERR, RR, R, nDCG

from official import tasks
from official.evaluation import rankings
from official.shards import side_texts
from official.tasks import beir, trec
from official.utils.errors import UserError


def _random(seed, queries=12, documents=60, grades=5):
    """Qrels and a run with ties, unjudged documents, and queries that only one of them has."""
    draw = np.random.default_rng(seed)
    names = [f"d{i}" for i in range(documents)]
    qrels, run = {}, {}
    for query in range(queries):
        judged = draw.choice(names, draw.integers(1, 30), replace=False)
        actual = draw.choice(names, draw.integers(1, 50), replace=False)
        qrels[str(query)] = {str(d): int(draw.integers(-1, grades)) for d in judged}
        scores = draw.integers(0, 12, len(actual)) / 8
        run[str(query)] = {str(d): float(s) for d, s in zip(actual, scores, strict=True)}
    del run["3"]
    del qrels["5"]
    return qrels, run


def _known(qrels, run):
    return {query: scores for query, scores in run.items() if query in qrels}


@pytest.mark.parametrize("seed", range(5))
def test_figures_are_those_of_ir_measures(seed):
    qrels, run = _random(seed)
    computed = rankings.compute(tasks.METRICS["ranking"], qrels, run)
    assert list(computed) == list(tasks.METRICS["ranking"])
    measures = {"ndcg_20": nDCG @ 20, "ndcg_10": nDCG @ 10, "mrr": RR, "map": AP}
    measures |= {"recall_1": R @ 1, "recall_100": R @ 100}
    theirs = ir_measures.calc_aggregate(measures.values(), qrels, _known(qrels, run))
    for name, measure in measures.items():
        assert computed[name] == pytest.approx(theirs[measure], abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_figures_of_beir_are_those_of_trec_eval(seed):
    """With ties, grades, and queries that have no relevant document or none that is found."""
    qrels, run = _random(seed)
    computed = rankings.compute(beir.METRICS, qrels, run)
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.100", "recip_rank"})
    whole = evaluator.evaluate(_known(qrels, run))
    first = {query: dict(trec.ordered(scores)[:10]) for query, scores in run.items()}
    cut = evaluator.evaluate(_known(qrels, first))
    theirs = {
        "ndcg_10": [values["ndcg_cut_10"] for values in whole.values()],
        "mrr_10": [values["recip_rank"] for values in cut.values()],
        "recall_100": [values["recall_100"] for values in whole.values()],
    }
    assert len(whole) == len(qrels) - 1  # of query 3, whose run is missing, all are 0
    expected = {name: sum(values) / len(qrels) for name, values in theirs.items()}
    assert computed == pytest.approx(expected, abs=1e-9)
    assert any(max(grades.values()) > 1 for grades in qrels.values())


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval is a Perl script")
@pytest.mark.parametrize("seed", range(5))
def test_err_is_that_of_gdeval(seed, tmp_path):
    """That of ir-measures, made to print more than its five digits."""
    qrels, run = _random(seed)
    script = importlib.resources.files("ir_measures").joinpath("bin/gdeval.pl").read_text()
    assert script.count("%.5f,%.5f") == 1
    (tmp_path / "gdeval.pl").write_text(script.replace("%.5f,%.5f", "%.15f,%.15f"))
    with open(tmp_path / "qrels", "w") as stream:
        trec.write_qrels(stream, qrels)
    with open(tmp_path / "run", "w") as stream:
        trec.write_run(stream, _known(qrels, run), "x")
    told = subprocess.run(
        ["perl", "gdeval.pl", "qrels", "run", "20"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    theirs = {line.split(",")[1]: float(line.split(",")[3]) for line in told.splitlines()[1:]}
    assert len(theirs) > 8
    for query, value in theirs.items():
        ours = rankings.compute(["err_20"], {query: qrels[query]}, run)["err_20"]
        assert ours == pytest.approx(value, abs=1e-9)
    # And as the library says it, over all queries, to five digits.
    rounded = ir_measures.calc_aggregate([ERR @ 20], qrels, _known(qrels, run))[ERR @ 20]
    ours = rankings.compute(["err_20"], qrels, run)["err_20"]
    assert ours == pytest.approx(rounded, abs=1e-5)


def test_by_hand():
    qrels = {"1": {"a": 0, "b": 4, "c": 1}, "2": {"a": 1}}
    run = {"1": {"a": 3.0, "b": 2.0, "c": 1.0}}
    ideal = 4 + 1 / np.log2(3)
    actual = 4 / np.log2(3) + 1 / np.log2(4)
    computed = rankings.compute(tasks.METRICS["ranking"], qrels, run)
    expected = {
        "ndcg_20": actual / ideal,
        "err_20": 15 / 16 / 2 + 1 / 16 * 1 / 16 / 3,
        "mrr": 1 / 2,
        "map": (1 / 2 + 2 / 3) / 2,
        "ndcg_10": actual / ideal,
        "mrr_10": 1 / 2,
        "recall_1": 0,
        "recall_100": 1,
    }
    assert computed == pytest.approx({name: value / 2 for name, value in expected.items()})


def test_ties_are_broken_by_id():
    for order in itertools.permutations("abc"):
        run = {"1": {document: 1.0 for document in order}}
        assert rankings.compute(["mrr"], {"1": {"c": 1}}, run) == {"mrr": 1.0}
        computed = rankings.compute(["mrr", "err_20"], {"1": {"a": 4}}, run)
        assert computed == pytest.approx({"mrr": 1 / 3, "err_20": 15 / 16 / 3})


def test_only_the_first_ones_count():
    assert rankings.expected_reciprocal_rank([0] * 20 + [4]) == 0
    assert rankings.expected_reciprocal_rank([0] * 19 + [4]) == 15 / 16 / 20
    assert rankings.expected_reciprocal_rank([-1, 1]) == 1 / 32
    assert rankings.reciprocal_rank([0] * 10 + [1]) == 0
    assert rankings.reciprocal_rank([-1] * 9 + [2]) == 1 / 10


@pytest.mark.parametrize(
    "names, qrels, message",
    [
        (["ndcg"], {"1": {"a": 1}}, "there is no metric 'ndcg' (did you mean 'ndcg_20'?): metrics"),
        (["map"], {}, "there are no judged queries to compute metrics on"),
        (["map"], {"1": {}}, "there are no judged queries"),
        (["err_20"], {"1": {"a": 5}}, "grade 5: the expected reciprocal rank takes grades up to 4"),
    ],
)
def test_errors(names, qrels, message):
    with pytest.raises(UserError) as error:
        rankings.compute(names, qrels, {"1": {"a": 1.0}})
    assert message in str(error.value)


def _source(folder, qrels):
    run = {"1": {"a": 2.0, "b": 1.0}, "2": {"a": 1.0}}
    _, digests = side_texts.write_candidates(folder, "test", run, qrels)
    manifest = types.SimpleNamespace(candidates=digests)
    task = types.SimpleNamespace(metrics=["mrr"])
    return types.SimpleNamespace(folder=str(folder), split="test", manifest=manifest, task=task)


OUTPUTS = {
    "row": np.array([1, 0, 0], np.int32),
    "score": np.array([0.5, 0.25, 9], np.float32),
    "example_weights": np.array([1, 1, 0], np.float32),
}


def test_a_split_is_scored_over_the_queries_whose_candidates_were(tmp_path):
    """Of query 2 nothing was, and the last row only fills the batch up."""
    source = _source(tmp_path, {"1": {"a": 1}, "2": {"a": 1}})
    assert rankings.evaluate(source, OUTPUTS) == {"mrr": 0.5}


def test_a_split_without_judgments(tmp_path):
    with pytest.raises(UserError, match="the test split has no relevance judgments: evaluate on"):
        rankings.evaluate(_source(tmp_path, {"3": {"a": 1}}), OUTPUTS)
