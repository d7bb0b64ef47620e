"""Tests of a study as a user runs it: a dry run, the runs of two variants, and going on."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import official
from experiments import study, study_page, study_runs
from official.shards import manifest
from official.utils import paths
from official.utils.errors import UserError
from tests import ROOT, small

PAGE = """\
name: trial
about: dropout in a short pretraining
sizes:
  mini:
    config: configs/smoke/bert_demo.yaml
    steps: 8
    seeds: 2
    rates: [1.0e-3, 3.0e-3]
    change: {recipe.batch_size: 8, recipe.report_every: 2, recipe.eval_every: 2,
             encoder.hidden_size: 16, encoder.intermediate_size: 16, segments.duplicates: 1}
    phases: [{share: 0.5, change: {segments.max_length: 16}}, {share: 0.5}]
variants:
  without: {}
  with: {encoder.dropout: 0.1}
  wild: {encoder.initializer_range: 1.0e+19, recipe.max_bad_steps: 1}
vocabulary: {vocab_size: 150}
measures:
  masked_lm: {}
  accuracy: {metric: masked_lm_accuracy, better: higher}
  short: {metric: masked_lm, evaluation: {segments.max_length: 16}, variants: [without, with]}
claims:
  - {order: without > with, by: masked_lm}
"""
# `with` also hides phrases; another variant has its pretraining; and there are tasks.
CHANGE = "encoder.dropout: 0.1, corruption.unit: phrase"
TUNED = PAGE.replace(
    "with: {encoder.dropout: 0.1}",
    f"with: {{{CHANGE}}}\n"
    f"  tuned: {{{CHANGE}, fine_tuning: {{objectives.0.bilstm: 4}}, after: cola}}",
).replace(
    "claims:",
    "  cola: {task: cola, metric: accuracy, override: [recipe.epochs=1]}\n"
    "  again: {task: cola, metric: accuracy, override: [recipe.epochs=2]}\n"
    "phrases: {min_count: 2, threshold: 0.1}\nclaims:",
)
# A student of the first variant.
TAUGHT = TUNED.replace("  wild:", "  taught: {encoder.num_layers: 1, teacher: without}\n  wild:")


@pytest.fixture
def texts(tmp_path):
    for name, count in (("text.txt", 60), ("held_out.txt", 12)):
        documents = small.documents(count)
        (tmp_path / name).write_text("\n\n".join("\n".join(lines) for lines in documents))
    (tmp_path / "page.yaml").write_text(PAGE)
    return tmp_path


def runner(folder, page=PAGE, size="mini", tasks="tasks"):
    (folder / "page.yaml").write_text(page)
    path = str(folder / "page.yaml")
    options = study_runs.Options(
        folder / "text.txt", folder / "held_out.txt", folder / "work",
        tasks and folder / tasks, jobs=2,
    )  # fmt: skip
    return study_runs.Runner(study_page.load(path), path, size, options, lambda line: None)


def test_the_plan_of_a_run(texts):
    planned = runner(texts).plan("with", 1, 3e-3)
    lengths = [phase.config.segments.max_length for phase in planned.phases]
    assert lengths == [16, 32] and [phase.steps for phase in planned.phases] == [4, 4]
    assert [phase.tokens for phase in planned.phases] == [8 * 16, 8 * 32]
    for phase in planned.phases:
        assert phase.config.seed == 1 and phase.config.encoder.dropout == 0.1
        assert phase.config.recipe.optimizer.learning_rate == 3e-3


def test_budgets_in_tokens_and_operations(texts):
    by_tokens = runner(texts, PAGE.replace("steps: 8", "tokens: 10240")).plan("with", 0, None)
    assert [phase.steps for phase in by_tokens.phases] == [40, 20]
    # 2 layers of 4 x 16 x 16 and 2 x 16 x 16, and the pooler of 16 x 16, six times.
    flops = 6 * (2 * (4 + 2) + 1) * 16 * 16
    assert by_tokens.phases[0].flops == flops * 128
    page = PAGE.replace("steps: 8", f"flops: {flops * 5120}")
    assert [phase.steps for phase in runner(texts, page).plan("with", 0, None).phases] == [20, 10]


def test_variants_with_less_text_and_more_steps(texts):
    page = PAGE.replace("{encoder.dropout: 0.1}", "{text: 0.25, budget: 3}")
    made = runner(texts, page)
    assert [phase.steps for phase in made.plan("with", 0, None).phases] == [12, 12]
    assert [phase.steps for phase in made.plan("without", 0, None).phases] == [4, 4]
    assert made.pretrained_as["with"] == "with"  # though the configs are alike but for the steps
    whole = (texts / "text.txt").read_text()
    part = made._text(made.plan("with", 0, None).text).read_text()
    assert whole.startswith(part) and part.endswith("\n\n")
    documents = part.rstrip("\n").split("\n\n")
    assert 0.25 * len(whole) <= len(part) < 0.25 * len(whole) + len(documents[-1]) + 2
    assert made._text(made.plan("without", 0, None).text) == texts / "text.txt"
    alike = runner(texts, PAGE.replace("{encoder.dropout: 0.1}", "{text: 0.25}"))
    assert alike.pretrained_as["with"] == "with"
    (texts / "text.txt").rename(texts / "text.gz")
    options = dataclasses.replace(made.options, text=texts / "text.gz")
    with pytest.raises(UserError, match="reads 25% of the text, which is not supported for packed"):
        study_runs.Runner(made.study, made.place, "mini", options)


def test_variants_that_differ_in_fine_tuning_share_their_pretraining(texts):
    made = runner(texts, TUNED)
    assert made.pretrained_as == {
        "without": "without", "with": "with", "tuned": "with", "wild": "wild"
    }  # fmt: skip
    assert made.expected["tuned"] == 0 < made.expected["with"] == made.expected["without"]
    said = study.estimate(made, [])
    assert "\ntuned                    the runs of with, fine-tuned in another way\n" in said


def test_the_rate_is_the_one_with_the_lowest_loss_on_the_held_out_text(texts, monkeypatch):
    """Also of a study that measures tasks alone; a run that diverged is not chosen."""
    made = runner(texts)
    losses = {("without", 1e-3): 3.0, ("without", 3e-3): 2.5, ("with", 1e-3): 4.0}

    def pretrained(run, cores):
        return study_runs.Result(
            study="trial", size="mini", variant=run.variant, seed=run.seed, rate=run.rate, id="",
            commit="", steps=8, tokens=1, seconds=1.0, diverged=False, measures={},
            loss=losses.get((run.variant, run.rate)),
        )  # fmt: skip

    monkeypatch.setattr(made, "_pretrained", pretrained)
    monkeypatch.setattr(made, "_with_tasks", lambda run, result, cores: result)
    assert [r.rate for r in made._variant("without", None)[:2]] == [3e-3, 3e-3]
    assert [r.rate for r in made._variant("with", None)[:2]] == [1e-3, 1e-3]


def test_a_student_learns_the_outputs_of_a_variant_before_it(texts):
    made = runner(texts, TAUGHT)
    assert made._groups == [["without", "taught"], ["with", "tuned"], ["wild"]]
    later = TAUGHT.replace("teacher: without", "teacher: wild")
    with pytest.raises(UserError, match=r"variants.taught.teacher: 'wild' is not a variant that"):
        runner(texts, later)
    alone = PAGE.replace("{encoder.dropout: 0.1}", "{teacher: without}")
    with pytest.raises(UserError, match=r"variants.with.teacher: no measure has a task"):
        runner(texts, alone)
    spans = TAUGHT.replace("  again:", "  squad: {task: squad1}\n  again:")
    with pytest.raises(UserError, match="measures.squad: a student learns one objective of class"):
        runner(texts, spans)


def test_what_is_missing_is_said_before_anything_runs(texts):
    with pytest.raises(UserError, match=r"sizes: there is no base \(the page has mini\)"):
        runner(texts, size="base")
    unknown = PAGE.replace("{encoder.dropout: 0.1}", "{encoder.drop: 0.1}")
    with pytest.raises(UserError, match=r"variants.with, phase 1: .*encoder.drop: unknown key"):
        runner(texts, unknown)
    with pytest.raises(UserError, match="measures.dream.task: 'dream' is not one of"):
        runner(texts, PAGE.replace("claims:", "  dream: {task: dream}\nclaims:"))
    with pytest.raises(UserError, match="needs --tasks=DIR"):
        runner(texts, PAGE.replace("claims:", "  sst2: {task: sst2}\nclaims:"), tasks=None)
    tuned = TUNED.replace("bilstm", "lstm")
    message = r"variants.tuned, measures.cola: .*objectives.0.lstm: unknown key"
    with pytest.raises(UserError, match=message):
        runner(texts, tuned)
    (texts / "held_out.txt").unlink()
    with pytest.raises(UserError, match="--held_out=.*there is no such file"):
        runner(texts)


def test_the_list_and_a_dry_run(texts, capsys):
    study.main(["--list"])
    assert "quick " in capsys.readouterr().out
    flags = [f"--{name}={texts / file}" for name, file in
             (("text", "text.txt"), ("held_out", "held_out.txt"), ("study", "page.yaml"),
              ("output", "work"))]  # fmt: skip
    study.main([*flags, "--dry_run"])
    out = capsys.readouterr().out
    assert "without                  3 runs of 8 steps, 1,536 tokens" in out
    assert "h of pretraining in all" in out and not (texts / "work").exists()


def test_a_variant_that_hides_phrases_has_a_lexicon(texts, monkeypatch):
    """Made once of the text; it is part of the shards and of the runs, of this variant alone."""
    page = PAGE.replace("{encoder.dropout: 0.1}", "{corruption.unit: phrase}")
    page += "phrases: {min_count: 3}\n"
    tokenizer, commands = texts / "vocabulary", []

    def record(log, cores, module, *arguments):
        output = next(a for a in arguments if a.startswith("--output=")).partition("=")[2]
        paths.path(output).parent.mkdir(parents=True, exist_ok=True)
        paths.path(output).write_text("")
        commands.append((module.rpartition(".")[2], arguments))
        return True

    def made(page, variant):
        """The shards of both phases, the run's id, and the flags of lexicons in the commands."""
        own = runner(texts, page)
        monkeypatch.setattr(own, "_command", record)
        run = own.plan(variant, 0, None)
        commands.clear()
        sources = {"train": texts / "text.txt", "held_out": texts / "held_out.txt"}
        shards = [own._shards(phase, sources, tokenizer, None).name for phase in run.phases]
        flags = [[a for a in flags if a.startswith("--phrases")] for _, flags in commands]
        return shards, own._id(run, tokenizer), [name for name, _ in commands], flags

    shards, id_, modules, flags = made(page, "with")
    assert modules == ["build_phrases", *["build_shards"] * 4] and len(set(shards)) == 2
    (lexicon,) = (texts / "work").glob("phrases-*.txt")
    assert flags == [[], *[[f"--phrases={lexicon}"]] * 4]
    other = made(page.replace("min_count: 3", "min_count: 4"), "with")
    assert other[1] != id_ and not set(other[0]) & set(shards) and other[2] == modules
    assert len(list((texts / "work").glob("phrases-*.txt"))) == 2
    plain = made(page, "without")
    assert plain[:2] == made(PAGE, "without")[:2] and plain[2] == ["build_shards"] * 4
    assert plain[3] == [[]] * 4 and not set(plain[0]) & set(shards)
    with pytest.raises(
        UserError, match=r"variants.with, phase 1: corruption.unit: entity: a study"
    ):
        runner(texts, page.replace("unit: phrase", "unit: entity"))


