"""The section `recipe` of a config: optimizer, schedule, batches and steps."""

import dataclasses
import itertools
import math
from typing import NamedTuple, Self

from official.config.trainable import LoRA, Trainable
from official.utils.strict import (
    above,
    at_least,
    dropout_rate,
    fraction,
    omitted,
    one_of,
    regular_expression,
)

_MOMENTS = ("beta_1", "beta_2", "epsilon", "weight_decay", "no_decay")


class OptimizerForm(NamedTuple):
    """The settings of a type of optimizer.

    Attributes:
      settings: the settings that not all types have; they are arguments of its class.
      weight_decay: its default weight decay.
      clip_norm: its default largest norm of the gradient.
    """

    settings: tuple[str, ...]
    weight_decay: float
    clip_norm: float


OPTIMIZERS = {
    "adamw": OptimizerForm((*_MOMENTS, "bias_correction"), 0.01, 1.0),
    "stable_adamw": OptimizerForm((*_MOMENTS, "peak"), 1e-5, 0.0),
    "lamb": OptimizerForm((*_MOMENTS, "bias_correction", "no_adaptation"), 0.01, 1.0),
    "adafactor": OptimizerForm(("weight_decay", "no_decay"), 0.0, 0.0),
    "adagrad": OptimizerForm(("initial_accumulator",), 0.0, 1.0),
}
# Settings that must keep their default if the type does not have them.
_OF_SOME = ("beta_1", "beta_2", "epsilon", "bias_correction", "initial_accumulator")


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """How gradients become updates; see `official.training.optimizers`.

    Attributes:
      type: `adamw` (BERT), `stable_adamw` (Wortsman et al., 2023, as in ModernBERT), `lamb` (You et
        al., 2020), `adagrad` (Duchi et al., 2011, as in ELMo) or `adafactor` (Shazeer and Stern,
        2018, as in T5), whose steps are relative to the size of the weights.
      learning_rate: the peak of the schedule.
      beta_1: the decay rate of the first moment.
      beta_2: the decay rate of the second moment.
      epsilon: added to the root of the second moment.
      initial_accumulator: for `adagrad`, the initial value of the sums of squared gradients.
      weight_decay: the rate of decoupled weight decay, which is multiplied by the learning rate;
        None = 0.01, or 0 with `adafactor` and `adagrad`. For `stable_adamw` it is the share of a
        weight that a step at the peak learning rate subtracts; None = 1e-5.
      no_decay: regular expressions; variables whose path matches one have no weight decay.
      no_adaptation: regular expressions; variables whose path matches one have no trust ratio in
        LAMB. None = `no_decay`.
      clip_norm: the largest global norm of the reduced gradient; 0 = no clipping. None = 1, or 0
        with `adafactor` and `stable_adamw`, which limit each update instead.
      bias_correction: whether the moments are corrected as in Adam. The releases do not correct
        them, except `stable_adamw`, which always does. `adamw` corrects the rate, as TensorFlow's
        Adam: `epsilon` is added before the correction, while PyTorch's AdamW adds it after. So in
        the first steps `epsilon` has a larger effect here, by a factor of up to 1 / sqrt(1 -
        beta_2), or 32.
      layer_decay: the factor between the learning rates of a layer and of the layer above it; 1 =
        all rates are equal.
      layer_decay_from: the part with the full rate: `head`, two steps above the last layer
        (ELECTRA), or `last_layer` and everything above it (XLNet).
    """

    type: str = "adamw"
    learning_rate: float = 1e-4
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    initial_accumulator: float = 1.0
    weight_decay: float | None = None
    no_decay: tuple[str, ...] = ("bias", "norm")
    no_adaptation: tuple[str, ...] | None = None
    clip_norm: float | None = None
    bias_correction: bool = False
    layer_decay: float = 1.0
    layer_decay_from: str = "head"

    def __post_init__(self):
        one_of("type", self.type, OPTIMIZERS)
        form = OPTIMIZERS[self.type]
        for name in ("weight_decay", "clip_norm"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, getattr(form, name))
        for name in _OF_SOME:
            if name not in form.settings:
                self._check_default(name)
        if self.weight_decay and "weight_decay" not in form.settings:
            raise ValueError(
                f"weight_decay: {self.weight_decay}: not supported for {self.type}; remove it"
            )
        above(self, 0, "initial_accumulator")
        regular_expression(self, "no_decay", "no_adaptation")
        if self.no_adaptation is not None and "no_adaptation" not in form.settings:
            raise ValueError(f"no_adaptation: not supported for the type {self.type}; remove it")
        one_of("layer_decay_from", self.layer_decay_from, ["head", "last_layer"])
        fraction(self, "layer_decay")
        if not self.layer_decay:
            raise ValueError("layer_decay: 0 stops every layer but the head: remove it, or set 1")
        fraction(self, "beta_1", "beta_2")
        at_least(self, 0, "learning_rate", "epsilon", "weight_decay", "clip_norm")

    @property
    def peak(self) -> float:
        """The highest learning rate."""
        return self.learning_rate

    def _check_default(self, name: str) -> None:
        """Raises ValueError if a setting is given that the type does not have."""
        value = getattr(self, name)
        other = next(type for type, form in OPTIMIZERS.items() if name in form.settings)
        if value != type(self).__dataclass_fields__[name].default:
            raise ValueError(
                f"{name}: {value}: not supported for the type {self.type}; remove it, or take the "
                f"type {other}"
            )


