"""Scores of queries and documents by the vectors of their tokens (Khattab and Zaharia, 2020).

A vector of zeros is no token.

Shapes: Q queries, S tokens of a query, N documents, T tokens of a document, D size of a vector.
"""

from keras import ops

from official.modeling.layers.kernels import times_transposed
from official.modeling.types import Tensor

EMPTY = -1e9  # the score of a document without tokens


def max_sim(queries: Tensor, documents: Tensor, mean: bool = False) -> Tensor:
    """Returns the scores of all queries and documents: [Q, N].

    A score is the sum over the tokens of the query of the largest product with a token of the
    document.

    Args:
        queries: [Q, S, D].
        documents: [N, T, D].
        mean: whether the sums are divided by the numbers of tokens of the queries.
    """
    shape = (*ops.shape(queries)[:2], *ops.shape(documents)[:2])
    size = queries.shape[-1]
    products = times_transposed(
        ops.reshape(queries, (-1, size)), ops.reshape(documents, (-1, size))
    )  # [Q S, N T]
    return _summed(ops.reshape(products, shape), queries, _real(documents), mean)


def max_sim_pairs(queries: Tensor, documents: Tensor, mean: bool = False) -> Tensor:
    """Returns the scores of each query and its own documents: [Q, N].

    Args:
        queries: [Q, S, D].
        documents: [Q, N, T, D].
        mean: as in `max_sim`.
    """
    shape = (*ops.shape(queries)[:2], *ops.shape(documents)[1:3])
    flat = ops.reshape(documents, (shape[0], -1, queries.shape[-1]))  # [Q, N T, D]
    products = ops.reshape(times_transposed(queries, flat), shape)
    return _summed(products, queries, _real(documents)[:, None], mean)


def _real(vectors: Tensor) -> Tensor:
    """Returns which vectors [..., D] are of a token: bool [...]."""
    return ops.any(ops.not_equal(vectors, 0), axis=-1)


def _summed(products: Tensor, queries: Tensor, real: Tensor, mean: bool) -> Tensor:
    """Returns the scores [Q, N] of products [Q, S, N, T], of which `real` are of tokens."""
    best = ops.max(ops.where(real, products, EMPTY), axis=-1)  # [Q, S, N]
    asked = ops.cast(_real(queries), best.dtype)[..., None]  # [Q, S, 1]
    scores = ops.sum(best * asked, axis=1)
    if mean:
        scores = scores / ops.maximum(ops.sum(asked, axis=1), 1)
    there = ops.any(real, axis=-1)  # [N], or [Q, 1, N]
    return ops.where(there[:, 0] if len(there.shape) > 1 else there, scores, EMPTY)
