"""The page of a study: a YAML file in `configs/studies`.

  name: mask_rate
  about: how many tokens to mask
  sizes:
    mini: {config: bert_mini_short.yaml, steps: 1000, seeds: 6, rates: [1.0e-3, 2.0e-3, 4.0e-3]}
  variants:
    rate_15: {}
    rate_40: {corruption.max_predictions: 13, corruption.mask_rate: 0.4}
    longer: {budget: 2}
  measures:
    masked_lm: {evaluation: {seed: 0, corruption.mask_rate: 0.15, corruption.max_predictions: 5}}
  controls:
    - {order: longer > rate_15, by: masked_lm}
  claims:
    - {order: rate_40 > rate_15, by: masked_lm}

A variant has the keys of the config that differ, as `--override` of `official.main` takes them. The
first variant is the base, with which tables compare the others. The keys of `Variant` itself do not
belong to that config: `lstm: {fine_tuning: {objectives.0.bilstm: 128}}`. Variants that differ in
`fine_tuning`, `after` and `teacher` alone share their pretraining. A variant with `like: rate_40`
starts from the keys of `rate_40`, which must stand before it, and replaces some by its own.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from experiments import downstream_sets
from experiments.claims import Claim, Scale
from official import config as configs
from official.config import yaml_files
from official.training import sweep
from official.utils import checksums, paths, strict
from official.utils.errors import UserError

FOLDER = "studies"
# Fine-tuning reports the metrics of the validation split.
_TASKS = tuple(
    name
    for name, data in downstream_sets.SETS.items()
    if "validation" in data.splits and data.task != "masked_lm" and not data.model_of
)


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of the pretraining of each run.

    Attributes:
      share: the share of the budget.
      change: keys of the config that differ in this phase.
    """

    share: float = 1.0
    change: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        strict.positive_fraction(self, "share")


@dataclasses.dataclass(frozen=True)
class Size:
    """How large a study is. One of `steps`, `tokens` and `flops` is the budget of each run.

    Attributes:
      config: a pretraining config: a published name, or a path relative to the page.
      steps: updates.
      tokens: tokens read, padding included: batches times their length.
      flops: floating-point operations of training, as `official.commands.parameters` counts them.
      text: the share of the text that is read: the documents at its beginning.
      vocab_size: the size of the vocabulary; None = the size that the page gives.
      seeds: the number of runs of each variant. Their seeds are 0, 1, ...
      rates: the learning rates to choose from, at equal ratios. Each variant gets the one whose run
        with `tuning_seed` has the lowest loss on the half of the held-out text that no measure
        reads. While that is the lowest or the highest one, the next one beyond it is tried too.
        Empty = the rate of the config.
      tuning_seed: the seed of the runs that choose the learning rate.
      change: keys of the config that differ in all variants.
      fine_tuning: keys of the config of fine-tuning that differ in all tasks.
      phases: what a run does one after the other, each with a schedule of its own and from the
        weights of the one before: all of them, unless `recipe.init_weights` says otherwise.
    """

    config: str
    steps: int | None = None
    tokens: float | None = None
    flops: float | None = None
    text: float = 1.0
    vocab_size: int | None = None
    seeds: int = 3
    rates: tuple[float, ...] = ()
    tuning_seed: int = 100
    change: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fine_tuning: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    phases: tuple[Phase, ...] = (Phase(),)

    def __post_init__(self):
        given = [name for name in ("steps", "tokens", "flops") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"steps: expected one of steps, tokens and flops, got {', '.join(given) or 'none'}"
            )
        strict.above(self, 0, given[0])
        strict.positive_fraction(self, "text")
        strict.at_least(self, 1, "vocab_size")
        strict.at_least(self, 1, "seeds")
        if len(self.rates) > 1:
            strict.at_least(self, self.seeds, "tuning_seed")
            if min(self.rates) <= 0 or list(self.rates) != sorted(set(self.rates)):
                raise ValueError("rates: expected positive numbers, the smallest first")
        if abs(sum(phase.share for phase in self.phases) - 1) > 1e-6:
            raise ValueError("phases: their shares do not add up to 1")


