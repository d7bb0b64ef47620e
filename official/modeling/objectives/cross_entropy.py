"""The cross-entropy of large vocabularies.

Shapes: R rows, V classes.
"""

from keras import ops

from official.modeling.layers.kernels import one_pass, with_gradient


def cross_entropy(logits, targets):
    """Returns the cross-entropy of each row, and the logarithm of its normalizer Z.

    Args:
        logits: [R, V].
        targets: int [R].

    Returns:
        `losses`, log Z minus the logit of the target: [R].
        `log_z`, the log of the sum of the exponentials of the logits: [R].
        `hits`, whether no class has a larger logit than the target: bool [R].
    """
    scores, log_z, largest = ops.unstack(_summaries(logits, targets), 3)
    return log_z - scores, log_z, scores >= largest


@with_gradient
def _summaries(logits, targets):
    """Returns the target's logit, log Z and the largest logit (without a gradient): [3, R].

    The only arrays of the size [R, V] are the probabilities and the gradient. The backends' own
    losses make more passes over such arrays.
    """
    probabilities = ops.softmax(logits)
    largest = ops.max(logits, axis=-1)
    # The largest probability, 1 / V at least, is exp(largest - log Z).
    log_z = largest - ops.log(ops.max(probabilities, axis=-1))
    scores = ops.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]

    def backward(upstream):
        of_scores, of_log_z, _ = ops.unstack(upstream, 3)
        right = ops.exp(scores - log_z) * of_log_z + of_scores
        return _gradient(probabilities, targets, of_log_z, right), None

    return ops.stack([scores, log_z, largest]), backward


@one_pass
def _gradient(probabilities, targets, factors, right):
    """Returns probabilities [R, V] times factors [R], with `right` [R] at the targets [R]."""
    classes = ops.arange(probabilities.shape[1], dtype="int32")
    at_target = classes[None] == ops.cast(targets, "int32")[:, None]
    return ops.where(at_target, right[:, None], probabilities * factors[:, None])
