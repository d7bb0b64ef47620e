"""Tests of a study as a user runs it: a dry run, the runs of two variants, and going on."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import official
from experiments import forecast, study, study_page, study_runs
from official.saving import metrics_log
from official.shards import manifest
from official.training import schedules
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
    rates: [1.0e-6, 1.0e-1, 1.0e+3]
    change: {recipe.batch_size: 8, recipe.report_every: 2, recipe.eval_every: 2,
             encoder.hidden_size: 16, encoder.intermediate_size: 16, segments.duplicates: 1}
    phases: [{share: 0.5, change: {segments.max_length: 16}}, {share: 0.5}]
variants:
  without: {}
  with: {encoder.dropout: 0.1}
  wild: {encoder.initializer_range: 1.0e+19, recipe.max_bad_steps: 1, budget: 0}
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
# What another objective's encoder knows; new weights are the control.
ADAPTED = PAGE.replace(
    "  wild:",
    "  replaced: {corruption.mask_prob: 0.85, corruption.random_prob: 0.0,\n"
    "             corruption.replacement: true, segments.format: halves,\n"
    "             objectives: [{type: generator, size: 0.5}, {type: replaced_tokens}]}\n"
    "  fresh: {budget: 0}\n"
    "  wild:",
).replace(
    "claims:",
    "  known: {metric: masked_lm, variants: [without, replaced, fresh], adaptation: {\n"
    "    recipe.steps: 5, recipe.optimizer.learning_rate: 5.0e-3, segments.format: pairs,\n"
    "    corruption: {type: token_masks, max_predictions: 5}, objectives: [{type: masked_lm}]}}\n"
    "  known_short: {metric: masked_lm, variants: [without],\n"
    "    evaluation: {segments.max_length: 16},\n"
    "    adaptation: {recipe.steps: 5, objectives: [{type: masked_lm}]}}\n"
    "claims:",
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


def runner(folder, page=PAGE, size="mini", tasks="tasks", report=lambda line: None):
    (folder / "page.yaml").write_text(page)
    path = str(folder / "page.yaml")
    options = study_runs.Options(
        folder / "text.txt", folder / "held_out.txt", folder / "work",
        tasks and folder / tasks, jobs=2,
    )  # fmt: skip
    return study_runs.Runner(study_page.load(path), path, size, options, report)


def result(run, **values):
    """A result of a run without measures."""
    plain = {
        "study": "trial", "size": "mini", "variant": run.variant, "seed": run.seed,
        "rate": run.rate, "id": "", "commit": "", "steps": 8, "tokens": 1, "seconds": 1.0,
        "diverged": False, "measures": {},
    }  # fmt: skip
    return study_runs.Result(**(plain | values))


class Commands:
    """Records the commands of a runner; trainings and evaluations write the metrics of `values`.

    Attributes:
      made: the module, the mode or "" and the arguments of each command.
      values: a loss for each model folder or output, by a part of its path.
    """

    def __init__(self, monkeypatch, made, values=None):
        self.made, self.values = [], values or {}
        monkeypatch.setattr(made, "_command", self)

    def __call__(self, log, cores, module, *arguments):
        flags = [argument.partition("=")[::2] for argument in arguments]
        named = dict(flags)
        named["--override"] = [value for flag, value in flags if flag == "--override"]
        mode = named.get("--mode", "")
        self.made.append((module.rpartition(".")[2], mode, named))
        output = Path(named.get("--model_dir" if mode == "train_and_eval" else "--output"))
        loss = next((v for part, v in self.values.items() if part in str(output)), 9.0)
        if loss is None:
            return False
        metrics = {"loss": loss + 1, "masked_lm": loss}
        if mode == "train_and_eval":
            output.mkdir(parents=True, exist_ok=True)
            steps = int([o for o in named["--override"] if o.startswith("recipe.steps=")][-1][13:])
            records = [
                metrics_log.Record(steps, "train", {"loss": 9.5, "steps_per_second": 4.0}),
                metrics_log.Record(0, "validation", {"loss": 7.0, "masked_lm": 7.0}),
                metrics_log.Record(steps, "validation", metrics),
            ]
            text = "".join(record.line() for record in records)
            (output / metrics_log.FILE).write_text(text)
        elif mode == "eval":
            output.write_text(json.dumps({"train": metrics}))
        return True

    def of(self, mode):
        """The flags of the commands with a mode."""
        return [flags for _, found, flags in self.made if found == mode]

    @property
    def shards(self):
        """The flags of the commands that make shards, by their folder."""
        made = [flags for module, _, flags in self.made if module == "build_shards"]
        return {flags["--output"]: flags for flags in made}


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
    said = forecast.hours(made, None)
    assert "\ntuned                    the runs of with, fine-tuned in another way\n" in said


@pytest.mark.parametrize(
    "losses, tried, chosen, said",
    [
        ({1e-3: 3.0, 2e-3: 2.5, 4e-3: 2.7}, [1e-3, 2e-3, 4e-3], 2e-3, None),
        ({2e-3: 3.0, 4e-3: 2.9, 8e-3: 2.5}, [1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2], 8e-3, None),
        # The two highest ones diverge; the lowest ones are worse.
        ({5e-4: 3.0, 1e-3: 2.5}, [5e-4, 1e-3, 2e-3, 4e-3], 1e-3, None),
        (
            {rate: -rate for rate in (4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)},
            [1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2], 6.4e-2,
            "without: the learning rate 0.064 is the highest of the 7 that were tried",
        ),
        (
            {},
            [6.25e-5, 1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3], 6.25e-5,
            "without: the learning rate 6.25e-05 is the lowest of the 7 that were tried",
        ),
    ],
)  # fmt: skip
def test_a_seed_of_its_own_chooses_the_rate(texts, monkeypatch, losses, tried, chosen, said):
    """By the loss; beyond the rates of the page while the best one is at an edge of all."""
    lines = []
    page = PAGE.replace("[1.0e-6, 1.0e-1, 1.0e+3]", "[1.0e-3, 2.0e-3, 4.0e-3]")
    made = runner(texts, page, report=lines.append)

    def pretrained(run, cores):
        return result(run, loss=losses.get(run.rate), diverged=run.rate not in losses)

    monkeypatch.setattr(made, "_tokenizer", lambda cores: Path("vocabulary-1"))
    monkeypatch.setattr(made, "_pretrained", pretrained)
    monkeypatch.setattr(made, "_with_tasks", lambda run, result, cores: result)
    found = [(r.seed, r.rate) for r in made._variant("without", None)]
    assert found == [(0, chosen), (1, chosen), *((100, rate) for rate in tried)]
    assert made.num_runs("without") == 5  # as far as is known before
    assert [line.partition(":")[0] for line in lines] == ["without"] * bool(said)
    assert said is None or lines[0].startswith(said)


@pytest.mark.parametrize("rates, rate", [("[2.0e-3]", 2e-3), ("[]", None)])
def test_one_rate_needs_no_tuning(texts, monkeypatch, rates, rate):
    made = runner(texts, PAGE.replace("[1.0e-6, 1.0e-1, 1.0e+3]", rates))
    monkeypatch.setattr(made, "_tokenizer", lambda cores: Path("vocabulary-1"))
    monkeypatch.setattr(made, "_pretrained", lambda run, cores: result(run, loss=1.0))
    monkeypatch.setattr(made, "_with_tasks", lambda run, result, cores: result)
    found = [(r.seed, r.rate) for r in made._variant("without", None)]
    assert found == [(0, rate), (1, rate)] and made.num_runs("without") == 2
    assert made._held_out(made.plan("without", 1, rate)) == made._half(tuning=False)


def test_the_halves_of_the_held_out_text(texts):
    """Whole documents, each in one of the two; both have about as many bytes."""
    made = runner(texts)
    whole = (texts / "held_out.txt").read_text()
    assert not (texts / "work").exists()
    first, second = made._half(tuning=True), made._half(tuning=False)
    assert first.read_text() + second.read_text() == whole
    assert first.read_text().endswith("\n\n") and second.read_text()[:1].strip()
    documents = [half.read_text().strip().split("\n\n") for half in (first, second)]
    assert sum(map(len, documents)) == 12 and min(map(len, documents)) >= 4
    longest = max(len(text) for texts_ in documents for text in texts_)
    assert 0 <= first.stat().st_size - len(whole) / 2 <= longest + 2
    assert made._held_out(made.plan("with", 1, 1e-3)) == second
    assert made._held_out(made.plan("with", 100, 1e-3)) == first
    lines = [json.dumps({"text": f"the city {i}"}) + "\n" for i in range(6)]
    (texts / "held_out.jsonl").write_text("".join(lines))
    rows = study_runs.Runner(
        made.study, made.place, "mini",
        dataclasses.replace(made.options, held_out=texts / "held_out.jsonl"),
    )  # fmt: skip
    halves = [rows._half(tuning) for tuning in (True, False)]
    assert [half.suffix for half in halves] == [".jsonl"] * 2
    assert [half.read_text() for half in halves] == ["".join(lines[:3]), "".join(lines[3:])]


def test_held_out_texts_without_two_halves_are_refused(texts):
    (texts / "held_out.txt").write_text("a city\nanother city\n")
    with pytest.raises(UserError, match="--held_out=.*no document begins in its second half"):
        runner(texts).run()
    assert not list(texts.glob("work/runs"))
    made = runner(texts)
    (texts / "held_out.gz").write_bytes(b"")
    options = dataclasses.replace(made.options, held_out=texts / "held_out.gz")
    with pytest.raises(UserError, match="reads its halves apart, which is not supported for pack"):
        study_runs.Runner(made.study, made.place, "mini", options)


def test_tuning_and_measures_read_other_halves(texts, monkeypatch):
    """Of the same training data. Results say which page they are of, also after it changed."""
    made = runner(texts)
    commands = Commands(monkeypatch, made, {"phase-2": 3.0})
    tuned, counted = (made._pretrained(made.plan("without", n, 1e-2), None) for n in (100, 0))
    trained = commands.of("train_and_eval")
    data = [(flags["--data"], flags["--validation_data"]) for flags in trained]
    assert [a for a, _ in data[:2]] == [a for a, _ in data[2:]]
    assert not {b for _, b in data[:2]} & {b for _, b in data[2:]}
    assert [commands.shards[b]["--input"] for _, b in data] == [
        str(made._half(tuning)) for tuning in (True, True, False, False)
    ]
    assert (tuned.loss, tuned.measures) == (4.0, {})
    assert (counted.loss, counted.measures) == (4.0, {"masked_lm": 3.0})
    page = made.study.fingerprint("mini")
    assert tuned.page == counted.page == page and len(page) == 12
    other = runner(texts, PAGE.replace("order: without > with", "order: with > without"))
    assert other.study.fingerprint("mini") != page
    again = Commands(monkeypatch, other)
    assert other._pretrained(other.plan("without", 0, 1e-2), None) == counted
    assert not again.of("train_and_eval")


def test_runs_that_have_a_line_are_not_made_again(texts, monkeypatch):
    """A stopped study has the lines of the runs that ended; they suffice in another folder."""

    class Stop(Exception):
        pass

    def lines():
        return (texts / "work" / "results.jsonl").read_text().splitlines()

    made = runner(texts)
    commands = Commands(monkeypatch, made, {"phase-2": 3.0})
    whole = made.run()
    assert [json.loads(line) for line in lines()] == [
        json.loads(json.dumps(dataclasses.asdict(each))) for each in whole
    ]
    trainings = len(commands.of("train_and_eval"))

    shutil.rmtree(texts / "work")
    made = runner(texts)
    commands = Commands(monkeypatch, made, {"phase-2": 3.0})
    evaluate = made._evaluated

    def stop_late(run, name, cores):
        if (run.variant, run.seed) == ("with", 1):
            raise Stop
        return evaluate(run, name, cores)

    monkeypatch.setattr(made, "_evaluated", stop_late)
    with pytest.raises(Stop):
        made.run()
    kept = [json.loads(line) for line in lines()]
    ended = [(line["variant"], line["seed"]) for line in kept]
    assert ("with", 0) in ended and ("with", 1) not in ended
    assert ended.count(("with", 100)) == sum(
        (each.variant, each.seed) == ("with", 100) for each in whole
    )

    only = (texts / "work" / "results.jsonl").read_text()
    shutil.rmtree(texts / "work")
    (texts / "work").mkdir()
    (texts / "work" / "results.jsonl").write_text(only)
    made = runner(texts)
    commands = Commands(monkeypatch, made, {"phase-2": 3.0})
    seconds = [dataclasses.replace(each, seconds=0.0) for each in made.run()]
    assert seconds == [dataclasses.replace(each, seconds=0.0) for each in whole]
    missing = [each for each in whole if (each.variant, each.seed) not in ended]
    assert len(commands.of("train_and_eval")) == 2 * len(missing) < trainings

    other = runner(texts, PAGE.replace("order: without > with", "order: with > without"))
    commands = Commands(monkeypatch, other, {"phase-2": 3.0})
    shutil.rmtree(texts / "work" / "runs")
    other.run()  # the lines are of another page
    assert len(commands.of("train_and_eval")) == trainings


def test_teachers_are_made_again_for_their_models(texts, monkeypatch):
    page = PAGE.replace("with: {encoder.dropout: 0.1}", "with: {teacher: without}")
    page = page.replace("claims:", "  cola: {task: cola, metric: accuracy}\nclaims:")
    made = runner(texts, page)
    monkeypatch.setattr(made, "_tokenizer", lambda cores: Path("vocabulary-1"))
    monkeypatch.setattr(made, "_with_tasks", lambda run, result, cores: result)
    pretrained = []

    def pretrain(run, cores):
        pretrained.append((run.variant, run.seed))
        return result(run, loss=1.0, id=made._id(run, Path("vocabulary-1")))

    monkeypatch.setattr(made, "_pretrained", pretrain)
    (texts / "work").mkdir()
    for name in ("without", "with"):
        made._variant(name, None)
    pretrained.clear()
    for name in ("without", "with"):
        made._variant(name, None)
    assert pretrained == [("without", 0), ("without", 1)]


def test_results_of_earlier_pages_have_no_fingerprint(texts):
    line = json.loads(json.dumps(dataclasses.asdict(result(runner(texts).plan("with", 0, None)))))
    del line["page"]
    (texts / "results.jsonl").write_text(json.dumps(line) + "\n")
    (read,) = study_runs.read_results(texts / "results.jsonl")
    assert read.page == ""


def test_an_adaptation_trains_the_encoder_with_new_heads(texts, monkeypatch):
    """Its keys come last, its model is removed, and it is not made twice."""
    made = runner(texts, ADAPTED)
    commands = Commands(monkeypatch, made, {"known-": 2.5, "known_short-": 2.25})
    run = made.plan("replaced", 0, 1e-2)
    ended = made._with_tasks(run, made._pretrained(run, None), None)
    folder = made._folder(run, ended.id)
    assert ended.measures == {"masked_lm": 9.0, "known": 2.5}
    *_, flags = commands.of("train_and_eval")
    assert (flags["--init"], flags["--checkpoint"]) == (str(folder / "phase-2"), "last")
    changes = flags["--override"]
    assert changes[: len(run.phases[1].overrides)] == list(run.phases[1].overrides)
    config = official.config.load(made.config, changes)
    assert config.recipe.init_weights == "encoder"
    assert (config.recipe.steps, config.recipe.optimizer.learning_rate) == (5, 5e-3)
    assert [o.type for o in config.objectives] == ["masked_lm"] and config.seed == 0
    assert not config.corruption.replacement and config.segments.format == "pairs"
    assert commands.shards[flags["--data"]]["--input"] == str(texts / "text.txt")
    held_out = commands.shards[flags["--validation_data"]]
    assert held_out["--input"] == str(made._half(tuning=False))
    assert not commands.of("eval") and not Path(flags["--model_dir"]).exists()
    (file,) = folder.glob("known-*")
    assert json.loads(file.read_text()) == {"validation": {"loss": 3.5, "masked_lm": 2.5}}
    count = len(commands.of("train_and_eval"))
    assert made._with_tasks(run, ended, None) == ended
    assert len(commands.of("train_and_eval")) == count
    Path(flags["--model_dir"]).mkdir()  # as after a kill
    assert made._with_tasks(run, ended, None) == ended and list(folder.glob("known-*")) == [file]
    file.unlink()
    made._with_tasks(run, ended, None)
    assert commands.of("train_and_eval")[-1] == flags


def test_an_adaptation_may_be_evaluated_with_other_keys(texts, monkeypatch):
    made = runner(texts, ADAPTED)
    commands = Commands(monkeypatch, made, {"known_short": 2.25})
    run = made.plan("without", 0, 1e-2)
    ended = made._with_tasks(run, made._pretrained(run, None), None)
    assert (ended.measures["known"], ended.measures["known_short"]) == (9.0, 2.25)
    flags, trained = commands.of("eval")[-1], commands.of("train_and_eval")[-1]
    assert flags["--checkpoint"] == "last"
    assert flags["--override"] == ["segments.max_length=16"]
    assert flags["--model_dir"] == trained["--model_dir"] != str(made._folder(run, ended.id))
    assert flags["--data"] not in (trained["--data"], trained["--validation_data"])
    shards = commands.shards[flags["--data"]]
    assert shards["--override"] == [*trained["--override"], "segments.max_length=16"]
    # Another number of steps is another adaptation, of the same pretraining.
    count = len(commands.of("train_and_eval"))
    longer = ADAPTED.replace("recipe.steps: 5, objectives", "recipe.steps: 6, objectives")
    longer = runner(texts, longer)
    commands = Commands(monkeypatch, longer, {"known_short": 2.0})
    ended = longer._with_tasks(run, longer._pretrained(run, None), None)
    assert (ended.measures["known"], ended.measures["known_short"]) == (9.0, 2.0)
    assert len(commands.of("train_and_eval")) == 1 < count


def test_what_is_wrong_with_an_adaptation_is_said(texts, monkeypatch):
    unknown = ADAPTED.replace("recipe.steps: 5, recipe", "recipe.step: 5, recipe")
    with pytest.raises(UserError, match=r"variants.without, measures.known: .*recipe.step: unknow"):
        runner(texts, unknown)
    needs = "corruption: {type: token_masks, unit: phrase, max_predictions: 5}"
    lacking = ADAPTED.replace("corruption: {type: token_masks, max_predictions: 5}", needs)
    runner(texts, lacking)  # the study makes a lexicon
    with pytest.raises(UserError, match="variants.without, measures.known: .*--entities=FILE"):
        runner(texts, lacking.replace("unit: phrase", "unit: entity"))
    made = runner(texts, ADAPTED)
    Commands(monkeypatch, made, {"known": None})
    run = made.plan("replaced", 0, 1e-2)
    with pytest.raises(
        UserError, match=r"measures.known.adaptation: the gradients of replaced wit"
    ):
        made._with_tasks(run, made._pretrained(run, None), None)


def test_a_variant_without_a_budget_keeps_its_new_weights(texts):
    """By a step with a rate of 0. No rate is chosen, and an adaptation is that of the others."""
    made = runner(texts, ADAPTED)
    assert made._rates("fresh") == (None,) and made.num_runs("fresh") == 2
    run, other = made.plan("fresh", 1, None), made.plan("without", 1, None)
    for phase in run.phases:
        assert phase.steps == 1 and phase.config.encoder == other.phases[0].config.encoder
        assert float(schedules.make(phase.config.recipe, 1)(0)) == 0
    adapted, usual = made._adaptation(run, "known"), made._adaptation(other, "known")
    assert adapted.config == usual.config and adapted.steps == 5
    assert usual.config.recipe.schedule.warmup_steps == 200


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


def test_the_list_and_a_dry_run(texts, capsys, monkeypatch):
    study.main(["--list"])
    assert "quick " in capsys.readouterr().out
    flags = [f"--{name}={texts / file}" for name, file in
             (("text", "text.txt"), ("held_out", "held_out.txt"), ("study", "page.yaml"),
              ("output", "work"))]  # fmt: skip
    speed = study_runs.Speed(1e6, 30.0, "30 steps of without")
    monkeypatch.setattr(study_runs.Runner, "trial", lambda self, output: speed)
    study.main([*flags, "--dry_run"])
    out = capsys.readouterr().out
    # 5 runs of 6 x 13 x 16 x 16 operations for each token.
    hours = 5 * (6 * 13 * 256 * 1536 / 1e6 + 30) / 3600
    assert f"without                  5 runs of 8 steps, 1,536 tokens, {hours:.1f} h\n" in out
    assert "wild                     2 runs of 2 steps, 384 tokens, 0.0 h\n" in out
    assert "h of pretraining in all (by the speed of 30 steps of without)" in out
    assert not (texts / "work").exists()


def test_the_speed_is_that_of_earlier_runs_or_of_a_short_training(texts, monkeypatch):
    made = runner(texts)
    runs = [made.plan("without", seed, 1e-2) for seed in (0, 1)]
    earlier = [result(runs[0], seconds=2.0), result(runs[1], seconds=6.0)]
    others = [result(runs[0], size="base"), result(runs[0], diverged=True)]
    assert made.speed(others) is None
    speed = made.speed(earlier + others)
    assert speed.flops == (runs[0].flops + runs[1].flops) / 8 and speed.start == 0
    Commands(monkeypatch, made)
    (texts / "trial").mkdir()
    speed = made.trial(texts / "trial")
    assert speed.flops == 4 * runs[0].phases[0].flops and speed.start == 0
    assert speed.seconds(8 * speed.flops, 3) == 8 and not (texts / "work").exists()
    assert (texts / "trial" / "text.txt").read_text() == (texts / "text.txt").read_text()


def test_a_short_training_cuts_large_batches(texts, monkeypatch):
    page = PAGE.replace("recipe.batch_size: 8", "recipe.batch_size: 1000000")
    made = runner(texts, page)
    commands = Commands(monkeypatch, made)
    speed = made.trial(texts)
    (flags,) = commands.of("train_and_eval")
    config = official.config.load(made.config, flags["--override"])
    per_row = 6 * 13 * 256 * 16
    assert config.recipe.batch_size == 1000000  # 3.2e11 operations
    assert config.recipe.steps == round(5e12 / (per_row * 1e6)) == 16
    assert speed.flops == 4 * per_row * 1e6
    made = runner(texts, page.replace("1000000", "4000000"))
    commands = Commands(monkeypatch, made)
    made.trial(texts / "other")
    (flags,) = commands.of("train_and_eval")
    config = official.config.load(made.config, flags["--override"])
    assert config.recipe.batch_size == 1000000 and config.recipe.report_every == 8


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
        sources = [texts / "text.txt", texts / "held_out.txt"]
        shards = [
            own._shards(phase, source, tokenizer, None).name
            for phase in run.phases
            for source in sources
        ]
        flags = [[a for a in flags if a.startswith("--phrases")] for _, flags in commands]
        return shards, own._id(run, tokenizer), [name for name, _ in commands], flags

    shards, id_, modules, flags = made(page, "with")
    assert modules == ["build_phrases", *["build_shards"] * 4] and len(set(shards)) == 4
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
    known = "{metric: masked_lm, variants: [without], adaptation: {recipe.steps: 3}}"
    (texts / "page.yaml").write_text(TAUGHT.replace("phrases:", f"  known: {known}\nphrases:"))
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
    assert first.wait(120)
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    results = study_runs.read_results(texts / "work" / "results.jsonl")
    # Three rates with seed 100, and two seeds with the best one; the wild variant tries none.
    for variant in ("without", "with", "tuned", "taught"):
        own = [result for result in results if result.variant == variant]
        assert [(r.seed, r.rate) for r in own] == [
            (0, 0.1), (1, 0.1), (100, 1e-6), (100, 0.1), (100, 1e3)
        ]  # fmt: skip
        assert not own[3].diverged and own[3].loss < own[2].loss
        assert [r.measures for r in own[2:]] == [{}] * 3
        assert all(0 <= r.measures["cola"] <= 1 for r in own[:2])
        assert ["short" in r.measures for r in own[:2]] == [variant in ("without", "with")] * 2
        assert ["known" in r.measures for r in own[:2]] == [variant == "without"] * 2
    wild = [result for result in results if result.variant == "wild"]
    assert [(r.seed, r.rate, r.diverged) for r in wild] == [(0, None, True), (1, None, True)]
    page = study_page.load(texts / "page.yaml")
    assert {result.page for result in results} == {page.fingerprint("mini")}
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
    adaptations = list((runs / "without").glob("*/known-*"))
    assert len(adaptations) == 2 and {path.suffix for path in adaptations} == {".json"}
    (file,) = (runs / "without" / without[0].id).glob("short-*.json")
    # The model of the last phase, on shards of the length of the evaluation.
    (data,) = set(
        re.findall(
            r"--mode=eval --model_dir=\S+/phase-2 --checkpoint=last .*--data=(\S+)",
            (file.parent / "log.txt").read_text(),
        )
    )
    metrics = official.evaluate(
        runs / "without" / without[0].id / "phase-2", data, checkpoint="last",
        overrides=["segments.max_length=16"],
    )  # fmt: skip
    assert manifest.read(data).max_length == 16
    assert without[0].measures["short"] == pytest.approx(metrics["train"]["masked_lm"], rel=1e-6)
    # Of two lengths, with phrases or not, of the text and of both halves of the held-out text.
    assert len(list((texts / "work").glob("shards-*"))) == 12
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
