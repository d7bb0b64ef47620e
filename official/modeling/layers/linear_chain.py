"""A linear-chain conditional random field (Lafferty, McCallum and Pereira, 2001).

The score of a sequence of tags is the sum of the score of each tag at its position, of each pair of
neighbouring tags, of the first tag and of the last one. Its probability is the softmax of the score
over all sequences. Positions outside the mask do not belong to the chain: the positions before and
after them are neighbours.

Shapes: B batch, T positions, C tags.
"""

import keras
from keras import ops

from official.modeling.layers.precision import accurate


class LinearChain(keras.Layer):
    """The variables `transitions` [C, C] (from, to), `first` [C] and `last` [C], zeros at first."""

    def __init__(self, num_tags, *, name="crf", dtype=None):
        """Describes a chain of tags from 0 to `num_tags` - 1."""
        super().__init__(name=name, dtype=dtype)
        self.num_tags = num_tags

    def build(self, input_shape=None):
        """Creates the variables."""
        size, options = self.num_tags, {"autocast": False, "dtype": accurate(self.compute_dtype)}
        self.transitions = self.add_weight((size, size), "zeros", name="transitions", **options)
        self.first = self.add_weight((size,), "zeros", name="first", **options)
        self.last = self.add_weight((size,), "zeros", name="last", **options)

    def _parts(self, dtype):
        return (ops.cast(v, dtype) for v in (self.transitions, self.first, self.last))

    def log_likelihood(self, scores, tags, mask):
        """Returns the log-probability of tags: [B]. It is 0 for a chain without positions.

        Args:
            scores: the score of each tag at each position, [B, T, C].
            tags: int [B, T]; values outside the mask are not read.
            mask: bool [B, T], the positions of the chain.
        """
        return self.score(scores, tags, mask) - self.log_partition(scores, mask)

    def score(self, scores, tags, mask):
        """Returns the score of a sequence of tags for each row: [B]. See `log_likelihood`."""
        transitions, first, last = self._parts(scores.dtype)
        one_hot = ops.one_hot(ops.where(mask, tags, 0), self.num_tags, dtype=scores.dtype)

        def step(carry, inputs):
            previous, total = carry  # [B, C], zeros before the first position; [B]
            score, tag, real = inputs  # [B, C], [B, C], [B]
            began = ops.any(previous > 0, axis=-1)
            pair = ops.sum(ops.matmul(previous, transitions) * tag, axis=-1)
            before = ops.where(began, pair, ops.matmul(tag, first[:, None])[:, 0])
            added = total + before + ops.sum(score * tag, axis=-1)
            carry = ops.where(real[:, None], tag, previous), ops.where(real, added, total)
            return carry, carry

        start = ops.zeros_like(scores[:, 0]), ops.zeros_like(scores[:, 0, 0])
        (tag, total), _ = ops.scan(step, start, _by_position(scores, one_hot, mask))
        return total + ops.matmul(tag, last[:, None])[:, 0]

    def log_partition(self, scores, mask):
        """Returns the log of the sum of exp(score) over all sequences of tags: [B]."""
        _, last = self._forward(scores, mask)
        return ops.where(ops.any(mask, axis=1), last, 0)

    def marginals(self, scores, mask):
        """Returns the probability of each tag at each position of the chain: [B, T, C].

        The values outside the mask are meaningless.
        """
        transitions, _, last = self._parts(scores.dtype)
        forward, log_z = self._forward(scores, mask)

        def step(carry, inputs):
            score, real = inputs  # [B, C], [B]; `carry` is the score of what follows, [B, C]
            following = ops.logsumexp(transitions + (score + carry)[:, None, :], axis=-1)
            return ops.where(real[:, None], following, carry), carry

        start = ops.zeros_like(scores[:, 0]) + last
        _, backward = ops.scan(step, start, _by_position(scores, mask), reverse=True)
        both = forward + ops.transpose(backward, (1, 0, 2))
        return ops.exp(ops.minimum(both - log_z[:, None, None], 0))

    def _forward(self, scores, mask):
        """Returns the log-sums of all beginnings [B, T, C] and those of the whole chain [B]."""
        transitions, first, last = self._parts(scores.dtype)

        def step(carry, inputs):
            log_sums, began = carry  # [B, C], [B]
            score, real = inputs  # [B, C], [B]
            after = ops.logsumexp(log_sums[:, :, None] + transitions, axis=1)
            log_sums_here = ops.where(began[:, None], after, first) + score
            log_sums = ops.where(real[:, None], log_sums_here, log_sums)
            carry = log_sums, ops.logical_or(began, real)
            return carry, carry

        start = ops.zeros_like(scores[:, 0]), ops.zeros_like(mask[:, 0])
        (end, _), (each, _) = ops.scan(step, start, _by_position(scores, mask))
        return ops.transpose(each, (1, 0, 2)), ops.logsumexp(end + last, axis=-1)

    def decode(self, scores, mask):
        """Returns the most probable sequence of tags (Viterbi, 1967): int32 [B, T].

        Of equally probable tags the first one is taken. The tag outside the mask is 0.

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
        (best, _, _), (_, _, origins) = ops.scan(forward, start, _by_position(scores, mask))
        tag = ops.cast(ops.argmax(best + last, axis=-1), "int32")  # [B]

        def backward(tag, origin):
            return ops.take_along_axis(origin, tag[:, None], axis=1)[:, 0], tag

        _, tags = ops.scan(backward, tag, origins, reverse=True)
        return ops.where(mask, ops.transpose(tags), 0)


def _by_position(*values):
    """Returns values [B, T, ...] as [T, B, ...], for `ops.scan`.

    In Keras for TensorFlow, what a step gives for its position must have the form of the carry.
    """
    return tuple(ops.transpose(v, (1, 0, *range(2, len(v.shape)))) for v in values)
