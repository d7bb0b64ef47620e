"""Ensembles: the mean of the outputs of several models with the same kind of head.

The members return `matched_outputs`, the outputs before a softmax or a sigmoid. Their mean has the
same form, and one head turns it into predictions. It is the mean of the probabilities, or the mean
of the outputs (`logits`), which corresponds to the normalized geometric mean of the probabilities.
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
    """Returns the default of `ENSEMBLE_MEANS` for an ensemble of such heads.

    The windows of a question are compared by unnormalized outputs (Devlin et al., 2019, section
    4.2), so the default for spans is the mean of the outputs.
    """
    return "logits" if head.type == "span_answer" else "probabilities"


def mean_outputs(head: Objective, members: Sequence[Tensor], mean: str) -> Tensor:
    """Returns the outputs of an ensemble, for `predictions_of`: [R, C].

    Args:
        head: the head of a member, with its `link`.
        members: the outputs of each member, [R, C] each.
        mean: one of `ENSEMBLE_MEANS`.
    """
    assert mean in ENSEMBLE_MEANS, mean
    outputs = ops.stack(list(members))  # [M, R, C]
    if mean == "logits" or head.link is None:
        return ops.mean(outputs, axis=0)
    if head.link == "sigmoid":  # the logit of the mean p: log p - log(1 - p)
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
    """Returns the predictions of an ensemble for a batch that all members read.

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
