"""The losses of rankings, each a function of the scores, the labels and the mask of documents.

A label is the grade of a document for the query, or the score of a teacher. The mask is False for
documents that only fill a list; their scores are finite and without effect. The papers of the
losses are in `official.config.heads.RankingLossConfig`.

Shapes: B queries, C documents of a query.
"""

import dataclasses
import math
from collections.abc import Callable

from keras import ops

from official.config.heads import RankingLossConfig
from official.modeling.types import Tensor

_NEVER = -1e9  # a score that the softmax makes 0
_LEAST = 1e-10  # lower limit of the largest DCG
_MU = 10.0  # the weight of NDCG-Loss2 in NDCG-Loss2++


@dataclasses.dataclass(frozen=True)
class Loss:
    """A loss, which is a mean over examples, documents or pairs.

    Attributes:
        of: the sum for each example, from scores, labels and mask [B, C] and the config: [B].
        counts: what the mean is over, as the number for each example, from labels and mask: [B].
    """

    of: Callable[[Tensor, Tensor, Tensor, RankingLossConfig], Tensor]
    counts: Callable[[Tensor, Tensor, RankingLossConfig], Tensor]


def ordered(labels: Tensor, mask: Tensor) -> Tensor:
    """Returns whether the first document of a pair has the greater label: bool [B, C, C]."""
    greater = ops.expand_dims(labels, 2) > ops.expand_dims(labels, 1)
    return ops.logical_and(greater, _both(mask))


def kept_pairs(scores: Tensor, labels: Tensor, mask: Tensor, config: RankingLossConfig) -> Tensor:
    """Returns the pairs of `rank_net` and `lambda`, after `k` is applied: bool [B, C, C]."""
    pairs = _pairs(labels, mask, config)
    if config.k is None:
        return pairs
    first = _ranks(scores, mask) <= config.k  # [B, C]
    return ops.logical_and(
        pairs, ops.logical_or(ops.expand_dims(first, 2), ops.expand_dims(first, 1))
    )


def _both(mask: Tensor) -> Tensor:
    return ops.logical_and(ops.expand_dims(mask, 2), ops.expand_dims(mask, 1))


def _pairs(labels: Tensor, mask: Tensor, config: RankingLossConfig) -> Tensor:
    every = config.loss == "lambda" and config.scheme == "ndcg_loss1"
    return _both(mask) if every else ordered(labels, mask)


def _ranks(values: Tensor, mask: Tensor) -> Tensor:
    """Returns the rank of each document, from 1; the first of equal ones comes first: [B, C]."""
    places = ops.arange(values.shape[1])
    mine, other = ops.expand_dims(values, 2), ops.expand_dims(values, 1)
    tied = ops.logical_and(ops.equal(other, mine), places[None] < places[:, None])
    ahead = ops.logical_and(ops.logical_or(other > mine, tied), ops.expand_dims(mask, 1))
    return 1 + ops.sum(ops.cast(ahead, values.dtype), axis=2)


def _differences(values: Tensor) -> Tensor:
    """Returns the value of the first document of each pair minus that of the second: [B, C, C]."""
    return ops.expand_dims(values, 2) - ops.expand_dims(values, 1)


def _sum(values: Tensor, where: Tensor) -> Tensor:
    """Returns the sums over the documents, or pairs, of each example: [B]."""
    values = ops.where(where, values, ops.zeros_like(values))
    return ops.sum(values, axis=tuple(range(1, len(values.shape))))


def _count(where: Tensor, like: Tensor) -> Tensor:
    """Returns the number of documents, or pairs, of each example, in the dtype of `like`: [B]."""
    return ops.sum(ops.cast(where, like.dtype), axis=tuple(range(1, len(where.shape))))


def _mean(values: Tensor, where: Tensor) -> Tensor:
    return _sum(values, where) / ops.maximum(_count(where, values), 1.0)


def _hidden(values: Tensor, where: Tensor) -> Tensor:
    """Returns values for a softmax over the documents `where`."""
    return ops.where(where, values, ops.full_like(values, _NEVER))


def _pairwise(scores, labels, mask, config):
    hinges = ops.relu(config.margin - _differences(scores))
    return _mean(hinges, ordered(labels, mask))


def _pointwise(scores, labels, mask, config):
    del config
    return _mean(ops.softplus(scores), mask) - _mean(ops.clip(labels, 0.0, 1.0) * scores, mask)


def _softmax(scores, labels, mask, config):
    del config
    others = ops.logical_and(mask, labels < labels[:, :1])
    is_first = ops.equal(ops.arange(scores.shape[1]), 0)
    first = ops.zeros(ops.shape(scores)[:1], "int32")
    logits = _hidden(scores, ops.logical_or(others, is_first))
    return ops.sparse_categorical_crossentropy(first, logits, from_logits=True)


def _list_net(scores, labels, mask, config):
    del config
    targets = ops.softmax(_hidden(labels, mask))
    return -_sum(targets * ops.log_softmax(_hidden(scores, mask)), mask)


