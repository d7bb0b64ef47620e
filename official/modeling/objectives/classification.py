"""One of several labels for each example, from the pooled output.

Shapes: B batch, D hidden, C classes.
"""

import dataclasses

from keras import ops

from official.modeling.objectives import base, pooled
from official.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class Config:
    """What is asked.

    Attributes:
        labels: the labels' names in the order of their numbers; filled in from the data.
        num_labels: how many there are; None = as many as `labels`.
        dropout: on the pooled output.
        pooling: what that is: 'pooled', 'first' or 'mean', the latter two without a pooler; see
            `base.Objective.pool`.
        weight: factor of this loss in the sum.
        task: which task the head is for, where a model has several; see `official.data.mixture`.
    """

    labels: tuple[str, ...] = ()
    num_labels: int | None = None
    dropout: float = 0.1
    pooling: str = "pooled"
    weight: float = 1.0
    task: str = ""

    def __post_init__(self):
        pooled.check(self)
        if self.num_labels is not None and self.num_labels < 2:
            raise ValueError(f"num_labels: {self.num_labels} is less than 2")
        if self.num_labels and self.labels and self.num_labels != len(self.labels):
            raise ValueError(
                f"num_labels: {self.num_labels}, but there are {len(self.labels)} labels"
            )


def needs(config):
    """The batch fields that the objective reads."""
    return base.fields(config, "label")


class Objective(pooled.Head):
    """Dropout and one affine map to the classes."""

    def __init__(self, config, encoder_config, *, name=None, seed=0, dtype=None):
        name = name or config.task or "classification"
        num_labels = config.num_labels or len(config.labels)
        super().__init__(config, encoder_config, num_labels, name=name, seed=seed, dtype=dtype)
        if not num_labels:
            raise UserError(f"{name}: neither labels nor num_labels is set")

    def logits(self, encoded, rng=None):
        """Scores of the classes: [B, C]."""
        return self.outputs(encoded, rng)

    def terms(self, batch, encoded, encoder, rng=None):
        """See `base.Objective`."""
        return base.class_terms(
            self.name,
            self.logits(encoded, rng),
            batch[base.field(self.config, "label")],
            self.example_weights(batch),
        )

    def predictions(self, batch, encoded, encoder):
        """Returns `probabilities` [B, C]; of one of several tasks with its name before it."""
        return {base.field(self.config, "probabilities"): ops.softmax(self.logits(encoded))}
