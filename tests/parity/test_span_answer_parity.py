"""Heads for questions and spans, and their figures, against transformers, computed anew."""

import json

import pytest

from official.evaluation import squad_metrics
from tests.official.conversion import systems
from tests.official.evaluation import test_squad_metrics as metrics
from tests.official.modeling.objectives import test_span_answer as heads

# Their name of a figure, and ours.
NAMES = {
    "exact": "exact_match",
    "f1": "f1",
    "HasAns_exact": "has_answer_exact_match",
    "HasAns_f1": "has_answer_f1",
    "NoAns_exact": "no_answer_exact_match",
    "NoAns_f1": "no_answer_f1",
    "best_exact": "best_exact_match",
    "best_exact_thresh": "best_exact_match_threshold",
    "best_f1": "best_f1",
    "best_f1_thresh": "best_f1_threshold",
}


def test_heads_are_those_of_transformers(hf, tmp_path):
    path = tmp_path / "span_answer.npz"
    hf.run(systems.GOLDEN / "make_span_answer_golden.py", path)
    heads.check_bert(path)
    heads.check_xlnet(path)


def test_figures_of_500_perturbed_files(hf, tmp_path):
    given = [(*result, 0.3) for result in metrics.files(metrics.FILES, True, seed=1)]
    (tmp_path / "files.json").write_text(json.dumps(given))
    hf.run("hf_answer_metrics.py", tmp_path / "files.json", tmp_path / "figures.json")
    theirs = json.loads((tmp_path / "figures.json").read_text())
    assert len(theirs) == 500
    for (right, answers, odds, threshold), expected in zip(given, theirs, strict=True):
        actual = squad_metrics.evaluate(answers, right, True, odds, threshold)
        actual = squad_metrics.percentages(actual)
        expected = {ours: expected[name] for name, ours in NAMES.items() if name in expected}
        assert actual == pytest.approx(expected, rel=0, abs=1e-9)
