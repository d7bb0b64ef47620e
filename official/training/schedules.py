"""Learning rates: over the steps, and by the layer of a variable.

The schedules are those of the releases of BERT, ELECTRA, XLNet, T5, ModernBERT and NeoBERT. The
first three differ in their warm-up. Steps are counted from 0. `peak` is the configured learning
rate, `end` is `peak * end_ratio`, and the polynomial is
`end + (peak - end) * (1 - progress) ** power`.

Rates that decay from the head to the embeddings are for fine-tuning: lower layers are more general
and should change less. ELECTRA (Clark et al., 2020, appendix B) counts from the head, XLNet (Yang
et al., 2019, table 8) from the last layer.
"""

import math

import keras
from keras import ops

from official import config
from official.modeling.model import Model
from official.utils.errors import UserError


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate as a function of the step.

    * `bert`: the decay starts at step 0 and is replaced by a linear ramp during warm-up, so the
      rate drops a little at the end of the ramp (`optimization.py` of the BERT release).
    * `electra`: decay times `min(1, step / warmup)` (`optimization.py` of the ELECTRA release).
      Without warm-up it is the decay alone; the release divides 0 by 0.
    * `xlnet`: the decay starts at the end of the ramp (`model_utils.py` of the XLNet release).
    * `inverse_sqrt`: `peak / sqrt(max(step, warmup))`, which is constant during warm-up. In the
      share `linear_tail` of the steps, at the end, a factor falls linearly from 1 to 0 as well
      (Raffel et al. 2020, section 3.1.2; `learning_rate_schedules.py` of Mesh TensorFlow).
    * `constant`: `peak`, after a linear ramp during warm-up.
    * `trapezoidal`: the same, and in the share `decay_fraction` of the steps, at the end,
      `end + (peak - end) * (1 - sqrt(x))`, where x rises from 0 to 1 (Warner et al. 2024, section
      2.2; the release of ModernBERT).
    * `cosine`: `end + (peak - end) * (1 + cos(pi x)) / 2`, where x rises from 0 at the end of the
      ramp to 1, and is 1 in the share `flat_fraction` of the steps, at the end (Radford et al.
      2018, section 4.1; Le Breton et al. 2025, with a flat share of 0.1).
    """

    def __init__(
        self,
        kind: str,
        peak: float,
        total_steps: int,
        warmup_steps: int = 0,
        end_ratio: float = 0.0,
        power: float = 1.0,
        linear_tail: float = 0.0,
        decay_fraction: float = 0.0,
        flat_fraction: float = 0.0,
    ):
        self.kind = kind
        self.peak = peak
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.end_ratio = end_ratio
        self.power = power
        self.linear_tail = linear_tail
        self.decay_fraction = decay_fraction
        self.flat_fraction = flat_fraction

    def __call__(self, step):
        """Returns the learning rate of the update after `step` updates."""
        step = ops.cast(step, keras.config.floatx())
        if self.kind == "inverse_sqrt":
            return self._inverse_sqrt(step)
        if self.kind in ("constant", "trapezoidal"):
            after = ops.full_like(step, self.peak)
            if self.decay_fraction:
                steps = self.total_steps * self.decay_fraction
                progress = ops.clip((step - self.total_steps) / steps + 1.0, 0.0, 1.0)
                after = self._between(1.0 - ops.sqrt(progress))
        elif self.kind in ("xlnet", "cosine"):
            last = self.total_steps * (1 - self.flat_fraction)
            progress = (step - self.warmup_steps) / max(1, last - self.warmup_steps)
            if self.kind == "xlnet":
                after = self._decay(progress)
            else:
                after = self._between(0.5 + 0.5 * ops.cos(math.pi * ops.clip(progress, 0.0, 1.0)))
        else:
            after = self._decay(step / self.total_steps)
        if not self.warmup_steps:
            return after
        ramp = ops.minimum(1.0, step / self.warmup_steps)
        if self.kind == "electra":
            return after * ramp
        return ops.where(step < self.warmup_steps, self.peak * ramp, after)

    def _inverse_sqrt(self, step):
        rate = self.peak * ops.rsqrt(ops.maximum(step, max(1, self.warmup_steps)))
        if not self.linear_tail:
            return rate
        tail = (self.total_steps - step) / (self.total_steps * self.linear_tail)
        return rate * ops.clip(tail, 0.0, 1.0)

    def _decay(self, progress):
        return self._between((1.0 - ops.clip(progress, 0.0, 1.0)) ** self.power)

    def _between(self, share):
        """Returns the rate that is this share of the way from the end to the peak."""
        end = self.peak * self.end_ratio
        return end + (self.peak - end) * share

    def get_config(self):
        """Returns the arguments of the constructor."""
        return dict(vars(self))


def make(recipe: config.Recipe, steps: int) -> Schedule:
    """Returns the schedule of a recipe for `steps` updates.

    Raises:
      UserError: the schedule is shorter than the run.
    """
    schedule = recipe.schedule
    if schedule.steps and schedule.steps < steps:
        raise UserError(
            f"recipe.schedule.steps: {schedule.steps} is less than the {steps} steps of the run: "
            "raise it, or remove it"
        )
    steps = schedule.steps or steps
    return Schedule(
        schedule.type,
        recipe.optimizer.learning_rate,
        steps,
        schedule.warmup_steps or round(schedule.warmup_fraction * steps),
        schedule.end_ratio,
        schedule.power,
        schedule.linear_tail,
        schedule.decay_fraction,
        schedule.flat_fraction,
    )


def shortfall(recipe: config.Recipe, steps: int) -> str | None:
    """Returns what to say of a run that ends in its warm-up; None = it does not.

    A schedule that is longer than the run is meant to go on in another one. At a rate of 0 the
    warm-up changes nothing.
    """
    schedule = recipe.schedule
    if schedule.warmup_steps <= steps or not recipe.optimizer.learning_rate:
        return None
    if schedule.steps or schedule.type == "inverse_sqrt":
        return None
    return (
        f"the run has {steps:,} steps and its warm-up {schedule.warmup_steps:,}: the learning rate "
        f"ends at {steps / schedule.warmup_steps:.1%} of {recipe.optimizer.learning_rate:g}; give "
        "recipe.schedule.warmup_steps=0 and recipe.schedule.warmup_fraction=0.1 for a share of the "
        "steps"
    )


def layer_factors(model: Model, decay: float, whole: str = "head") -> dict[str, float]:
    """Returns `decay^max(0, top - depth)` for each trainable variable by its path.

    These factors scale the learning rate and not the gradient, because Adam and LAMB divide
    gradients by their own size. L is the number of blocks that an encoder runs. The top is L + 2,
    the head, or L if `whole` is `last_layer`.

    The embeddings have depth 0, the i-th block (from 1) has depth i, and heads have depth L + 2, as
    in ELECTRA's `optimization.py`. The layers of an encoder above its last block (pooler, final
    norm) have depth L + 1. A block that runs several times (ALBERT) has the depth of its last run,
    and so have the layers of position schemes that all blocks read, such as the table of distances
    (DeBERTa) and the bias of distances (MPNet). The convolution beside the first block has depth 1.

    Raises:
      UserError: the encoder has two stacks of blocks, which no single depth orders.
    """
    encoder = model.encoder
    if not encoder.depths:
        raise UserError(
            f"recipe.optimizer.layer_decay: {decay}: not supported for encoder.type: "
            f"{encoder.config.type}, whose layers are in two stacks: remove it"
        )
    num_runs = len(encoder.depths)
    depths = {variable.path: num_runs + 2 for variable in model.trainable_variables}
    depths |= {variable.path: num_runs + 1 for variable in encoder.trainable_variables}
    depths |= {variable.path: 0 for variable in encoder.embeddings.trainable_variables}
    for run, block in enumerate(encoder.depths, start=1):
        depths |= {v.path: run for v in encoder.blocks[block].trainable_variables}
    others = {**dict.fromkeys(encoder.of_schemes, num_runs), "convolution": 1}
    for name, depth in others.items():
        if (layer := getattr(encoder, name)) is not None:
            depths |= {variable.path: depth for variable in layer.trainable_variables}
    top = num_runs + 2 if whole == "head" else num_runs
    return {path: decay ** max(0, top - depth) for path, depth in depths.items()}