_POLYNOMIAL = ("end_ratio", "power")
# The settings that only some types of schedules have.
SCHEDULES: dict[str, tuple[str, ...]] = {
    "bert": _POLYNOMIAL,
    "electra": _POLYNOMIAL,
    "xlnet": _POLYNOMIAL,
    "inverse_sqrt": ("linear_tail",),
    "constant": (),
    "trapezoidal": ("end_ratio", "decay_fraction"),
    "cosine": ("end_ratio", "flat_fraction"),
}


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Warm-up and decay of the learning rate; see `official.training.schedules`.

    Attributes:
      type: the release whose warm-up is used: `bert`, `electra` or `xlnet`. Or `inverse_sqrt` =
        `learning_rate / sqrt(max(step, warmup_steps))` (T5: 1 and 10,000); `constant`;
        `trapezoidal` = constant, and a decay at the end (ModernBERT); or `cosine` = half a period
        of a cosine (GPT, NeoBERT).
      steps: steps of the whole schedule; 0 = the steps of the run. A run of fewer steps is the
        first part of a longer run, which `recipe.init_weights: run` continues.
      warmup_steps: steps of warm-up.
      warmup_fraction: the same as a share of all steps; give one of the two.
      end_ratio: the last learning rate, as a share of the peak.
      power: the power of the polynomial decay; 1 = linear.
      linear_tail: for `inverse_sqrt`, the share of all steps, at the end, in which the rate is also
        multiplied by a factor that falls linearly from 1 to 0.
      decay_fraction: for `trapezoidal`, the share of all steps, at the end, in which the rate falls
        from its peak to `end_ratio` by 1 - sqrt(x), where x rises from 0 to 1.
      flat_fraction: for `cosine`, the share of all steps, at the end, that have the last rate.
    """

    type: str = "bert"
    steps: int = 0
    warmup_steps: int = 0
    warmup_fraction: float = 0.0
    end_ratio: float = 0.0
    power: float = 1.0
    linear_tail: float = 0.0
    decay_fraction: float = omitted(0.0)
    flat_fraction: float = omitted(0.0)

    def __post_init__(self):
        one_of("type", self.type, SCHEDULES)
        for name in dict.fromkeys(itertools.chain(*SCHEDULES.values())):
            changed = getattr(self, name) != type(self).__dataclass_fields__[name].default
            if changed and name not in SCHEDULES[self.type]:
                raise ValueError(f"{name}: not supported for the type {self.type}; remove it")
        fraction(self, "linear_tail", "decay_fraction", "flat_fraction")
        at_least(self, 0, "steps", "warmup_steps")
        fraction(self, "warmup_fraction", "end_ratio")
        if self.warmup_steps and self.warmup_fraction:
            raise ValueError("warmup_steps: give this or warmup_fraction, not both")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Steps, batches and settings of a training run.

    Attributes:
      steps: the number of updates.
      epochs: the same as passes over the training examples; give one of the two.
      batch_size: examples of one update, over all replicas and accumulation steps.
      accumulation: the number of parts into which a replica's share of the batch is split to save
        memory; gradients are summed over the parts.
      optimizer: how gradients become updates.
      schedule: how the learning rate rises and falls.
      precision: `float32`, `mixed_bfloat16`, `float64`, or `auto` = `mixed_bfloat16` on devices
        with fast products of bfloat16, and `float32` on others. Mixed precision is only for
        updates: evaluations and predictions compute in float32.
      jit_compile: whether the forward and backward pass are compiled with XLA; None = on a GPU or a
        TPU, but not on a CPU, where XLA's matrix products are slower.
      report_every: steps between two reports.
      eval_every: steps between two evaluations; 0 = one evaluation at the end.
      eval_batches: batches of an evaluation during training; 0 = the whole split.
      eval_batch_size: examples of an evaluation batch; 0 = `batch_size`.
      save_every: steps between two checkpoints.
      keep_checkpoints: the number of newest checkpoints that are kept, in addition to the best.
      best_metric: the metric that picks the best checkpoint: a loss (`loss` or the name of a term;
        lower is better) or a metric (higher is better). With several tasks it is `TASK/METRIC`. ""
        = the first metric of the task, or the loss. In a tie, the checkpoint with the lowest loss
        is the best, and then the latest.
      patience: the number of consecutive evaluations without a better value (or an equal value with
        a lower loss) after which the run ends; 0 = the run does not end early.
      dropout: the dropout rate of all parts of the encoder in this stage; None = the rates of the
        encoder.
      freeze_encoder: whether the encoder keeps its weights, so that only the heads are trained. It
        then has no dropout, no gradient and no moments.
      trainable: the weights of the encoder that are trained; None = all.
      layer_states: for a frozen encoder, a folder with its states for the examples, written by
        `--mode=embed --layers=all`; heads then read these, and the encoder does not run, except for
        examples of an evaluation that the folder lacks. "" = no folder.
      recompute: 'layers' = values inside a layer are not kept but computed again for the gradient
        (gradient checkpointing; Chen et al., 2016): less memory, and one more forward pass. None =
        they are kept.
      max_bad_steps: the number of consecutive updates that may be skipped because a gradient is not
        finite.
      bucket_lengths: the lengths that batches are padded to; empty = always the longest.
      distinct_texts: for examples of the kind embedding, whether no text occurs twice in a batch,
        where it would be a negative of itself. See `official.data.batch_groups`.
      task_sampling: how the task of each batch is drawn, if there are several: in proportion to
        their sizes (`proportional`), equally often (`equal`), or more and more evenly (`annealed`);
        see `official.data.mixture`. The shares of several corpora in a batch follow the same
        setting, except `annealed`.
      task_limit: the largest size that counts for a task or corpus, in examples; 0 = no limit.
      task_temperature: for `proportional`, T: shares are proportional to size ** (1 / T).
      init_weights: the weights that are taken from `--init`: the `encoder`; `all` weights; `none`,
        only the sizes; `generator` = the encoder, and again as a frozen generator with its masked
        LM; or `run` = all weights, the optimizer's moments and the step, to continue a run with
        other data or settings.
    """

    steps: int = 0
    epochs: float = 0.0
    batch_size: int = 32
    accumulation: int = 1
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    precision: str = "auto"
    jit_compile: bool | None = None
    report_every: int = 50
    eval_every: int = 0
    eval_batches: int = 0
    eval_batch_size: int = 0
    save_every: int = 1000
    keep_checkpoints: int = 2
    best_metric: str = ""
    patience: int = 0
    dropout: float | None = omitted()
    freeze_encoder: bool = False
    trainable: Trainable | None = omitted()
    layer_states: str = ""
    recompute: str | None = omitted()
    max_bad_steps: int = 10
    bucket_lengths: tuple[int, ...] = ()
    distinct_texts: bool = False
    task_sampling: str = "proportional"
    task_limit: int = 0
    task_temperature: float = 1.0
    init_weights: str = "encoder"

    def __post_init__(self):
        one_of("precision", self.precision, ["auto", "float32", "mixed_bfloat16", "float64"])
        one_of("task_sampling", self.task_sampling, ["proportional", "equal", "annealed"])
        at_least(self, 0, "task_limit")
        above(self, 0, "task_temperature")
        if self.task_sampling == "equal" and self.task_limit:
            raise ValueError("task_limit: not supported for task_sampling: equal; remove it")
        if self.task_sampling != "proportional" and self.task_temperature != 1:
            raise ValueError(
                f"task_temperature: not supported for task_sampling: {self.task_sampling}; remove "
                "it, or take proportional"
            )
        if self.recompute is not None:
            one_of("recompute", self.recompute, ["layers"])
        one_of("init_weights", self.init_weights, ["encoder", "all", "none", "generator", "run"])
        at_least(self, 1, "batch_size", "accumulation", "report_every", "save_every")
        at_least(self, 1, "keep_checkpoints", "max_bad_steps")
        at_least(self, 0, "steps", "epochs", "eval_every", "eval_batches", "eval_batch_size")
        at_least(self, 0, "patience")
        if self.dropout is not None:
            dropout_rate(self, "dropout")
        self._check_frozen()
        if self.patience and not self.eval_every:
            raise ValueError(
                "patience: needs several evaluations, but eval_every: 0 evaluates only at the "
                "end: set eval_every to a number of steps"
            )
        if bool(self.steps) == bool(self.epochs):
            raise ValueError("steps: give either steps or epochs")
        if list(self.bucket_lengths) != sorted(set(self.bucket_lengths)):
            raise ValueError("bucket_lengths: expected lengths in ascending order")

    @classmethod
    def of_one_pass(cls, batch_size: int) -> Self:
        """Returns the recipe for reading examples once, in batches of similar lengths."""
        lengths = tuple(2**n for n in range(3, 15))
        return cls(steps=1, batch_size=batch_size, bucket_lengths=lengths)

    def _check_frozen(self):
        """Raises ValueError if a setting contradicts `freeze_encoder`."""
        if self.layer_states and not self.freeze_encoder:
            raise ValueError(
                "layer_states: only supported for a frozen encoder: set freeze_encoder to true"
            )
        for name in ("dropout", "trainable") if self.freeze_encoder else ():
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: not supported for a frozen encoder; remove it")
        if self.freeze_encoder and self.optimizer.layer_decay != 1:
            raise ValueError("optimizer.layer_decay: not supported for a frozen encoder; remove it")

    @property
    def weights_dtype(self) -> str:
        """The dtype of weights, in which models also evaluate and predict."""
        return "float64" if self.precision == "float64" else "float32"

    @property
    def lora(self) -> LoRA | None:
        """The low-rank updates of kernels in training; None = there are none."""
        return None if self.trainable is None else self.trainable.lora

    def total_steps(self, num_examples: int) -> int:
        """Returns the number of updates: `steps`, or enough for `epochs` (rounded up)."""
        return self.steps or max(1, math.ceil(self.epochs * num_examples / self.batch_size))
