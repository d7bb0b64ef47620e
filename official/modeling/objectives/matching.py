"""Distances between a student and its teachers, for each example, token or row of outputs.

Shapes: B batch, T length, N heads, H head size, D hidden, R rows of outputs, C outputs of a row,
G relation heads.
"""

import math

from keras import ops

from official.modeling import masks
from official.modeling.layers.kernels import times_transposed
from official.modeling.types import Batch, Tensor


def divergence(student: Tensor, teachers, temperature: float = 1.0) -> Tensor:
    """Returns KL(teachers || student) of softmax(outputs / temperature): [R].

    It is the cross-entropy with soft targets minus the entropy of the targets (Hinton et al., 2015,
    section 2). Several teachers give the mean of their probabilities.

    Args:
        student: [R, C].
        teachers: [R, C] each.
        temperature: T.
    """
    targets = ops.stack([ops.log_softmax(logits / temperature) for logits in teachers])
    targets = ops.logsumexp(targets, axis=0) - math.log(len(teachers))  # log of the mean, [R, C]
    guesses = ops.log_softmax(student / temperature)
    return ops.sum(ops.exp(targets) * (targets - guesses), axis=-1)


def squared_error(student: Tensor, target: Tensor) -> Tensor:
    """Returns the mean of the squared differences over the last axis: [...]."""
    return ops.mean(ops.square(student - target), axis=-1)


def cosine_distance(student: Tensor, target: Tensor) -> Tensor:
    """Returns 1 - cosine of vectors [..., D]: [...]."""
    products = ops.sum(student * target, axis=-1)
    squares = ops.sum(ops.square(student), axis=-1) * ops.sum(ops.square(target), axis=-1)
    return 1 - products * ops.rsqrt(ops.maximum(squares, 1e-16))


def pairs(batch: Batch, causal: bool = False, from_padding: bool = False) -> Tensor:
    """Returns the pairs of real tokens of which the first attends to the second: bool [B, T, T].

    The batch has `padding_mask` [B, T], and may have `part_ids` and `block_ids` as in
    `official.modeling.encoders.inputs`. With `from_padding`, the first of a pair may be padding.
    """
    real = ops.cast(batch["padding_mask"], "bool")
    length = ops.shape(real)[1]
    mask = masks.combine(
        masks.padding(real),
        None if from_padding else real[:, None, :, None],
        masks.parts(batch["part_ids"]) if "part_ids" in batch else None,
        masks.blocks(batch["block_ids"]) if "block_ids" in batch else None,
        masks.causal(length, length) if causal else None,
    )
    return mask[:, 0]


def score_error(student: Tensor, target: Tensor, related: Tensor) -> Tensor:
    """Returns the sum of the squared differences of scores over pairs, the mean over heads: [B].

    Args:
        student: attention scores before the softmax, [B, N, T, T].
        target: those of the teacher, [B, N, T, T].
        related: the pairs that count, bool [B, T, T].
    """
    errors = ops.mean(ops.square(student - target), axis=1)  # [B, T, T]
    return ops.sum(ops.where(related, errors, ops.zeros_like(errors)), axis=(1, 2))


def without_masked(scores: Tensor) -> Tensor:
    """Returns scores with 0 for -100 or less, by which TinyBERT's release knows what is masked."""
    return ops.where(scores <= -100, ops.zeros_like(scores), scores)


def relation_divergence(student: Tensor, target: Tensor, related: Tensor) -> Tensor:
    """Returns KL(teacher || student) of each token's distribution, the mean over heads: [B, T].

    Args:
        student: the logits of the relation, [B, G, T, T].
        target: those of the teacher, [B, G, T, T].
        related: the tokens that each token is related to, bool [B, T, T]; others have probability
            0, and a token that is related to none has no divergence.
    """
    related = related[:, None]
    hidden = masks.bias(related, student.dtype)
    targets, guesses = ops.log_softmax(target + hidden), ops.log_softmax(student + hidden)
    losses = ops.exp(targets) * (targets - guesses)
    losses = ops.where(related, losses, ops.zeros_like(losses))
    return ops.mean(ops.sum(losses, axis=-1), axis=1)


def relation(attended, kind, heads=0) -> Tensor:
    """Returns the logits of a relation among the tokens of a row: [B, G, T, T].

    They are the scores of the attention, or the products of all queries, keys or values with each
    other, divided by the root of the head size (MiniLM, section 3.2). With `heads`, the vectors of
    all attention heads are joined and split into so many heads (MiniLMv2, section 3.1).

    Args:
        attended: the record of an attention layer.
        kind: 'attention', 'query', 'key' or 'value'.
        heads: G; 0 = N.
    """
    if kind == "attention":
        return attended.scores
    vectors = getattr(attended, kind)  # [B, N, T, H]
    batch, count, length, size = ops.shape(vectors)
    if heads and heads != count:
        joined = ops.reshape(ops.transpose(vectors, (0, 2, 1, 3)), (batch, length, heads, -1))
        vectors, size = ops.transpose(joined, (0, 2, 1, 3)), count * size // heads
    return times_transposed(vectors * size**-0.5, vectors)
