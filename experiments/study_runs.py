"""Runs of a study: shards, pretraining and fine-tuning, each a command of the project.

OUTPUT/
  vocabulary-ID/            the tokenizer
  text-ID.txt               the share of the text that a variant reads
  held_out-ID.txt           a half of the held-out text: the first one chooses learning rates, and
                            measures read the other one
  phrases-ID.txt            the lexicon of variants that hide phrases
  shards-ID/                the shards of a text, shared by all runs with the same settings of data
  tasks-ID/                 the shards of a task, shared by all encoders of the same length
  runs/VARIANT/ID/          a run: phase-1, phase-2, ... (model folders), task folders, log.txt;
                            of variants that share their pretraining, VARIANT is the first one
  runs/VARIANT/ID/pretrained.json  the result without the tasks, when pretraining has ended
  runs/VARIANT/ID/MEASURE-ID.json  the metrics of an evaluation of the pretrained model; after an
                            adaptation, whose model is in MEASURE-ID until then
  runs/VARIANT/ID/MEASURE-SEED-ID/metrics.json  the metrics of a task after fine-tuning; beside
                            them `model`, if other tasks begin on it or students learn from it
  results.jsonl             the results of all runs of the page

An ID is made of everything that decides about the contents: configs, seeds and the checksums of the
text. So the same command goes on after a kill, never does the same work twice, and keeps the
results of another page, text or size apart.
"""

import argparse
import concurrent.futures
import copy
import dataclasses
import functools
import json
import math
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.environments import ROOT
from experiments import downstream_kinds, downstream_sets, study_page
from experiments.study_page import Measure, Size, Study
from official import config as configs
from official.modeling import weight_counts
from official.saving import metrics_log
from official.shards import manifest
from official.training.commands import Commands, diverged
from official.utils import atomic, checksums, packed_files, strict
from official.utils.errors import UserError
from tfrecords_tools.pretraining.settings import Settings

RESULTS = "results.jsonl"
PRETRAINED = "pretrained.json"
TUNED = "metrics.json"
_MODEL = "model"  # a folder beside these metrics
# The terms of distillation that a student learns from the outputs of its teacher, by its objective.
_TERMS = {"classification": "cross_entropy", "regression": "logits"}
# The features of shards that a corruption of phrases or entities needs.
_PHRASES, _ENTITIES = "phrase_inner", "entity_inner"
# All runs have their whole budget. The best checkpoint would be chosen by the measured text.
_LAST = "--checkpoint=last"
_MORE_RATES = 4  # learning rates beyond those of the page that a variant may try
# A short training that measures the speed: the most operations and steps, and the text it reads.
_TRIAL_FLOPS, _TRIAL_STEPS, _TRIAL_BYTES = 5e12, 30, 2 << 20
# The override of runs without a budget: a schedule whose first step has a learning rate of 0.
_STILL = 'recipe.schedule={"type": "constant", "warmup_steps": 1}'


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of the user.

    Attributes:
      text: the text to pretrain on.
      held_out: the text of the evaluations.
      output: the folder of the study.
      tasks: the folder with the data sets of tasks, or None.
      jobs: runs at the same time, which share the cores.
    """

    text: Path
    held_out: Path
    output: Path
    tasks: Path | None = None
    jobs: int = 1


@dataclasses.dataclass(frozen=True)
class Result:
    """A run that has ended.

    Attributes:
      study: the name of the page.
      size: the name of the size.
      variant: the name of the variant.
      seed: the seed of pretraining: of `range(seeds)`, or the tuning seed. A run with the latter
        has a loss on the other half of the held-out text, and no measures.
      rate: the learning rate; None = that of the config.
      id: the ID of the pretraining settings.
      commit: the commit of the code; empty if unknown.
      steps: the updates of all phases.
      tokens: the tokens read in pretraining.
      seconds: the wall time of pretraining since its last start.
      diverged: whether the gradients stopped being finite; such a run has no measures.
      measures: the values of the measures that the variant has.
      curve: tokens, and the first measure of the held-out text or else the loss, of each
        evaluation.
      loss: the loss on the held-out text at the end, which chooses the learning rate; None if the
        run diverged.
      page: the fingerprint that the page had when the run was made; empty if unknown.
    """

    study: str
    size: str
    variant: str
    seed: int
    rate: float | None
    id: str
    commit: str
    steps: int
    tokens: int
    seconds: float
    diverged: bool
    measures: Mapping[str, float]
    curve: Sequence[tuple[float, float]] = ()
    loss: float | None = None
    page: str = ""


@dataclasses.dataclass(frozen=True)
class PlannedPhase:
    """A phase of a run.

    Attributes:
      config: the whole config.
      overrides: its differences from the config of the size, as values of `--override`.
      tokens: the tokens read in a step.
      flops: the floating-point operations of a step.
    """

    config: configs.Config
    overrides: tuple[str, ...]
    tokens: int
    flops: float

    @property
    def steps(self) -> int:
        """The number of updates."""
        return self.config.recipe.steps


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that the page asks for.

    Attributes:
      variant: the name of the variant.
      seed: the seed of pretraining.
      rate: the learning rate; None = that of the config.
      text: the share of the text that is read.
      phases: the phases of the run in order.
    """

    variant: str
    seed: int
    rate: float | None
    text: float
    phases: tuple[PlannedPhase, ...]

    @property
    def flops(self) -> float:
        """The floating-point operations of pretraining."""
        return sum(phase.steps * phase.flops for phase in self.phases)