@pytest.mark.slow
@pytest.mark.long
def test_a_study_from_texts_to_verdicts_goes_on_after_a_stop(texts):
    """Stopped in the middle; the same command ends it, and then has nothing to do."""
    (texts / "page.yaml").write_text(TAUGHT)
    cola = texts / "tasks" / "glue" / "CoLA"
    cola.mkdir(parents=True)
    for name, count in (("train", 64), ("dev", 20)):
        lines = [f"s\t{i % 2}\t\t{'the city' if i % 2 else 'city the'}\n" for i in range(count)]
        (cola / f"{name}.tsv").write_text("".join(lines))
    command = [
        sys.executable, "-m", "experiments.study", f"--study={texts / 'page.yaml'}", "--jobs=2",
        f"--text={texts / 'text.txt'}", f"--held_out={texts / 'held_out.txt'}",
        f"--output={texts / 'work'}", f"--tasks={texts / 'tasks'}",
    ]  # fmt: skip
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    first = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    runs = texts / "work" / "runs"
    while not list(runs.glob("*/*/phase-1/checkpoints/*")):
        assert first.poll() is None
        time.sleep(0.2)
    first.send_signal(signal.SIGTERM)
    assert first.wait(120) and not (texts / "work" / "results.jsonl").exists()
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    results = study_runs.read_results(texts / "work" / "results.jsonl")
    # Two rates with seed 0, and seed 1 with the better one; a rate cannot save the wild variant.
    for variant in ("without", "with", "tuned", "taught", "wild"):
        own = [result for result in results if result.variant == variant]
        assert sorted((r.seed, r.rate) for r in own)[:2] == [(0, 1e-3), (0, 3e-3)]
        assert len(own) == 3 and {r.diverged for r in own} == {variant == "wild"}
        assert own[0].rate == own[1].rate and (own[0].seed, own[1].seed) == (0, 1)
        assert variant == "wild" or own[2].measures["masked_lm"] >= own[0].measures["masked_lm"]
        assert variant == "wild" or [0 <= r.measures["cola"] <= 1 for r in own[:2]] == [True] * 2
        assert "cola" not in own[2].measures  # the rate that was not chosen
        assert ["short" in r.measures for r in own[:2]] == [variant in ("without", "with")] * 2
        assert "short" not in own[2].measures
    with_, tuned = ([r for r in results if r.variant == name] for name in ("with", "tuned"))
    assert [r.id for r in with_] == [r.id for r in tuned] and not (runs / "tuned").exists()
    assert [r.seconds for r in with_] == [r.seconds for r in tuned]
    for result in with_[:2]:  # a fine-tuning of each variant
        folder = runs / "with" / result.id
        models = [path.parent / "model" for path in folder.glob("cola-0-*/metrics.json")]
        assert len(models) == 2 and all((model / "config.yaml").exists() for model in models)
        log = (folder / "log.txt").read_text()
        starts = re.findall(r"--init=(\S+) --model_dir=\S+/again-0-", log)
        # The variant with the BiLSTM begins on the model of its own first task.
        assert len(starts) == 2 and str(folder / "phase-2") == starts[0]
        assert set(re.findall(r"--override=seed=(\d+)", log)) == {str(result.seed)}
        assert Path(starts[1]) in models
        kept = [m for m in models if "bilstm: 4" in (m / "config.yaml").read_text()]
        assert [Path(starts[1])] == kept
    without, taught = ([r for r in results if r.variant == n] for n in ("without", "taught"))
    for teacher, student in zip(without[:2], taught[:2], strict=True):  # by seed
        models = (runs / "without" / teacher.id).glob("*-0-*/model")  # of both tasks
        log = (runs / "taught" / student.id / "log.txt").read_text()
        teachers = re.findall(r'"weight": 0.0.*"teachers": \["(.+?)"\], "temperature": 1.0', log)
        assert len(teachers) == 2 and sorted(teachers) == sorted(map(str, models))
    (file,) = (runs / "without" / without[0].id).glob("short-*.json")
    # The model of the last phase, on shards of the length of the evaluation.
    (data,) = set(
        re.findall(
            r"--mode=eval --model_dir=\S+/phase-2 .*--data=(\S+)",
            (file.parent / "log.txt").read_text(),
        )
    )
    metrics = official.evaluate(
        runs / "without" / without[0].id / "phase-2", data, overrides=["segments.max_length=16"]
    )
    assert manifest.read(data).max_length == 16
    assert without[0].measures["short"] == pytest.approx(metrics["train"]["masked_lm"], rel=1e-6)
    # Of two lengths, with phrases or not, and held-out text of the evaluation for both.
    assert len(list((texts / "work").glob("shards-*"))) == 6
    (lexicon,) = (texts / "work").glob("phrases-*.txt")
    assert all(len(line.split()) > 1 for line in lexicon.read_text().splitlines())
    (shards,) = (texts / "work").glob("tasks-*")  # one for four encoders
    assert manifest.read(shards).split("validation")[0].records == 20
    steps = [x for x, _ in results[0].curve]
    assert steps == [2 * 128, 4 * 128, 4 * 128 + 2 * 256, 4 * 128 + 4 * 256]
    logs = {path: path.stat().st_size for path in runs.glob("*/*/log.txt")}
    report = (texts / "work" / "report.md").read_text()
    assert "| wild | 2, 2 diverged | - | - | - | - |" in report
    again = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    assert logs == {path: path.stat().st_size for path in runs.glob("*/*/log.txt")}
    assert report in again.stdout and "by the speed of the earlier runs" in again.stdout
    assert json.loads((texts / "work" / "results.jsonl").read_text().splitlines()[0])["steps"] == 8
