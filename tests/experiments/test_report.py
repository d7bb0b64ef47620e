"""Tests of the tables, verdicts and pages of studies, from made results."""

import dataclasses
import json
import re

import pytest

from experiments import report, study_page, study_runs
from experiments.study_runs import Result
from official.utils.errors import UserError
from tests import ROOT

PAGE = """\
name: made
about: a study
source: Somebody, 2020, table 2
sizes: {mini: {config: bert_mini.yaml, steps: 10}}
variants: {one: {}, two: {}, three: {}}
measures: {loss: {}, sst2: {task: sst2}}
claims:
  - {order: two > one, by: loss}
  - {order: three > one, by: sst2}
paper: {where: "table 2, page 4", figures: {GLUE: {one: 80.5, two: 81.0}}}
"""
LOSSES = {"one": [2.0, 2.1, 2.2], "two": [1.5, 1.61, 1.7], "three": [2.3, 2.2, 2.4]}


def results():
    made = [
        Result(
            study="made", size="mini", variant=variant, seed=seed, rate=1e-3, id=f"{variant}{seed}",
            commit="abc", steps=10, tokens=1000, seconds=1800.0, diverged=False,
            measures={"loss": value, "sst2": 0.9 - value / 10},
            curve=[(500, value + 1), (1000, value)],
        )
        for variant, values in LOSSES.items()
        for seed, value in enumerate(values)
    ]  # fmt: skip
    tried = dataclasses.replace(made[0], rate=1e-4, id="tried", measures={"loss": 9.0})
    return [*made[:3], tried, *made[3:]]


@pytest.fixture
def study(tmp_path):
    (tmp_path / "made.yaml").write_text(PAGE)
    return study_page.load(tmp_path / "made.yaml")


def test_the_table_has_means_errors_and_paired_differences(study):
    text = report.markdown(study, results())
    assert "| one | 3 | 2.1 ± 0.058 |  | 0.69 ± 0.0058 |  |" in text
    assert "| two | 3 | 1.603 ± 0.058 | +0.497 (+0.482 to +0.511) |" in text
    assert "| two > one | loss | **holds** | 9e-05 |" in text
    assert "| three > one | sst2 | **not resolved** (three > one: p = 0.074) | 0.074 |" in text
    assert "| the paper (table 2, page 4) | GLUE |" in text and "| one | 80.5 |" in text


def test_the_settings_name_rates_runs_and_the_command(study):
    text = report.markdown(study, results())
    assert "Config `bert_mini.yaml`. 10 runs, 5.0 hours of pretraining" in text
    assert "Learning rates 0.0001, 0.001 were tried with seed 0. Chosen: one 0.001," in text
    assert "--study=configs/studies/made.yaml --size=mini" in text and "--tasks=DIR" in text
    assert "Commit abc." in text
    shared = [dataclasses.replace(r, id=r.id.replace("two", "one")) for r in results()]
    assert "7 runs, 3.5 hours of pretraining" in report.markdown(study, shared)


def test_a_run_that_diverged_is_shown_and_not_left_out(study):
    made = results()
    made[4] = dataclasses.replace(made[4], diverged=True, measures={})
    text = report.markdown(study, made)
    assert "| two | 3, 1 diverged |" in text
    assert "**not resolved** (two > one: 1 of 3 runs of two diverged) | - |" in text


def test_two_results_of_one_run_are_refused(study):
    made = results()
    with pytest.raises(UserError, match=r"two runs of one with seed 0 .*\(one0, other\): remove"):
        report.markdown(study, [*made, dataclasses.replace(made[0], id="other")])


def test_results_are_written_and_read_again(tmp_path):
    path = tmp_path / "made.jsonl"
    path.write_text("".join(json.dumps(dataclasses.asdict(r)) + "\n" for r in results()))
    assert study_runs.read_results(path) == results()
    path.write_text(path.read_text() + '{"study": "made"}\n')
    with pytest.raises(UserError, match=r"made.jsonl, line 11: not a result"):
        study_runs.read_results(path)


def test_the_curves_have_a_line_and_a_band_for_each_variant(study, tmp_path):
    assert report.plot(study, results(), tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    flat = [dataclasses.replace(result, curve=()) for result in results()]
    assert not report.plot(study, flat, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_findings_begin_with_what_is_decided_and_end_with_the_rest(study, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "_PAGES", tmp_path)
    lines = "".join(json.dumps(dataclasses.asdict(r)) + "\n" for r in results())
    (tmp_path / "made.jsonl").write_text(lines)
    page = report.findings(tmp_path)
    first, section, last = re.split(r"^## A study\n|^## Not resolved\n", page, flags=re.M)
    link = "[A study](#a-study)"
    assert f"| {link} | two > one | loss | holds | +0.497 (+0.482 to +0.511) |\n" in first
    assert last.endswith(f"| {link} | three > one | sst2 | three > one: p = 0.074 |\n")
    assert page.count(link) == 2 and link not in section


def test_the_page_of_findings_is_made_of_the_results():
    page = report.findings(ROOT / "experiments" / "results")
    assert (ROOT / "docs" / "findings.md").read_text() == page


def test_findings_need_results(tmp_path):
    with pytest.raises(UserError, match="there are no results"):
        report.findings(tmp_path)