def _likelihoods(scores, labels, mask):
    """Returns -log of the probability that a document comes next, and its rank: [B, C] each."""
    ranks = _ranks(labels, mask)
    left = ops.expand_dims(ranks, 1) >= ops.expand_dims(ranks, 2)
    left = ops.logical_and(left, ops.expand_dims(mask, 1))
    others = ops.broadcast_to(ops.expand_dims(scores, 1), ops.shape(left))
    return ops.logsumexp(_hidden(others, left), axis=2) - scores, ranks


def _list_mle(scores, labels, mask, config):
    del config
    return _sum(_likelihoods(scores, labels, mask)[0], mask)


def _p_list_mle(scores, labels, mask, config):
    """The weight of rank i of n is (2^(n - i) - 1) / (the sum of these), here divided by 2^n."""
    del config
    losses, ranks = _likelihoods(scores, labels, mask)
    count = _count(mask, scores)
    last = ops.power(0.5, count)
    total = 1 - (count + 1) * last  # 0 for one document
    weights = (ops.power(0.5, ranks) - ops.expand_dims(last, 1)) / ops.expand_dims(
        ops.maximum(total, 0.125), 1
    )
    return _sum(weights * losses, mask)


def _logistic(scores, config):
    """Returns -log2 of the sigmoid of the scaled difference of each pair: [B, C, C]."""
    return ops.softplus(-config.scale * _differences(scores)) / math.log(2)


def _rank_net(scores, labels, mask, config):
    return _sum(_logistic(scores, config), kept_pairs(scores, labels, mask, config))


def _lambda(scores, labels, mask, config):
    gains = ops.power(2.0, ops.where(mask, ops.relu(labels), ops.zeros_like(labels))) - 1
    ideal = _ranks(labels, mask)
    counted = mask if config.k is None else ops.logical_and(mask, ideal <= config.k)
    largest = ops.maximum(_sum(gains / _discount(ideal), counted), _LEAST)
    gains = gains / ops.expand_dims(largest, 1)
    weights = _WEIGHTS[config.scheme](gains, ops.stop_gradient(_ranks(scores, mask)))
    losses = weights * _logistic(scores, config)
    return _sum(losses, kept_pairs(scores, labels, mask, config))


def _discount(ranks):
    return ops.log(1 + ranks) / math.log(2)


def _ndcg_loss1(gains, ranks):
    return ops.expand_dims(gains / _discount(ranks), 2)


def _ndcg_loss2(gains, ranks):
    apart = ops.maximum(ops.abs(_differences(ranks)), 1.0)  # a document is no pair with itself
    steps = 1 / _discount(apart) - 1 / _discount(apart + 1)
    return steps * ops.abs(_differences(gains))


def _lambda_rank(gains, ranks):
    return ops.abs(_differences(1 / _discount(ranks)) * _differences(gains))


def _ndcg_loss2pp(gains, ranks):
    return _MU * _ndcg_loss2(gains, ranks) + _lambda_rank(gains, ranks)


# The weights of the pairs, from the normalized gains and the ranks of the scores [B, C].
_WEIGHTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "ndcg_loss1": _ndcg_loss1,
    "ndcg_loss2": _ndcg_loss2,
    "lambda_rank": _lambda_rank,
    "ndcg_loss2pp": _ndcg_loss2pp,
}


def _adr_mse(scores, labels, mask, config):
    """The true rank of documents with equal labels is the mean of their ranks."""
    real = ops.cast(_both(mask), scores.dtype)
    apart = _differences(labels)
    true = 0.5 + ops.sum(real * (ops.sign(-apart) + 1) / 2, axis=2)
    # Each document is compared with itself too, and the sigmoid of 0 is 1/2.
    approximate = 0.5 + ops.sum(real * ops.sigmoid(-config.scale * _differences(scores)), axis=2)
    true = ops.maximum(true, 1.0)  # of documents that fill the list
    return _sum(ops.square(true - approximate) / _discount(true), mask)


def _margin_mse(scores, labels, mask, config):
    del config
    errors = (scores[:, :1] - scores) - (labels[:, :1] - labels)  # 0 of the first document
    return _sum(ops.square(errors), mask)


def _mse(scores, labels, mask, config):
    del config
    return _sum(ops.square(scores - labels), mask)


def _examples(labels, mask, config):
    del mask, config
    return ops.ones_like(labels[:, 0])


def _documents(labels, mask, config):
    del config
    return _count(mask, labels)


def _others(labels, mask, config):
    del config
    return _count(mask, labels) - 1


def _all_pairs(labels, mask, config):
    return _count(_pairs(labels, mask, config), labels)


LOSSES: dict[str, Loss] = {
    "pairwise": Loss(_pairwise, _examples),
    "pointwise": Loss(_pointwise, _examples),
    "softmax": Loss(_softmax, _examples),
    "list_net": Loss(_list_net, _examples),
    "list_mle": Loss(_list_mle, _examples),
    "p_list_mle": Loss(_p_list_mle, _examples),
    "rank_net": Loss(_rank_net, _all_pairs),
    "lambda": Loss(_lambda, _all_pairs),
    "adr_mse": Loss(_adr_mse, _documents),
    "margin_mse": Loss(_margin_mse, _others),
    "mse": Loss(_mse, _documents),
}
