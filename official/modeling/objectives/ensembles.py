"""The mean of several models: an ensemble of heads of one kind.

The members give `matched_outputs`, the outputs before a softmax or a sigmoid. Their mean is again
such outputs, and one head turns it into predictions. The mean is that of the probabilities, or that
of the outputs themselves (`logits`), which is the geometric mean of the probabilities, normalized.
Scores of a regression or a ranking have no probabilities: both means are the mean of the scores.

Shapes: M members, R rows, C outputs of a row.
"""

import math
from collections.abc import Sequence

from keras import ops

from official.config.heads import ENSEMBLE_MEANS
from official.config.parts import ObjectiveConfig
from official.modeling.encoders.base import Encoder
from official.modeling.objectives.base import Objective
from official.modeling.types import Batch, Encoded, Tensor


def default(head: ObjectiveConfig) -> str:
    """Returns the mean of `ENSEMBLE_MEANS` that an ensemble of such heads has by default.

    The windows of a question are compared by outputs that are not normalized (Devlin et al., 2019,
    section 4.2), so those of spans are averaged as they are.
    """
    return "logits" if head.type == "span_answer" else "probabilities"


def mean_outputs(head: Objective, members: Sequence[Tensor], mean: str) -> Tensor:
    """Returns the outputs whose predictions are those of an ensemble: [R, C].

    Args:
        head: the head of a member; its `link` says what the probabilities are.
        members: the outputs of each member, [R, C] each.
        mean: one of `ENSEMBLE_MEANS`.
    """
    assert mean in ENSEMBLE_MEANS, mean
    outputs = ops.stack(list(members))  # [M, R, C]
    if mean == "logits" or head.link is None:
        return ops.mean(outputs, axis=0)
    if head.link == "sigmoid":  # the logit of the mean of p: log p - log(1 - p)
        return log_mean(ops.log_sigmoid(outputs)) - log_mean(ops.log_sigmoid(-outputs))
    return log_mean(ops.log_softmax(outputs, axis=-1))


def log_mean(logs: Tensor) -> Tensor:
    """Returns the logarithm of the mean of probabilities over the members: [R, C].

    Args:
        logs: the logarithms of the probabilities, [M, R, C].
    """
    return ops.logsumexp(logs, axis=0) - math.log(logs.shape[0])


def predictions(
    members: Sequence[tuple[Objective, Encoder]],
    encoded: Sequence[Encoded],
    batch: Batch,
    mean: str,
) -> dict[str, Tensor]:
    """Returns the predictions of an ensemble whose members read the same batch.

    Args:
        members: the head and the encoder of each member.
        encoded: the outputs of each encoder for the batch.
        batch: the batch.
        mean: one of `ENSEMBLE_MEANS`.
    """
    outputs = [
        head.matched_outputs(batch, states, encoder)
        for (head, encoder), states in zip(members, encoded, strict=True)
    ]
    head = members[0][0]
    return head.predictions_of(mean_outputs(head, outputs, mean), batch)
