"""A linear-chain conditional random field (Lafferty, McCallum and Pereira, 2001).

The score of a sequence of tags is the sum of the score of each tag at its position, of each pair of
neighboring tags, of the first tag and of the last one. Its probability is the softmax of the score
over all sequences. Positions outside the mask do not belong to the chain: the positions before and
after them are neighbors.

Shapes: B batch, T positions, C tags.
"""

from keras import ops
from typing_extensions import override

from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import accurate, scan, with_gradient
from official.modeling.types import DType, Tensor


class LinearChain(Layer):
    """A CRF with the variables `transitions` [C, C] (from, to), `first` [C] and `last` [C].

    All are 0 at the start.
    """

    def __init__(self, num_tags: int, *, name: str = "crf", dtype: DType | None = None):
        """Describes a chain of tags 0 to `num_tags` - 1."""
        super().__init__(name=name, dtype=dtype)
        self.num_tags = num_tags

    @override
    def build(self, input_shape=None):
        size, options = self.num_tags, {"autocast": False, "dtype": accurate(self.compute_dtype)}
        self.transitions = self.add_weight((size, size), "zeros", name="transitions", **options)
        self.first = self.add_weight((size,), "zeros", name="first", **options)
        self.last = self.add_weight((size,), "zeros", name="last", **options)

    def _parts(self, dtype: DType):
        return [ops.cast(v, dtype) for v in (self.transitions, self.first, self.last)]

    def log_likelihood(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Returns the log-probability of tags: [B]. It is 0 for a chain without positions.

        Args:
            scores: the score of each tag at each position, [B, T, C].
            tags: int [B, T]; values outside the mask are not read.
            mask: bool [B, T], the positions of the chain.
        """
        return self.score(scores, tags, mask) - self.log_partition(scores, mask)

    def score(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Returns the score of a sequence of tags for each row: [B]. See `log_likelihood`."""
        transitions, first, last = self._parts(scores.dtype)
        tags = ops.where(mask, ops.cast(tags, "int32"), -1)

        def step(tag, now):
            return ops.where(now >= 0, now, tag), tag

        start = ops.zeros_like(tags[:, 0]) - 1
        end, previous = ops.scan(step, start, ops.transpose(tags))  # [B], [T, B]
        # The one-hot vector of -1 is zero.
        tag, before, end = (
            ops.one_hot(x, self.num_tags, dtype=scores.dtype)
            for x in (tags, ops.transpose(previous), end)
        )
        begins = ops.cast(ops.transpose(previous) < 0, scores.dtype)[:, :, None]
        each = scores + ops.matmul(before, transitions) + begins * first
        return ops.sum(each * tag, axis=(1, 2)) + ops.matmul(end, last[:, None])[:, 0]

    def log_partition(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Returns the log of the sum of exp(score) over all sequences of tags: [B]."""
        return _log_partition(scores, *self._parts(scores.dtype), ops.convert_to_tensor(mask))

    def marginals(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Returns the probability of each tag at each position of the chain: [B, T, C].

        The values outside the mask are meaningless.
        """
        transitions, first, last = self._parts(scores.dtype)
        mask = ops.convert_to_tensor(mask)
        forward, _, log_z = _forward(scores, transitions, first, last, mask)
        following, _ = _backward(scores, transitions, last, mask, forward, log_z)
        return ops.transpose(_exp(forward + following - log_z[:, None]), (1, 0, 2))

    def decode(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Returns the most probable sequence of tags (Viterbi, 1967): int32 [B, T].

        In a tie, the lowest tag is taken. Tags outside the mask are 0.

        Args:
            scores: [B, T, C].
            mask: bool [B, T], the positions of the chain.
        """
        transitions, first, last = self._parts(scores.dtype)
        same = ops.arange(self.num_tags, dtype="int32") + ops.zeros_like(scores[:, 0], "int32")

        def forward(carry, inputs):
            best, began, _ = carry  # [B, C], [B]
            score, real = inputs
            through = best[:, :, None] + transitions  # [B, from, to]
            here = ops.where(began[:, None], ops.max(through, axis=1), first) + score
            origin = ops.cast(ops.argmax(through, axis=1), "int32")  # [B, C]
            origin = ops.where(ops.logical_and(began, real)[:, None], origin, same)
            best = ops.where(real[:, None], here, best)
            carry = best, ops.logical_or(began, real), origin
            return carry, carry

        start = ops.zeros_like(scores[:, 0]), ops.zeros_like(mask[:, 0]), same
        (best, _, _), (_, _, origins) = scan(forward, start, _by_position(scores, mask))
        tag = ops.cast(ops.argmax(best + last, axis=-1), "int32")  # [B]

        def backward(tag, origin):
            return ops.take_along_axis(origin, tag[:, None], axis=1)[:, 0], tag

        _, tags = ops.scan(backward, tag, origins, reverse=True)
        return ops.where(mask, ops.transpose(tags), 0)


@with_gradient
def _log_partition(scores: Tensor, transitions: Tensor, first: Tensor, last: Tensor, mask: Tensor):
    """Returns the log-partition [B] of `LinearChain`, with a custom gradient.

    The gradients are the expected counts of tags and of pairs of neighbors. (XLA cannot compile
    the automatic gradient of `ops.scan`.)
    """
    forward, began, log_z = _forward(scores, transitions, first, last, mask)
    nonempty = ops.any(mask, axis=1)

    def backward(upstream):
        factor = ops.where(nonempty, upstream, 0)[:, None]  # [B, 1]
        following, pairs = _backward(scores, transitions, last, mask, forward, log_z, began, factor)
        of_scores = _exp(forward + following - log_z[:, None]) * factor
        of_scores = ops.where(ops.transpose(mask)[:, :, None], of_scores, 0)  # [T, B, C]
        of_first = ops.sum(ops.where(began[:, :, None], 0, of_scores), axis=(0, 1))
        of_last = ops.sum(_exp(forward[-1] + last - log_z[:, None]) * factor, axis=0)
        return ops.transpose(of_scores, (1, 0, 2)), pairs, of_first, of_last, None

    return ops.where(nonempty, log_z, 0), backward


def _forward(scores: Tensor, transitions: Tensor, first: Tensor, last: Tensor, mask: Tensor):
    """The forward algorithm: sums over the beginnings of all sequences.

    Returns:
        The log-sum of the beginnings that end with each tag, up to each position [T, B, C]; whether
        the chain has begun before the position, bool [T, B]; and the log-sum of the chain [B].
    """

    def step(carry, inputs):
        log_sums, began, _ = carry  # [B, C], [B]
        score, real = inputs  # [B, C], [B]
        after = ops.logsumexp(log_sums[:, :, None] + transitions, axis=1)
        here = ops.where(began[:, None], after, first) + score
        log_sums = ops.where(real[:, None], here, log_sums)
        carry = log_sums, ops.logical_or(began, real), began
        return carry, carry

    none = ops.zeros_like(mask[:, 0])
    start = ops.zeros_like(scores[:, 0]), none, none
    (end, *_), (each, _, began) = scan(step, start, _by_position(scores, mask))
    return each, began, ops.logsumexp(end + last, axis=-1)


def _backward(
    scores: Tensor,
    transitions: Tensor,
    last: Tensor,
    mask: Tensor,
    forward: Tensor,
    log_z: Tensor,
    began: Tensor | None = None,
    factor: Tensor | None = None,
):
    """The backward algorithm: sums over the ends of all sequences.

    Args:
        scores: [B, T, C].
        transitions: [C, C].
        last: [C].
        mask: bool [B, T].
        forward: the log-sums of `_forward`, [T, B, C].
        log_z: the log-sum of the chain, [B].
        began: the second result of `_forward`; None = pairs are not counted.
        factor: the factor of the counts of each row, [B, 1].

    Returns:
        The log-sum of what follows each tag after each position [T, B, C], and the expected count
        of each pair of neighbors, summed over rows [C, C].
    """
    counted = ops.transpose(mask)
    counted = ops.logical_and(counted, began) if began is not None else ops.zeros_like(counted)
    earlier = ops.concatenate([ops.zeros_like(forward[:1]), forward[:-1]], axis=0)

    def step(carry, inputs):
        following, counts, _ = carry
        score, real, pair, before = inputs  # [B, C], [B], [B], [B, C]
        here = score + following
        if factor is not None:
            joint = before[:, :, None] + transitions + here[:, None, :] - log_z[:, None, None]
            share = ops.where(pair[:, None], factor, 0)[:, :, None]
            counts = counts + ops.sum(ops.where(share != 0, _exp(joint) * share, 0), axis=0)
        new = ops.logsumexp(transitions + here[:, None, :], axis=-1)
        carry = ops.where(real[:, None], new, following), counts, following
        return carry, carry

    start = ops.zeros_like(forward[0]) + last
    inputs = (*_by_position(scores, mask), counted, earlier)
    (_, counts, _), (_, _, following) = scan(
        step, (start, ops.zeros_like(transitions), start), inputs, reverse=True
    )
    return following, counts


def _exp(x: Tensor) -> Tensor:
    """Returns exp(x), at most 1: rounding may bring a log-probability above 0."""
    return ops.exp(ops.minimum(x, 0))


def _by_position(*values):
    """Returns values [B, T, ...] as [T, B, ...], for `scan`.

    In Keras for TensorFlow, the outputs of a step must have the structure of the carry.
    """
    return tuple(ops.transpose(v, (1, 0, *range(2, len(v.shape)))) for v in values)