@dataclasses.dataclass(frozen=True)
class Variant:
    """What differs in a variant.

    Attributes:
      change: keys of the pretraining config. On the page they stand beside the keys below.
      fine_tuning: keys of the config of fine-tuning, in all tasks.
      after: the measure with the task on whose model the fine-tuning on the other tasks begins;
        None = it begins on the pretrained model.
      teacher: the variant whose model of the same task gives the targets of fine-tuning, in place
        of the labels (Turc et al., 2019, section 3); it stands before this one. None = the labels.
      text: the share of the text that is read; None = that of the size.
      budget: the budget of a run, as a multiple of the size's budget. 0 = the encoder keeps its new
        weights, and no learning rate is chosen.
    """

    change: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fine_tuning: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    after: str | None = None
    teacher: str | None = None
    text: float | None = None
    budget: float = 1.0

    def __post_init__(self):
        if self.text is not None:
            strict.positive_fraction(self, "text")
        strict.at_least(self, 0, "budget")


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of all variants, which is made of the text; see `build_vocab`."""

    type: str = "wordpiece"
    vocab_size: int = 8000
    lower_case: bool = True
    sentinels: int = 0


@dataclasses.dataclass(frozen=True)
class Phrases:
    """The lexicon of variants that hide phrases, which is made of the text; see `build_phrases`."""

    min_count: int = 20
    threshold: float = 0.4
    max_words: int = 4


@dataclasses.dataclass(frozen=True)
class Measure:
    """A result of each run: a metric of the held-out text or of a task, or a mean of measures.

    Attributes:
      metric: the metric of the evaluation; None = the name of the measure, or the first metric of
        the task.
      better: `higher` or `lower`; None = lower for the held-out text, and higher for a task.
      task: a data set of `experiments.downstream` on which the encoder is fine-tuned.
      seeds: the number of fine-tunings of a run, whose mean is the result. Each run uses other
        seeds.
      override: `key=value` strings for the fine-tuning config.
      mean_of: the names of other measures.
      margin: the largest difference that counts as none, in units of the measure; None = no
        verdict is `equivalent`.
      because: why the margin is this one.
      spread: the standard deviation of the difference of two variants over the seeds, as far as it
        is known before the runs: what `--dry_run` computes the power from.
      evaluation: keys of the pretraining config that differ when the pretrained model is evaluated
        on the held-out text, whose shards are made with them. So variants with other mask rates or
        formats of rows have comparable losses. Empty: the evaluation at the end of pretraining is
        read.
      adaptation: keys of the pretraining config that differ in a short training of the pretrained
        encoder with new heads, before the evaluation. So encoders of other objectives have
        comparable losses: `{recipe.steps: 200, objectives: [{type: masked_lm}]}`.
      variants: the variants with this evaluation; empty = all.
    """

    metric: str | None = None
    better: str | None = None
    task: str | None = None
    seeds: int = 1
    override: tuple[str, ...] = ()
    mean_of: tuple[str, ...] = ()
    margin: float | None = None
    because: str = ""
    spread: float | None = None
    evaluation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    adaptation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    variants: tuple[str, ...] = ()

    def __post_init__(self):
        if self.better is not None:
            strict.one_of("better", self.better, ("higher", "lower"))
        if self.task is not None:
            strict.one_of("task", self.task, _TASKS)
        if self.mean_of and (self.metric or self.task):
            raise ValueError("mean_of: a mean has no metric and no task")
        for name in ("evaluation", "adaptation"):
            if getattr(self, name) and (self.mean_of or self.task):
                raise ValueError(f"{name}: is of the held-out text; a task has `override`")
        if self.variants and not (self.evaluation or self.adaptation):
            raise ValueError("variants: only a measure with an evaluation of its own has them")
        strict.at_least(self, 1, "seeds")
        for name in ("margin", "spread"):
            if getattr(self, name) is not None:
                strict.above(self, 0, name)
        if self.margin is not None and not self.because:
            raise ValueError("because: a margin needs its reason")

    @property
    def higher(self) -> bool:
        """Whether a higher value is better."""
        return self.better == "higher" if self.better else bool(self.task or self.mean_of)

    def evaluates(self, variant: str) -> bool:
        """Whether the pretrained model of a variant is evaluated once more for this measure."""
        own = bool(self.evaluation or self.adaptation)
        return own and (not self.variants or variant in self.variants)


@dataclasses.dataclass(frozen=True)
class Paper:
    """What the paper reports.

    Attributes:
      where: the table or figure, with its page.
      figures: name of a figure → variant → value.
    """

    where: str
    figures: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Study:
    """The page of a study.

    Attributes:
      name: the name of the study.
      about: a description in one line.
      sizes: the sizes by name.
      variants: the variants by name. The first one is the base.
      measures: the measures by name.
      claims: what the paper says, as orders of the variants.
      controls: orders of variants that are known, such as twice the steps > the base. A measure
        with a control that does not come out gives no verdicts.
      source: the paper and section.
      vocabulary: the vocabulary of all variants.
      phrases: the lexicon of variants with `corruption.unit: phrase`.
      paper: the figures that the paper reports.
      note: why the results may differ from the paper's; a paragraph of the findings page.
      words: what sentences call variants and measures, by name.
    """

    name: str
    about: str
    sizes: Mapping[str, Size]
    variants: Mapping[str, Variant]
    measures: Mapping[str, Measure]
    claims: tuple[Claim, ...] = ()
    controls: tuple[Claim, ...] = ()
    source: str = ""
    vocabulary: Vocabulary = Vocabulary()
    phrases: Phrases = Phrases()
    paper: Paper | None = None
    note: str = ""
    words: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if len(self.variants) < 2:
            raise ValueError("variants: a study compares at least two")
        tasks = [name for name, measure in self.measures.items() if measure.task]
        for number, (name, variant) in enumerate(self.variants.items()):
            for key in ("fine_tuning", "teacher"):
                if getattr(variant, key) and not tasks:
                    raise ValueError(
                        f"variants.{name}.{key}: no measure has a task that is fine-tuned: add "
                        "one, or remove the key"
                    )
            if variant.after is not None:
                strict.one_of(f"variants.{name}.after", variant.after, tasks)
            if variant.teacher is not None:
                earlier = list(self.variants)[:number]
                if variant.teacher not in earlier:
                    raise ValueError(
                        f"variants.{name}.teacher: {variant.teacher!r} is not a variant that "
                        f"stands before it ({', '.join(earlier) or 'none'})"
                    )
        for name, measure in self.measures.items():
            for variant in measure.variants:
                strict.one_of(f"measures.{name}.variants", variant, self.variants)
            for part in measure.mean_of:
                strict.one_of(f"measures.{name}.mean_of", part, self.measures)
                if self.measures[part].mean_of or self.measures[part].higher != measure.higher:
                    raise ValueError(
                        f"measures.{name}.mean_of: {part} is a mean itself or has another `better`"
                    )
        for key in ("claims", "controls"):
            for i, claim in enumerate(getattr(self, key)):
                strict.one_of(f"{key}.{i}.by", claim.by, self.measures)
                for link in claim.links:
                    for name in (link.first, link.second):
                        strict.one_of(f"{key}.{i}.order", name, self.variants)
                    if link.sign != ">" and self.measures[claim.by].margin is None:
                        raise ValueError(
                            f"{key}.{i}.order: {link} needs measures.{claim.by}.margin"
                        )
        for name in self.words:
            strict.one_of("words", name, [*self.variants, *self.measures])
        for figure, by_variant in (self.paper.figures if self.paper else {}).items():
            for name in by_variant:
                strict.one_of(f"paper.figures.{figure}", name, self.variants)

    @property
    def held_out(self) -> dict[str, str]:
        """The metric of each measure that the evaluation at the end of pretraining has."""
        return {
            name: measure.metric or name
            for name, measure in self.measures.items()
            if not (measure.task or measure.mean_of or measure.evaluation or measure.adaptation)
        }

    def fine_tuning(self, size: Size, variant: str, measure: Measure) -> list[str]:
        """Returns the values of `--override` for the fine-tuning of a variant on a task."""
        own = overrides(self.variants[variant].fine_tuning)
        return [*overrides(size.fine_tuning), *measure.override, *own]

    def scales(self) -> dict[str, Scale]:
        """Returns how each measure is read."""
        return {name: Scale(m.higher, m.margin) for name, m in self.measures.items()}

    def fingerprint(self, size: str) -> str:
        """Returns a hash of all that has to be settled before the runs of a size.

        It changes with claims, controls, measures, margins, seeds, rates and variants, and not with
        words or with the figures of a paper.
        """
        settled = ("claims", "controls", "measures", "variants", "vocabulary", "phrases")
        values = {name: _without_defaults(getattr(self, name)) for name in settled}
        values["size"] = _without_defaults(self.sizes[size])
        return checksums.hash_bytes(json.dumps(values, sort_keys=True).encode())[:12]


def _without_defaults(value: Any) -> Any:
    """Returns the plain form of a part of a page. A key that is added later does not change it."""
    if dataclasses.is_dataclass(value):
        default = {f.name: f.default for f in dataclasses.fields(value)}
        values = {name: getattr(value, name) for name in default}
        return {k: _without_defaults(v) for k, v in values.items() if v != default[k] and v != {}}
    if isinstance(value, Mapping):
        return {key: _without_defaults(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_without_defaults(item) for item in value]
    return value


def load(path: str | os.PathLike) -> Study:
    """Reads a page.

    Args:
      path: a YAML file, or the name of a published study.

    Raises:
      UserError: the file is missing or not YAML, a key is unknown, or a claim or mean names what
        the page does not have. The message names the file, the line and the key.
    """
    document = yaml_files.read(path)
    values = dict(document.values)
    try:
        if isinstance(values.get("variants"), Mapping):
            variants = _with_likes(values["variants"], str(document.path))
            values["variants"] = {name: _parted(v) for name, v in variants.items()}
        return strict.build(Study, values, str(document.path))
    except UserError as error:
        raise UserError(document.located(str(error))) from None


def _with_likes(variants: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Returns the variants, each with the keys of the one that it is `like` and its own."""
    full: dict[str, Any] = {}
    for name, variant in variants.items():
        if isinstance(variant, Mapping) and "like" in variant:
            own = dict(variant)
            like = own.pop("like")
            if not isinstance(like, str) or not isinstance(full.get(like), Mapping):
                raise UserError(
                    f"{place}: variants.{name}.like: {like!r} is not a variant that stands before "
                    f"it ({', '.join(full) or 'none'})"
                )
            variant = {**full[like], **own}
        full[name] = variant
    return full


def _parted(variant: Any) -> Any:
    """Returns the values of a variant with the keys of the config moved to `change`."""
    if not isinstance(variant, Mapping):
        return variant
    own = {field.name for field in dataclasses.fields(Variant)} - {"change"}
    parted: dict[str, Any] = {key: value for key, value in variant.items() if key in own}
    return parted | {"change": {k: value for k, value in variant.items() if k not in own}}


def base_config(study_path: str | os.PathLike, size: Size) -> str:
    """Returns the path of the config of a size: beside the page, or a published one."""
    beside = paths.path(study_path).parent / size.config
    return str(beside) if beside.exists() else size.config


def run_config(path: str, overrides: list[str], place: str) -> configs.Config:
    """Returns the config of a variant.

    Raises:
      UserError: a key is unknown or a value not valid; the message begins with the variant.
    """
    try:
        return configs.load(path, overrides)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


def overrides(*changes: Mapping[str, Any]) -> list[str]:
    """Returns changes as values of `--override`; later changes replace earlier ones."""
    merged: dict[str, Any] = {}
    for change in changes:
        merged |= change
    return sweep.overrides(merged)
