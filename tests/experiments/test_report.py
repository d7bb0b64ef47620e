"""Tests of the tables, verdicts and pages of studies, from made results."""

import dataclasses
import json
import math
import re
import shutil

import pytest

from experiments import claims, report, study_page, study_runs
from experiments import study as study_command
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


def test_the_table_has_means_and_errors_and_each_link_a_verdict(study):
    text = report.markdown(study, results())
    assert "| one | 3 | 2.1 ± 0.058 | 0.69 ± 0.0058 |" in text
    assert "| two | 3 | 1.603 ± 0.058 | 0.7397 ± 0.0058 |" in text
    note = "exploratory: the page is younger than its runs"
    first = f"| two > one | loss | **better**, as claimed ({note}) | "
    assert f"{first}+0.497 (+0.482 to +0.511) | - | 4.5e-05, 0.025 |" in text
    assert f"| three > one | sst2 | **open** (these runs would show 0.033; {note}) | " in text
    assert text.count(" | - | 0.074, 0.05 |") == 1
    assert "| the paper (table 2, page 4) | GLUE |" in text and "| one | 80.5 |" in text


CONTROLLED = """\
name: made
about: a study
sizes: {mini: {config: bert_mini.yaml, steps: 10, seeds: 3, rates: [1.0e-3, 2.0e-3]}}
variants: {one: {}, two: {encoder.dropout: 0.1}, long: {budget: 2}, fresh: {budget: 1.0e-9}}
measures: {loss: {margin: 0.1, because: a tenth}, sst2: {task: sst2}}
controls:
  - {order: long > one > fresh, by: loss}
  - {order: one > fresh, by: sst2}
claims:
  - {order: two > one, by: loss}
  - {order: two > one, by: sst2}
"""
CONTROLS = {
    "one": ([2.0, 2.1, 2.2], [0.7, 0.7, 0.71]), "two": ([1.75, 1.86, 1.95], [0.8, 0.81, 0.8]),
    "long": ([1.5, 1.6, 1.71], [0.7, 0.7, 0.7]), "fresh": ([6.0, 6.0, 6.01], [0.71, 0.7, 0.7]),
}  # fmt: skip


@pytest.fixture
def controlled(tmp_path):
    """A study with controls, and its results: rates were tried with the tuning seed."""
    (tmp_path / "made.yaml").write_text(CONTROLLED)
    study = study_page.load(tmp_path / "made.yaml")
    runs = [
        Result(
            study="made", size="mini", variant=variant, seed=seed, rate=2e-3, id=f"{variant}{seed}",
            commit="abc", steps=10, tokens=1000, seconds=1.0, diverged=False,
            measures={"loss": loss, "sst2": score}, page=study.fingerprint("mini"),
        )
        for variant, (losses, scores) in CONTROLS.items()
        for seed, (loss, score) in enumerate(zip(losses, scores, strict=True))
    ]  # fmt: skip
    tried = [
        dataclasses.replace(run, seed=100, rate=rate, id=f"{run.variant}-{rate}", measures={})
        for run in runs[::3]
        for rate in (1e-3, 2e-3, 4e-3)
    ]
    return study, [*runs, *tried]


def test_a_measure_without_its_control_gives_no_verdict(controlled):
    study, made = controlled
    by_loss, by_task = report.judged(study, made)
    assert (by_loss.verdict.verdict, by_loss.exploratory) == ("better", "")
    assert by_task.verdict.verdict == "void"
    assert by_task.verdict.reason == "control one > fresh is open"
    text = report.markdown(study, made)
    assert "long > one by loss +0.497 (" in text and "one > fresh by loss +3.9 (" in text
    assert "**open**, so it gives no verdicts" in text
    assert "A difference of 0.1 in loss counts as none: a tenth." in text
    assert report.counted(report.judged(study, made)) == (
        "1 better, 0 worse, 0 equivalent, 0 open, 1 void"
    )


def test_a_difference_is_worth_steps_by_the_control(controlled):
    """Twice the steps give 0.497 nats; 0.247 are 2^(0.247 / 0.497) - 1 = 41% of the steps."""
    study, made = controlled
    assert report.judged(study, made)[0].worth == pytest.approx(0.411, abs=5e-4)
    assert "| +41% |" in report.markdown(study, made)
    without = dataclasses.replace(study, controls=study.controls[1:])
    assert math.isnan(report.judged(without, made)[0].worth)


def test_a_page_that_is_younger_than_its_runs_is_exploratory(controlled):
    study, made = controlled
    words = dataclasses.replace(study, note="A note.", about="Another title")
    assert report.judged(words, made)[0].exploratory == ""
    claim = claims.Claim("two = one", "loss")
    later = dataclasses.replace(study, claims=(claim, *study.claims[1:]))
    assert report.judged(later, made)[0].exploratory == "the page is younger than its runs"


def test_the_rates_that_were_tried_and_an_edge_of_them(controlled):
    study, made = controlled
    text = report.markdown(study, made)
    assert (
        "Learning rates 0.001, 0.002, 0.004 were tried with seed 100. Chosen: one 0.002, " in text
    )
    less = [run for run in made if run.rate != 4e-3]
    assert "Chosen: one 0.002 (the last one tried)," in report.markdown(study, less)


