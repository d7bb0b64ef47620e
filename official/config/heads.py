"""Objectives of labelled tasks in YAML: each has a head."""

import dataclasses

from official.config.part import ObjectiveConfig
from official.utils.validators import above, at_least, dropout_rate, one_of

POOLINGS = ("pooled", "first", "mean")


def _check_pooling(config):
    """Raises ValueError where a head's `pooling` or `dropout` cannot be."""
    one_of("pooling", config.pooling, POOLINGS)
    dropout_rate(config, "dropout")


def _fields(config, target):
    """The batch fields that the head of a task reads: the target, and whose examples these are."""
    names = (target, "example_weights") if config.task else (target,)
    return frozenset(config.field(name) for name in names)


@dataclasses.dataclass(frozen=True)
class ClassificationConfig(ObjectiveConfig):
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

    type = "classification"

    labels: tuple[str, ...] = ()
    num_labels: int | None = None
    dropout: float = 0.1
    pooling: str = "pooled"
    weight: float = 1.0
    task: str = ""

    def __post_init__(self):
        _check_pooling(self)
        at_least(self, 2, "num_labels")
        if self.num_labels and self.labels and self.num_labels != len(self.labels):
            raise ValueError(
                f"num_labels: {self.num_labels}, but there are {len(self.labels)} labels"
            )

    def needs(self) -> frozenset[str]:
        """See `ObjectiveConfig`."""
        return _fields(self, "label")


@dataclasses.dataclass(frozen=True)
class RegressionConfig(ObjectiveConfig):
    """What is asked.

    Attributes:
        dropout: on the pooled output.
        pooling: what that is: 'pooled', 'first' or 'mean', the latter two without a pooler; see
            `base.Objective.pool`.
        weight: factor of this loss in the sum.
        task: which task the head is for, where a model has several; see `official.data.mixture`.
    """

    type = "regression"

    dropout: float = 0.1
    pooling: str = "pooled"
    weight: float = 1.0
    task: str = ""

    def __post_init__(self):
        _check_pooling(self)

    def needs(self) -> frozenset[str]:
        """See `ObjectiveConfig`."""
        return _fields(self, "score")


@dataclasses.dataclass(frozen=True)
class MultipleChoiceConfig(ObjectiveConfig):
    """What is asked.

    Attributes:
        dropout: on the pooled output.
        pooling: what that is: 'pooled', 'first' or 'mean', the latter two without a pooler; see
            `base.Objective.pool`.
        weight: factor of this loss in the sum.
    """

    type = "multiple_choice"

    dropout: float = 0.1
    pooling: str = "pooled"
    weight: float = 1.0

    def __post_init__(self):
        _check_pooling(self)

    def needs(self) -> frozenset[str]:
        """See `ObjectiveConfig`."""
        return frozenset({"answer"})


LOSSES = ("pairwise", "pointwise")


def _check_loss(config):
    """Raises ValueError where a ranker's `loss` or `margin` cannot be."""
    one_of("loss", config.loss, LOSSES)
    above(config, 0, "margin")


@dataclasses.dataclass(frozen=True)
class RankingConfig(ObjectiveConfig):
    """What is asked.

    Attributes:
        loss: 'pairwise' = the hinge max(0, margin - relevant + other) of the two scores;
            'pointwise' = binary cross-entropy of each, the mean of both.
        margin: of the pairwise loss.
        dropout: on the pooled output.
        pooling: what that is: 'pooled', 'first' or 'mean', the latter two without a pooler; see
            `base.Objective.pool`.
        weight: factor of this loss in the sum.
    """

    type = "ranking"

    loss: str = "pairwise"
    margin: float = 1.0
    dropout: float = 0.1
    pooling: str = "pooled"
    weight: float = 1.0

    def __post_init__(self):
        _check_loss(self)
        _check_pooling(self)

    def needs(self) -> frozenset[str]:
        """See `ObjectiveConfig`."""
        return frozenset({"text_mask"})


EXACT = (1.0, 1e-3)  # mean and width of the kernel of tokens that are the same


@dataclasses.dataclass(frozen=True)
class KernelRankingConfig(ObjectiveConfig):
    """What is asked.

    Attributes:
        kernels: K, one for equal tokens and the others with means at even steps over (-1, 1).
        sigma: width of these others.
        loss: 'pairwise' or 'pointwise', as in `official.modeling.objectives.ranking`.
        margin: of the pairwise loss.
        weight: factor of this loss in the sum.
    """

    type = "kernel_ranking"

    kernels: int = 11
    sigma: float = 0.1
    loss: str = "pairwise"
    margin: float = 1.0
    weight: float = 1.0

    def __post_init__(self):
        _check_loss(self)
        at_least(self, 2, "kernels")
        above(self, 0, "sigma")

    @property
    def means_and_widths(self):
        """(mean, width) of each kernel; with 11 of them 1, 0.9, 0.7, ... -0.9."""
        others = self.kernels - 1
        return [EXACT, *((1 - (2 * k + 1) / others, self.sigma) for k in range(others))]

    def needs(self) -> frozenset[str]:
        """See `ObjectiveConfig`."""
        return frozenset({"text_mask"})


@dataclasses.dataclass(frozen=True)
class SpanAnswerConfig(ObjectiveConfig):
    """What is asked, and what counts as an answer.

    Attributes:
        form: 'independent' (BERT) or 'conditional' (XLNet); see above.
        candidates: where an answer may be: 'context' = its tokens and [CLS]; 'row' = all real
            tokens, of the question too, as in BERT's release (predictions are of the context only).
        max_answer_length: tokens of the longest answer that is predicted.
        n_best: how many answers are kept of a window, and of a question.
        start_beam: of `conditional`, how many starts are gone on with.
        end_beam: of `conditional`, how many ends each of them has.
        null_threshold: a question has no answer where the null score exceeds that of the best
            answer (`independent`), or 0 (`conditional`), by more than this.
        answerable_weight: of `conditional`, factor of the regression's loss.
        dropout: of `conditional`, before the last map of the regression.
        weight: factor of this loss in the sum.
    """

    type = "span_answer"

    form: str = "independent"
    candidates: str = "context"
    max_answer_length: int = 30
    n_best: int = 20
    start_beam: int = 5
    end_beam: int = 5
    null_threshold: float = 0.0
    answerable_weight: float = 0.5
    dropout: float = 0.1
    weight: float = 1.0

    def __post_init__(self):
        one_of("form", self.form, ["independent", "conditional"])
        one_of("candidates", self.candidates, ["context", "row"])
        at_least(self, 1, "max_answer_length", "n_best", "start_beam", "end_beam")
        dropout_rate(self, "dropout")

    def needs(self) -> frozenset[str]:
        """See `ObjectiveConfig`."""
        window = "context_start context_length window_start own_start own_end"
        return frozenset({*window.split(), "answer_start", "answer_end"})
