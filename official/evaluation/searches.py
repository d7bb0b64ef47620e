"""Measures the vectors of a model by an exact search of a test collection, in bounded memory.

The vectors of all queries are in memory. Documents are encoded and compared block by block.

Shapes: B texts of a batch, N texts of a block, V size of a vector.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from official import config as configs
from official.data.collection import SEARCHED, Collection, Texts
from official.evaluation import rankings
from official.evaluation.nearest_vectors import Best
from official.modeling.layers import pooling
from official.modeling.model import Model

TOP_K = 100  # documents of a query


def replica_step(
    model: Model, batch: Mapping[str, tf.Tensor]
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Computes the vectors of a batch of `Texts` on one replica.

    Returns:
      No sums, and `vectors` float32 [B, V] and `number` [B]. Dense vectors have the length 1.
    """
    head = model.objective(*SEARCHED)
    batch = head.prepare(batch)
    encoded = model.encode_as_read(batch, objectives=[head])
    vectors = head.predictions(batch, encoded, model.encoder)["vectors"][:, 0]
    if head.config.similarity == "cosine":
        vectors = pooling.normalized(vectors)
    vectors = tf.cast(vectors, tf.float32)
    return tf.zeros([0]), {"vectors": vectors, "number": batch["number"]}


def similarity_of(config: configs.Config) -> str:
    """Returns how the vectors of a model are compared: `cosine` or `dot`."""
    head: Any
    (head, *_) = config.of_types(*SEARCHED)
    return head.similarity


def metrics(
    collection: Collection,
    outputs: Callable[[Texts], Mapping[str, np.ndarray]],
    similarity: str = "cosine",
) -> dict[str, float]:
    """Searches a collection, and computes its measures as `--mode=search` does.

    Args:
      collection: the collection.
      outputs: computes the outputs of `replica_step` for all texts of a block.
      similarity: how vectors are compared, `cosine` or `dot`.
    """

    def vectors(blocks: Iterator[Texts]) -> Iterator[np.ndarray]:
        for block in blocks:
            found = outputs(block)
            order = np.argsort(found["number"])[-block.num_examples :]  # without filler
            yield found["vectors"][order]  # [N, V]

    queries = np.concatenate(list(vectors(collection.texts_of_queries())))
    best = Best(queries, TOP_K + 1, similarity)  # a document may be the query itself
    for documents in vectors(collection.texts_of_documents()):
        best.add(documents)
    run = dict(best.found.runs(collection.queries, collection.documents, TOP_K, own=False))
    return rankings.compute(collection.metrics, collection.qrels, run)