def test_the_settings_name_rates_runs_and_the_command(study):
    text = report.markdown(study, results())
    assert "Config `bert_mini.yaml`. 10 runs, 5.0 hours of pretraining" in text
    assert "Learning rates 0.0001, 0.001 were tried with seed 0. Chosen: one 0.001" in text
    assert "--study=configs/studies/made.yaml --size=mini" in text and "--tasks=DIR" in text
    assert "Commit abc." in text
    shared = [dataclasses.replace(r, id=r.id.replace("two", "one")) for r in results()]
    assert "7 runs, 3.5 hours of pretraining" in report.markdown(study, shared)


def test_a_run_that_diverged_is_shown_and_not_left_out(study):
    made = results()
    made[4] = dataclasses.replace(made[4], diverged=True, measures={})
    text = report.markdown(study, made)
    assert "| two | 3, 1 diverged |" in text
    assert "| two > one | loss | **open** (1 of 3 runs of two diverged; " in text


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
    known, explored, section, last = re.split(
        r"^## What was explored\n|^## A study\n|^## Open and void\n", page, flags=re.M
    )
    assert "\nVerdicts: 0 better, 0 worse, 0 equivalent, 0 open, 0 void\n" in known
    assert "\nExploratory: 1 better, 0 worse, 0 equivalent, 1 open, 0 void\n" in known
    link = "[A study](#a-study)"
    assert f"| {link} | two > one | loss | **better**, as claimed (" in explored
    row = next(line for line in last.splitlines() if "three > one" in line)
    assert row.startswith(f"| {link} | three > one | sst2 | **open** (")
    # The differences are 1, 2 and 3 points, so the mean is twice the SD.
    assert row.endswith("| 5 seeds, if the difference is as found |")
    assert page.count(link) == 2 and link not in section + known


def test_what_is_known_is_said_in_words(controlled, tmp_path, monkeypatch):
    study, made = controlled
    words = {"one": "one thing", "two": "two things", "loss": "the loss"}
    monkeypatch.setattr(report, "_PAGES", tmp_path)
    monkeypatch.setattr(study_page, "load", lambda _: dataclasses.replace(study, words=words))
    lines = "".join(json.dumps(dataclasses.asdict(r)) + "\n" for r in made)
    (tmp_path / "made.jsonl").write_text(lines)
    page = report.findings(tmp_path)
    assert "What was explored" not in page
    sentences = re.findall(r"^\d+\. (.*)$", page, re.MULTILINE)
    assert sentences == [
        "With two things, the loss is 0.247 nats lower than with one thing (95%: 0.232 to 0.261), "
        "worth 41% of the steps: as claimed. [A study](#a-study)"
    ]


def test_the_page_of_findings_is_made_of_the_results(tmp_path):
    study_command.main(["--all", f"--findings={tmp_path / 'findings.md'}"])
    made = (tmp_path / "findings.md").read_bytes()
    assert made == (ROOT / "docs" / "findings.md").read_bytes()


def test_all_studies_without_results_are_run_in_order(tmp_path, monkeypatch):
    ran, begun = [], []

    def run(options, path, output):
        study = study_page.load(path)
        ran.append(study.name)
        line = dataclasses.replace(
            results()[0], study=study.name, variant=next(iter(study.variants))
        )
        line = dataclasses.replace(line, page=study.fingerprint("mini"), measures={})
        found = output / "results.jsonl"
        begun.append((study.name, found.exists()))
        output.mkdir(parents=True, exist_ok=True)
        found.write_text(json.dumps(dataclasses.asdict(line)) + "\n")
        if study.name == "mask_rate":
            raise UserError("stopped")

    monkeypatch.setattr(study_command, "run", run)
    kept, page = tmp_path / "results", tmp_path / "findings.md"
    kept.mkdir()
    folders = [f"--results={kept}", f"--findings={page}", f"--output={tmp_path / 'work'}"]
    command = ["--all", "--text=text.txt", "--held_out=held_out.txt", *folders]
    with pytest.raises(SystemExit):
        study_command.main(command)
    assert ran == ["controls", "plateau", "mask_rate"] and not page.exists()
    assert sorted(path.stem for path in kept.glob("*.jsonl")) == ["controls", "plateau"]
    assert [path.name for path in (kept / "unfinished").iterdir()] == ["mask_rate.jsonl"]
    assert not any(exists for _, exists in begun)
    ran.clear()
    shutil.rmtree(tmp_path / "work")
    monkeypatch.setattr(study_command, "_FIRST", ("controls", "plateau"))
    monkeypatch.setattr(study_command, "_PAGES", _pages(tmp_path, "quick", "mask_rate", "controls"))
    with pytest.raises(SystemExit):
        study_command.main(command)
    assert ran == ["mask_rate"]  # controls have results, and quick is an example
    assert begun[-1] == ("mask_rate", True)  # with the lines of the runs that had ended
    monkeypatch.setattr(study_command, "run", lambda *arguments: None)
    monkeypatch.setattr(report, "findings", lambda folder: "")
    study_command.main(command)
    assert (kept / "mask_rate.jsonl").exists() and not list((kept / "unfinished").iterdir())


def _pages(folder, *names):
    (folder / "pages").mkdir()
    for name in names:
        shutil.copy(report._PAGES / f"{name}.yaml", folder / "pages")
    return folder / "pages"


def test_findings_need_results(tmp_path):
    with pytest.raises(UserError, match="there are no results"):
        report.findings(tmp_path)