@dataclasses.dataclass(frozen=True)
class Speed:
    """How long runs take.

    Attributes:
      flops: the floating-point operations a second.
      start: the seconds of a run outside its steps.
      source: where these are from, for a message.
    """

    flops: float
    start: float
    source: str

    def seconds(self, flops: float, runs: int) -> float:
        """Returns the seconds of a number of runs with so many operations together."""
        return flops / self.flops + runs * self.start


class Runner:
    """Makes the runs of one size of a study."""

    def __init__(
        self,
        study: Study,
        path: str,
        size: str,
        options: Options,
        report: Callable[[str], None] = print,
    ):
        """Checks the configs of all variants, before anything runs.

        Args:
          study: the page.
          path: the path of the page.
          size: the name of the size.
          options: what the user names.
          report: takes the lines to print.

        Raises:
          UserError: there is no such size, a config is not valid, or a folder is missing.
        """
        known = ", ".join(study.sizes)
        if size not in study.sizes:
            raise UserError(f"{path}: sizes: there is no {size} (the page has {known})")
        self.study, self.name, self.options, self.report = study, size, options, report
        self.size: Size = study.sizes[size]
        self.config = study_page.base_config(path, self.size)
        vocab_size = self.size.vocab_size or study.vocabulary.vocab_size
        self.vocabulary = dataclasses.replace(study.vocabulary, vocab_size=vocab_size)
        self.place = path
        needs_tasks = [name for name, m in study.measures.items() if m.task]
        if needs_tasks and options.tasks is None:
            raise UserError(f"measures: {', '.join(needs_tasks)} needs --tasks=DIR")
        for name in ("text", "held_out"):
            if not getattr(options, name).is_file():
                raise UserError(f"--{name}={getattr(options, name)}: there is no such file")
        shares = [self._share(variant) for variant in study.variants]
        if min(shares) < 1 and packed_files.is_packed(options.text):
            raise UserError(
                f"--text={options.text}: the study reads {min(shares):.0%} of the text, which is "
                "not supported for packed files: unpack it"
            )
        if packed_files.is_packed(options.held_out):
            raise UserError(
                f"--held_out={options.held_out}: a study reads its halves apart, which is not "
                "supported for packed files: unpack it"
            )
        self.commit = _commit()
        self._flops: dict[tuple[str, int], float] = {}
        self._folders: dict[tuple[str, int], Path] = {}  # of fine-tuned runs
        self._lines: dict[tuple[str, str], Result] = {}  # of results.jsonl, by variant and ID
        self._hashes: dict[Path, str] = {}
        self._commands = Commands()
        self._lock = threading.Lock()
        first = {name: self.plan(name, 0, self._rates(name)[0]) for name in study.variants}
        self.pretrained_as = _shared_pretraining(first)
        self._groups = self._in_turn()
        self.expected = {
            name: run.flops * self.num_runs(name) if self.pretrained_as[name] == name else 0.0
            for name, run in first.items()
        }
        self._check_measures()

    def _in_turn(self) -> list[list[str]]:
        """Returns the variants in groups. Those of a group run one after the other.

        They share their pretraining, or one is the teacher of another.
        """
        label = dict(self.pretrained_as)
        for name, variant in self.study.variants.items():
            if variant.teacher is not None:
                joined, other = label[variant.teacher], label[name]
                label = {k: joined if v == other else v for k, v in label.items()}
        groups: dict[str, list[str]] = {}
        for name in self.study.variants:
            groups.setdefault(label[name], []).append(name)
        return list(groups.values())

    def num_runs(self, variant: str) -> int:
        """Returns the number of runs of a variant: its seeds, and the rates of the page if tuned.

        Rates beyond those of the page are not known before.
        """
        rates = len(self._rates(variant))
        return self.size.seeds + (rates if rates > 1 else 0)

    def plan(self, variant: str, seed: int, rate: float | None) -> Run:
        """Returns a run with the config and the steps of each of its phases."""
        phases = []
        own = self.study.variants[variant]
        chosen = {} if rate is None else {"recipe.optimizer.learning_rate": rate}
        for number, phase in enumerate(self.size.phases, 1):
            start = {"recipe.init_weights": "all"} if number > 1 else {}
            overrides = study_page.overrides(
                self.size.change, own.change, start, phase.change, chosen,
                {"seed": seed},
            )  # fmt: skip
            place = f"{self.place}: variants.{variant}"
            place += f", phase {number}" if len(self.size.phases) > 1 else ""
            config = study_page.run_config(self.config, overrides, place)
            if config.segments is None or config.encoder is None:
                raise UserError(f"{place}: the config is not for pretraining")
            if config.corruption is not None and _ENTITIES in config.corruption.needs():
                raise UserError(
                    f"{place}: corruption.unit: entity: a study makes no lexicon of entities: take "
                    "another unit, such as phrase"
                )
            tokens = config.segments.max_length * config.recipe.batch_size
            if (variant, number) not in self._flops:
                self._flops[variant, number] = self._token_flops(config)
            flops = self._flops[variant, number] * tokens
            budgets = {"steps": 1, "tokens": tokens, "flops": flops}
            kind = next(name for name in budgets if getattr(self.size, name) is not None)
            budget = getattr(self.size, kind) * own.budget * phase.share
            steps = max(1, round(budget / budgets[kind]))
            overrides += study_page.overrides({"recipe.steps": steps})
            if not own.budget:
                overrides.append(_STILL)
            whole = study_page.run_config(self.config, overrides, place)
            phases.append(PlannedPhase(whole, tuple(overrides), tokens, flops))
        return Run(variant, seed, rate, self._share(variant), tuple(phases))

    def _share(self, variant: str) -> float:
        """Returns the share of the text that a variant reads."""
        share = self.study.variants[variant].text
        return self.size.text if share is None else share

    def _check_measures(self) -> None:
        """Raises UserError if a config of a measure is not valid: adaptation, evaluation, task."""
        for variant in self.study.variants:
            run = self.plan(variant, 0, self._rates(variant)[0])
            for name, measure in self.study.measures.items():
                if measure.evaluates(variant):
                    self._check_evaluation(run, name)
                if measure.task:
                    overrides = self.study.fine_tuning(self.size, variant, measure)
                    place = self._place(run, name)
                    config = _task_config(measure, overrides, place)
                    if self.study.variants[variant].teacher is not None:
                        overrides += _soft_labels(config, Path("TEACHER"), place)
                        _task_config(measure, overrides, place)

    def _check_evaluation(self, run: Run, name: str) -> None:
        """Raises UserError if the config of an adaptation or of an evaluation is not valid."""
        phases = [self._evaluation(run, name)]
        if self.study.measures[name].adaptation:
            phases.append(self._adaptation(run, name))
        try:
            for phase in phases:
                Settings.from_config(phase.config, "tokenizer", phrases=self._lexicon(phase))
                self._token_flops(phase.config)  # which also builds the heads
        except UserError as error:
            raise UserError(f"{self._place(run, name)}: {error}") from None

    def _adaptation(self, run: Run, name: str) -> PlannedPhase:
        """Returns the training of the encoder of a run with new heads, for a measure."""
        start = {"recipe.init_weights": "encoder"}
        return self._changed(run, name, run.phases[-1], start, self.study.measures[name].adaptation)

    def _evaluation(self, run: Run, name: str) -> PlannedPhase:
        """Returns the last phase of a run, or its adaptation, as a measure evaluates it."""
        measure = self.study.measures[name]
        phase = self._adaptation(run, name) if measure.adaptation else run.phases[-1]
        return self._changed(run, name, phase, measure.evaluation)

    def _changed(
        self, run: Run, name: str, phase: PlannedPhase, *changes: Mapping[str, Any]
    ) -> PlannedPhase:
        """Returns a phase of a run with changes of its config for a measure."""
        trained = (override for override in phase.overrides if override != _STILL)
        overrides = [*trained, *study_page.overrides(*changes)]
        config = study_page.run_config(self.config, overrides, self._place(run, name))
        return dataclasses.replace(phase, config=config, overrides=tuple(overrides))

    def _place(self, run: Run, name: str) -> str:
        """Returns the beginning of messages about a measure of a variant."""
        return f"{self.place}: variants.{run.variant}, measures.{name}"

    def _token_flops(self, config: configs.Config) -> float:
        """Returns the operations of training on one token: six for each weight of the encoders.

        The networks of objectives count, such as ELECTRA's generator. Embeddings are looked up, so
        they do not count (Kaplan et al., 2020, section 2.1).
        """
        assert config.encoder is not None
        size = config.encoder.vocab_size or self.vocabulary.vocab_size
        encoder = dataclasses.replace(config.encoder, vocab_size=size)
        counts = weight_counts.count(configs.ResolvedConfig.of(config, encoder=encoder))
        return 6.0 * counts.multiplied

    def _rates(self, variant: str) -> Sequence[float | None]:
        """Returns the learning rates of the page; that of the config where there is no training."""
        trained = self.study.variants[variant].budget > 0
        return (self.size.rates if trained else ()) or (None,)

    def speed(self, earlier: Sequence[Result]) -> Speed | None:
        """Returns the speed of earlier runs of this page and size; None = there are none."""
        done = [
            result
            for result in earlier
            if (result.study, result.size) == (self.study.name, self.name)
            and result.variant in self.study.variants
            and result.seconds
            and not result.diverged
        ]
        if not done:
            return None
        flops = sum(self.plan(r.variant, r.seed, r.rate).flops for r in done)
        return Speed(flops / sum(result.seconds for result in done), 0.0, "the earlier runs")

    def trial(self, output: Path) -> Speed:
        """Returns the speed of a short training of the base variant.

        Large batches are cut, so that it does not take long.

        Args:
          output: an empty folder for its files.

        Raises:
          UserError: a command failed, or the training diverged.
        """
        made, text = copy.copy(self), self.options.text
        made.options = dataclasses.replace(self.options, output=output)
        if packed_files.is_packed(text):
            text = self.options.held_out
        else:
            share = _TRIAL_BYTES / max(1, text.stat().st_size)
            text = made._documents(text, "text", 0.0, share)
        made.options = dataclasses.replace(made.options, text=text)
        base = next(iter(self.study.variants))
        run = self.plan(base, 0, self._rates(base)[0])
        phase = run.phases[0]
        batch = rows = phase.config.recipe.batch_size
        while rows > 1 and phase.flops * rows / batch > _TRIAL_FLOPS / 10:
            rows //= 2
        flops = phase.flops * rows / batch
        steps = max(2, min(_TRIAL_STEPS, round(_TRIAL_FLOPS / flops)))
        changes = {
            "recipe.steps": steps, "recipe.batch_size": rows, "recipe.accumulation": 1,
            "recipe.report_every": steps // 2, "recipe.eval_batches": 1,
        }  # fmt: skip
        overrides = [*phase.overrides, *study_page.overrides(changes)]
        config = study_page.run_config(self.config, overrides, self.place)
        short = dataclasses.replace(phase, config=config, overrides=tuple(overrides))
        run = dataclasses.replace(run, text=1.0, phases=(short,))
        try:
            result = made._pretrained(run, None)
        except BaseException:
            self._commands.stop()
            raise
        if result.diverged:
            raise UserError(f"{self.place}: variants.{base} diverged in its first {steps} steps")
        records = metrics_log.read(made._folder(run, result.id) / "phase-1")
        rate = [r for r in records if r.split == "train"][-1].metrics["steps_per_second"]
        start = max(0.0, result.seconds - steps / rate)
        return Speed(rate * flops, start, f"{steps} steps of {base}")

    def run(self) -> list[Result]:
        """Makes all runs that have not been made.

        Groups of variants run at the same time, as many as `jobs`. `results.jsonl` has a line for
        each run that has ended. A run with such a line is not made again, also where the folder
        has nothing else.

        Returns:
          The results in the order of the page.

        Raises:
          UserError: a command failed; its log is named.
        """
        self._half(tuning=False)  # which also checks the held-out text
        lines = self.options.output / RESULTS
        page = self.study.fingerprint(self.name)
        for result in read_results(lines) if lines.exists() else ():
            if result.page == page and result.variant in self.study.variants:
                self._lines[result.variant, result.id] = result
        started, total = time.monotonic(), sum(self.expected.values())
        done: list[float] = []
        cores = queue.SimpleQueue[frozenset[int] | None]()
        for share in _shares(self.options.jobs):
            cores.put(share)
        results: dict[str, list[Result]] = {}

        def variants(group: Sequence[str]) -> None:
            share = cores.get()
            try:
                for name in group:
                    results[name] = self._variant(name, share)
                    report(name)
            finally:
                cores.put(share)

        def report(name: str) -> None:
            with self._lock:
                done.append(self.expected[name])
                left = (time.monotonic() - started) * (total - sum(done)) / sum(done)
                self.report(
                    f"{name}: {len(results[name])} runs; {len(done)} of {len(self.expected)} "
                    f"variants are done, {left / 3600:.1f} h left"
                )

        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            futures = [pool.submit(variants, group) for group in self._groups]
            try:
                for future in concurrent.futures.as_completed(futures):
                    future.result()
            except BaseException:
                self._commands.stop()
                pool.shutdown(cancel_futures=True)
                raise
        found = [result for name in self.study.variants for result in results[name]]
        self._write(found)
        return found

    def _write(self, results: Iterable[Result]) -> None:
        with atomic.file(self.options.output / RESULTS) as stream:
            stream.writelines(json.dumps(dataclasses.asdict(result)) + "\n" for result in results)

    def _end(self, result: Result) -> Result:
        """Adds the line of a run that has ended, and returns its result."""
        order = list(self.study.variants)
        with self._lock:
            self._lines[result.variant, result.id] = result
            self._write(
                sorted(
                    self._lines.values(),
                    key=lambda each: (order.index(each.variant), each.seed, each.rate or 0),
                )
            )
        return result

    def _line(self, run: Run, cores: frozenset[int] | None) -> Result | None:
        """Returns the result of a run that has ended; None of another one."""
        if not self._lines:
            return None
        return self._lines.get((run.variant, self._id(run, self._tokenizer(cores))))

    def _variant(self, name: str, cores: frozenset[int] | None) -> list[Result]:
        """Makes the runs of a variant.

        Returns:
          Those of its seeds, all with one learning rate, and then those that have chosen it.
        """
        rate, tried = self._tuning(name, cores)
        runs = [self.plan(name, seed, rate) for seed in range(self.size.seeds)]
        # Students read the models of their teacher, which a line alone does not have.
        teaches = any(other.teacher == name for other in self.study.variants.values())
        finished = []
        for run in runs:
            result = None if teaches else self._line(run, cores)
            if result is None:
                pretrained = self._pretrained(run, cores)
                result = self._end(self._with_tasks(run, pretrained, cores))
            finished.append(result)
        return finished + tried

    def _tuning(self, name: str, cores: frozenset[int] | None) -> tuple[float | None, list[Result]]:
        """Chooses the learning rate of a variant.

        Returns:
          The rate, and a run with each rate that was tried, the lowest first.
        """
        first, *others = self._rates(name)
        if first is None or not others:
            return first, []
        rates, tried = list(self.size.rates), dict[float, Result]()
        while True:
            for rate in rates:
                if rate not in tried:
                    run = self.plan(name, self.size.tuning_seed, rate)
                    ended = self._line(run, cores)
                    tried[rate] = ended or self._end(self._pretrained(run, cores))
            best = min(rates, key=lambda rate: _loss(tried[rate]))
            at_edge = best in (rates[0], rates[-1])
            if not at_edge or len(rates) == len(self.size.rates) + _MORE_RATES:
                break
            if best == rates[0]:
                rates.insert(0, _rounded(rates[0] * rates[0] / rates[1]))
            else:
                rates.append(_rounded(rates[-1] * rates[-1] / rates[-2]))
        if at_edge:
            edge = "lowest" if best == rates[0] else "highest"
            self.report(
                f"{name}: the learning rate {best:g} is the {edge} of the {len(rates)} that were "
                "tried: one beyond it may be better"
            )
        return best, [tried[rate] for rate in rates]

    def _pretrained(self, run: Run, cores: frozenset[int] | None) -> Result:
        """Pretrains unless that is done, and returns the result without the tasks."""
        tokenizer = self._tokenizer(cores)
        id_ = self._id(run, tokenizer)
        folder = self._folder(run, id_)
        path = folder / PRETRAINED
        if path.exists():
            result = _result(json.loads(path.read_text(encoding="utf-8")))
            return dataclasses.replace(result, variant=run.variant)
        folder.mkdir(parents=True, exist_ok=True)
        init: list[str] = []
        curve: list[tuple[float, float]] = []
        measures: dict[str, float] = {}
        tokens, seconds, diverged, loss = 0, 0.0, False, math.nan
        for number, phase in enumerate(run.phases, 1):
            data, held_out_data = (
                self._shards(phase, text, tokenizer, cores)
                for text in (self._text(run.text), self._held_out(run))
            )
            model = folder / f"phase-{number}"
            started = time.monotonic()
            diverged = not self._command(
                folder / "log.txt", cores, "official.main", "--mode=train_and_eval",
                f"--config={self.config}", *(f"--override={o}" for o in phase.overrides),
                f"--data={data}", f"--validation_data={held_out_data}",
                f"--model_dir={model}", *init,
            )  # fmt: skip
            seconds += time.monotonic() - started
            if diverged:
                break
            held_out = [r for r in metrics_log.read(model) if r.split == "validation"]
            measures = {
                name: held_out[-1].metrics[metric]
                for name, metric in self.study.held_out.items()
                if metric in held_out[-1].metrics
            }
            loss = held_out[-1].metrics["loss"]
            metric = self.study.held_out[next(iter(measures))] if measures else "loss"
            curve += [
                (tokens + record.step * phase.tokens, record.metrics[metric])
                for record in held_out
                if metric in record.metrics
            ]
            tokens += phase.steps * phase.tokens
            init = [f"--init={model}", _LAST]
        unmeasured = diverged or self._tunes(run)
        result = Result(
            study=self.study.name, size=self.name, variant=run.variant, seed=run.seed,
            rate=run.rate, id=id_, commit=self.commit, steps=sum(p.steps for p in run.phases),
            tokens=tokens, seconds=round(seconds, 1), diverged=diverged,
            measures={} if unmeasured else measures, curve=curve, loss=None if diverged else loss,
            page=self.study.fingerprint(self.name),
        )  # fmt: skip
        with atomic.file(path) as stream:
            json.dump(dataclasses.asdict(result), stream, indent=1)
        return result

    def _with_tasks(self, run: Run, result: Result, cores: frozenset[int] | None) -> Result:
        """Evaluates and fine-tunes unless that is done, and returns the whole result."""
        if result.diverged:
            return result
        self._folders[run.variant, run.seed] = self._folder(run, result.id)
        measures = dict(result.measures)
        for name, measure in self.study.measures.items():
            if measure.evaluates(run.variant):
                path = self._evaluated(run, name, cores)
                measures[name] = self._metric(name, path, "the evaluation")
            if measure.task:
                values = [
                    self._metric(
                        name,
                        self._tuned(run.variant, run.seed, name, seed, cores) / TUNED,
                        measure.task,
                    )
                    for seed in range(measure.seeds)
                ]
                measures[name] = sum(values) / len(values)
        for name, measure in self.study.measures.items():
            if measure.mean_of and all(part in measures for part in measure.mean_of):
                parts = [measures[part] for part in measure.mean_of]
                measures[name] = sum(parts) / len(parts)
        return dataclasses.replace(result, measures=measures)

    def _evaluated(self, run: Run, name: str, cores: frozenset[int] | None) -> Path:
        """Evaluates the pretrained model of a run, or adapts it first, unless that is done.

        Returns:
          The file of the metrics.
        """
        measure, folder = self.study.measures[name], self._folders[run.variant, run.seed]
        model = folder / f"phase-{len(run.phases)}"
        tokenizer, held_out = self._tokenizer(cores), self._held_out(run)
        changes = study_page.overrides(measure.evaluation)
        data = self._shards(self._evaluation(run, name), held_out, tokenizer, cores)
        evaluation = [*(f"--override={change}" for change in changes), f"--data={data}"]
        if not measure.adaptation:
            output = folder / f"{name}-{_id([data.name, changes])}.json"
            if not output.exists():
                self._evaluate(model, evaluation, output, cores)
            return output
        phase = self._adaptation(run, name)
        texts = (self._text(run.text), held_out)
        train, validation = (self._shards(phase, text, tokenizer, cores) for text in texts)
        key = [data.name, changes, train.name, validation.name, phase.overrides]
        output = folder / f"{name}-{_id(key)}.json"
        adapted = output.with_suffix("")
        if not output.exists():
            if not self._command(
                folder / "log.txt", cores, "official.main", "--mode=train_and_eval",
                f"--config={self.config}", *(f"--override={o}" for o in phase.overrides),
                f"--data={train}", f"--validation_data={validation}",
                f"--init={model}", _LAST, f"--model_dir={adapted}",
            ):  # fmt: skip
                raise UserError(
                    f"measures.{name}.adaptation: the gradients of {run.variant} with seed "
                    f"{run.seed} are not finite; lower its recipe.optimizer.learning_rate"
                )
            if changes:
                self._evaluate(adapted, evaluation, output, cores)
            else:
                (*_, last) = (r for r in metrics_log.read(adapted) if r.split == "validation")
                with atomic.file(output) as stream:
                    json.dump({last.split: dict(last.metrics)}, stream, indent=1)
        shutil.rmtree(adapted, ignore_errors=True)  # also after a kill
        return output

    def _evaluate(
        self, model: Path, flags: Sequence[str], output: Path, cores: frozenset[int] | None
    ) -> None:
        """Evaluates a model, and writes its metrics to a file in the folder of the run."""
        self._command(
            output.parent / "log.txt", cores, "official.main", "--mode=eval",
            f"--model_dir={model}", _LAST, *flags, f"--output={output}",
        )  # fmt: skip

    def _tuned(
        self,
        variant: str,
        pretraining_seed: int,
        name: str,
        seed: int,
        cores: frozenset[int] | None,
    ) -> Path:
        """Fine-tunes on the task of a measure unless that is done.

        Returns:
          The folder of the metrics, and of the model if other tasks begin on it or students learn
          from it.
        """
        measure, own = self.study.measures[name], self.study.variants[variant]
        assert measure.task is not None and self.options.tasks is not None
        folder = self._folders[variant, pretraining_seed]
        model = folder / f"phase-{len(self.size.phases)}"
        data_set = downstream_sets.SETS[measure.task]
        # No two runs of a variant share their draws.
        own_seed = f"seed={pretraining_seed * measure.seeds + seed}"
        overrides = [*self.study.fine_tuning(self.size, variant, measure), own_seed]
        key: list[Any] = [dataclasses.asdict(data_set), list(overrides)]
        if own.after not in (None, name):
            before = self._tuned(variant, pretraining_seed, own.after, 0, cores)
            model = before / _MODEL
            key.append(before.name)
        if own.teacher is not None:
            place = f"variants.{variant}.teacher"
            if (own.teacher, pretraining_seed) not in self._folders:
                raise UserError(
                    f"{place}: {own.teacher} with seed {pretraining_seed} diverged: lower its "
                    "learning rate"
                )
            taught = self._tuned(own.teacher, pretraining_seed, name, 0, cores)
            config = _task_config(measure, overrides, place)
            overrides += _soft_labels(config, taught / _MODEL, place)
            key.append([own.teacher, taught.parent.name, taught.name])
        others = self.study.variants.values()
        kept = seed == 0 and any(o.after == name or o.teacher == variant for o in others)
        output = folder / f"{name}-{seed}-{_id(key)}"
        if (output / TUNED).exists() and (not kept or (output / _MODEL).exists()):
            return output
        shutil.rmtree(output, ignore_errors=True)  # of a command that was killed
        options = argparse.Namespace(
            data=self.options.tasks, init=model, output=output, override=overrides,
            baselines=False,
        )  # fmt: skip
        command = functools.partial(self._command, folder / "log.txt", cores)
        run = downstream_kinds.Run(data_set, options, command)
        shards = _id([dataclasses.asdict(data_set), self._tokenizer(cores).name, run.length])
        with self._lock:
            run.shards = self.options.output / f"tasks-{shards}"
            if not (run.shards / manifest.FILE).exists():
                run.make_shards()
        run.fine_tune(evaluate=True)
        held_out = [r for r in metrics_log.read(run.model) if r.split == "validation"]
        if not held_out:
            raise UserError(
                f"measures.{name}: the gradients of fine-tuning are not finite; lower "
                "recipe.optimizer.learning_rate by its `override`"
            )
        if kept:
            run.model.rename(output / _MODEL)
        with atomic.file(output / TUNED) as stream:
            json.dump(dict(held_out[-1].metrics), stream, indent=1)
        shutil.rmtree(run.folder)
        return output

    def _metric(self, name: str, path: Path, source: str) -> float:
        """Returns the figure of a measure.

        Args:
          name: the name of the measure.
          path: the file of the metrics of a task, or of those of each split of the held-out text,
            of which the first split counts.
          source: the evaluation, for messages.
        """
        measure = self.study.measures[name]
        values = json.loads(path.read_text(encoding="utf-8"))
        if not measure.task:
            values = next(iter(values.values()))
        metric = measure.metric or (
            downstream_sets.SETS[measure.task].metrics[0] if measure.task else name
        )
        if metric not in values:
            known = ", ".join(values)
            raise UserError(f"measures.{name}.metric: {source} has no {metric} ({known})")
        return float(values[metric])

    def _tokenizer(self, cores: frozenset[int] | None) -> Path:
        """Returns the vocabulary of the study, and makes it if needed."""
        vocabulary = dataclasses.asdict(self.vocabulary)
        key = {**vocabulary, "text": self._hash(self.options.text)}
        folder = self.options.output / f"vocabulary-{_id(key)}"
        with self._lock:
            if not folder.exists():
                lower = "--lower_case" if vocabulary.pop("lower_case") else "--nolower_case"
                self._command(
                    self.options.output / "log.txt", cores, "tfrecords_tools.build_vocab",
                    f"--input={self.options.text}", f"--output={folder}", lower,
                    *(f"--{name}={value}" for name, value in vocabulary.items()),
                )  # fmt: skip
        return folder

    def _lexicon(self, phase: PlannedPhase) -> Path | None:
        """Returns the file of the phrases that a phase hides; None = it hides none."""
        corruption = phase.config.corruption
        if corruption is None or _PHRASES not in corruption.needs():
            return None
        key = [self._phrases, self._hash(self.options.text)]
        return self.options.output / f"phrases-{_id(key)}.txt"

    @property
    def _phrases(self) -> dict[str, Any]:
        """The settings of `build_phrases`, by the names of its flags."""
        lower_case = self.vocabulary.lower_case
        return {**dataclasses.asdict(self.study.phrases), "lower_case": lower_case}

    def _make_lexicon(self, path: Path, cores: frozenset[int] | None) -> None:
        """Finds the phrases of the text unless that is done."""
        if not path.exists():
            self._command(
                self.options.output / "log.txt", cores, "tfrecords_tools.build_phrases",
                f"--input={self.options.text}", f"--output={path}",
                *(f"--{name}={value}" for name, value in self._phrases.items()),
            )  # fmt: skip

    def _text(self, share: float) -> Path:
        """Returns the file of a share of the text: the documents at its beginning."""
        whole = self.options.text
        if share == 1:
            return whole
        return self._documents(whole, f"text-{_id([self._hash(whole), share])}", 0, share)

    def _tunes(self, run: Run) -> bool:
        """Returns whether a run is one of those that choose a learning rate."""
        return run.seed >= self.size.seeds

    def _held_out(self, run: Run) -> Path:
        """Returns the half of the held-out text that a run and its measures are evaluated on."""
        return self._half(self._tunes(run))

    def _half(self, tuning: bool) -> Path:
        """Returns the file of a half of the held-out text: the first one is for tuning.

        Raises:
          UserError: the second half would be empty.
        """
        whole = self.options.held_out
        begin, end = (0.0, 0.5) if tuning else (0.5, 1.0)
        half = self._documents(whole, f"held_out-{_id([self._hash(whole), begin])}", begin, end)
        if not half.stat().st_size:
            raise UserError(
                f"--held_out={whole}: no document begins in its second half, which the measures "
                "read: name a file of more documents, with a blank line between them"
            )
        return half

    def _documents(self, whole: Path, name: str, begin: float, end: float) -> Path:
        """Returns a file of the documents that begin in a part of a text, and makes it if needed.

        Args:
          whole: the text.
          name: the name of the file in the folder of the study, without its suffix.
          begin: where the part begins, as a share of the bytes.
          end: where it ends.
        """
        rows = packed_files.is_json(whole)
        path = self.options.output / f"{name}{'.jsonl' if rows else '.txt'}"
        with self._lock:
            if not path.exists():
                size = whole.stat().st_size
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(whole, "rb") as lines, atomic.file(path, "wb") as stream:
                    place, new, inside = 0, True, False
                    for line in lines:
                        if new:
                            if place >= end * size:
                                break
                            inside = place >= begin * size
                        if inside:
                            stream.write(line)
                        place += len(line)
                        new = rows or not line.strip()
        return path

    def _shards(
        self, phase: PlannedPhase, text: Path, tokenizer: Path, cores: frozenset[int] | None
    ) -> Path:
        """Returns the folder of the shards of a text for a phase, and makes it if needed.

        All seeds read the same shards.
        """
        lexicon = self._lexicon(phase)
        settings = Settings.from_config(phase.config, tokenizer, phrases=lexicon).to_record()
        key = [strict.to_dict(settings), tokenizer.name, self._hash(text)]
        folder = self.options.output / f"shards-{_id(key)}"
        with self._lock:
            if lexicon is not None:
                self._make_lexicon(lexicon, cores)
            if not (folder / manifest.FILE).exists():
                self._command(
                    self.options.output / "log.txt", cores, "tfrecords_tools.build_shards",
                    f"--config={self.config}", *(f"--override={o}" for o in phase.overrides),
                    "--seed=0", f"--input={text}", f"--tokenizer={tokenizer}",
                    f"--output={folder}", "--split_sentences",
                    *([] if lexicon is None else [f"--phrases={lexicon}"]),
                )  # fmt: skip
        return folder

    def _folder(self, run: Run, id_: str) -> Path:
        return self.options.output / "runs" / self.pretrained_as[run.variant] / id_

    def _id(self, run: Run, tokenizer: Path) -> str:
        plain = [configs.to_dict(phase.config) for phase in run.phases]
        texts = [self._hash(text) for text in (self._text(run.text), self._held_out(run))]
        lexicons = {path.name for phase in run.phases if (path := self._lexicon(phase))}
        return _id([plain, tokenizer.name, *texts, *sorted(lexicons)])

    def _hash(self, path: Path) -> str:
        if path not in self._hashes:
            self._hashes[path] = checksums.hash_file(path)
        return self._hashes[path]

    def _command(
        self, log: Path, cores: frozenset[int] | None, module: str, *arguments: str
    ) -> bool:
        """Runs a command; returns False if its gradients stopped being finite.

        Raises:
          UserError: it failed for another reason, or the study is stopped.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as stream:
            begin = stream.tell()
            stream.write(f"$ python -m {module} {' '.join(arguments)}\n".encode())
            stream.flush()
            status = self._commands.run(
                [sys.executable, "-m", module, *arguments], cores, cwd=ROOT,
                stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
                env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
            )  # fmt: skip
        if status == 0 or diverged(status):
            return status == 0
        if self._commands.stopped or status in (-signal.SIGTERM, 128 + signal.SIGTERM):
            raise UserError("stopped: the same command goes on")
        text = log.read_bytes()[begin:].decode("utf-8", "replace")
        last = "\n  ".join(text.splitlines()[-3:])
        raise UserError(f"{module} ended with {status}; see {log}:\n  {last}")


def _task_config(measure: Measure, overrides: Sequence[str], place: str) -> configs.Config:
    """Returns the config of the fine-tuning on the task of a measure."""
    assert measure.task is not None
    data_set = downstream_sets.SETS[measure.task]
    path = downstream_kinds.config_file(data_set)
    return study_page.run_config(path, [*data_set.overrides, *overrides], place)


def _soft_labels(config: configs.Config, teacher: Path, place: str) -> list[str]:
    """Returns the overrides with which a fine-tuning learns the outputs of a teacher alone.

    Raises:
      UserError: the task does not have exactly one objective, of `_TERMS`.
    """
    heads = configs.to_dict(config)["objectives"]
    if len(heads) != 1 or heads[0]["type"] not in _TERMS:
        found = ", ".join(head["type"] for head in heads)
        raise UserError(
            f"{place}: a student learns one objective of {', '.join(_TERMS)}; the task has {found}"
        )
    terms = {"teachers": [str(teacher)], "temperature": 1.0, _TERMS[heads[0]["type"]]: 1.0}
    return study_page.overrides(
        {"objectives": [{**heads[0], "weight": 0.0}, {"type": "distillation", **terms}]}
    )


def read_results(path: Path) -> list[Result]:
    """Reads a file of results, one JSON object a line.

    Raises:
      UserError: a line is damaged.
    """
    results = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            results.append(_result(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{path}, line {number}: not a result ({error})") from None
    return results


def _result(values: dict[str, Any]) -> Result:
    return Result(**{**values, "curve": [tuple(point) for point in values.get("curve", ())]})


def _shared_pretraining(runs: Mapping[str, Run]) -> dict[str, str]:
    """Returns the first of the variants with the same pretraining, for each variant.

    Args:
      runs: a run of each variant, all with one seed and learning rate.
    """
    firsts: dict[str, str] = {}
    ids = {
        name: _id([run.text, *(configs.to_dict(phase.config) for phase in run.phases)])
        for name, run in runs.items()
    }
    for name, id_ in ids.items():
        firsts.setdefault(id_, name)
    return {name: firsts[id_] for name, id_ in ids.items()}


def _loss(result: Result) -> float:
    """Returns what the learning rate is chosen by: infinite for a run that diverged."""
    return result.loss if result.loss is not None and math.isfinite(result.loss) else math.inf


def _rounded(rate: float) -> float:
    """Returns a learning rate of four digits, as a person would write it."""
    return float(f"{rate:.4g}")


def _id(value: Any) -> str:
    return checksums.hash_bytes(json.dumps(value, sort_keys=True).encode())[:12]


def _shares(jobs: int) -> list[frozenset[int] | None]:
    """Returns the cores of each of the jobs; None = all of them."""
    if jobs == 1 or not hasattr(os, "sched_setaffinity"):
        return [None] * jobs
    cores = sorted(os.sched_getaffinity(0))
    return [frozenset(cores[i::jobs]) or frozenset(cores) for i in range(jobs)]


def _commit() -> str:
    """Returns the commit of the checkout, or an empty text."""
    done = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else ""
