"""Metrics and predictions of texts whose vectors are compared.

Vectors of texts are compared by their cosines, sparse ones by their products, and those of tokens
by `max_sim`.

| metric | of examples |
|---|---|
| spearman, pearson | pairs with scores: the correlation of the similarity with the score |
| average_precision | pairs with the scores 0 and 1, sorted by their similarities |
| accuracy, mrr | others: the share of ranks 1 of the second text, and the mean of 1 / rank |

The second text is ranked among the other texts (all but the first text of each example) of up to
`BLOCK` examples. Texts that equal the first or the second one do not count, nor do the second texts
of examples with the same first text. In a tie, the other texts rank higher.

Shapes: B examples, C texts of an example, T tokens, V size of a vector.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from official import config as configs
from official.data import ShardDataset
from official.evaluation import nearest_vectors, rows
from official.evaluation.max_sim import Vectors
from official.tasks import KINDS
from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

BLOCK = 1000
_OF_RANKS = {"accuracy": lambda ranks: ranks == 1, "mrr": lambda ranks: 1 / ranks}


class Scorer:
    """See `official.evaluation.evaluator.Scorer`."""

    def __init__(self, config: configs.ResolvedConfig, source: ShardDataset):
        """Raises UserError if the model has no vectors of texts."""
        known = KINDS["embedding"].objectives
        head: Any = next((o for o in config.objectives if o.type in known), None)
        if head is None:
            types = [objective.type for objective in config.objectives]
            raise UserError(
                "the data is a task of texts whose vectors are compared, and the model has no "
                f"objective {' or '.join(known)}: its objectives are "
                f"{', '.join(types) or 'none'}: train it for one of these"
            )
        self._source, self._kind = source, head.similarity
        of_tokens = self._kind in nearest_vectors.OF_TOKENS
        self.outputs = ("token_vectors" if of_tokens else "vectors",)

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """See `compute`; UserError if the split has nothing to compare."""
        real = outputs["example_weights"] > 0
        scores = outputs.get("true_score")
        return compute(
            self._source.task.metrics,
            outputs[self.outputs[0]][real],
            outputs["text_hashes"][real],
            None if scores is None else scores[real],
            self._kind,
        )

    def check_output(self, output: AnyPath) -> None:
        """See `paths.check_suffix`; a split of texts alone is refused."""
        paths.check_suffix(output, "predictions", rows.SUFFIXES)
        if (self._source.task.sequences or {}).get(self._source.split, 1) < 2:
            raise UserError(
                f"{self._source.folder}: the examples of the {self._source.split} split are texts "
                "alone, which are not compared: --mode=embed writes their vectors"
            )

    def write(self, outputs: Mapping[str, np.ndarray], output: AnyPath) -> None:
        """Writes the similarities of the first text of each row with its other texts."""
        numbers, outputs = rows.in_order(outputs, self._source)
        found = similarities(outputs[self.outputs[0]], self._kind)
        name = "cosine" if self._kind == "cosine" else "score"
        names = [name, *(f"{name}_{i}" for i in range(2, found.shape[1] + 1))]
        with atomic.file(output) as stream:
            if output.suffix == ".tsv":
                stream.write("\t".join(["row", *names]) + "\n")
            for number, values in zip(numbers.tolist(), found, strict=True):
                texts = list(map(str, values))  # the shortest numbers that are the same float32
                if output.suffix == ".tsv":
                    stream.write("\t".join([str(number), *texts]) + "\n")
                else:
                    named = dict(zip(names, map(float, texts), strict=True))
                    stream.write(json.dumps({"row": number, **named}) + "\n")


def compute(
    names: Iterable[str],
    vectors: np.ndarray,
    hashes: np.ndarray,
    scores: np.ndarray | None,
    kind: str = "cosine",
) -> dict[str, float]:
    """Computes metrics of `official.tasks.METRICS["embedding"]`.

    Args:
      names: the names of the metrics.
      vectors: as in `similarities`.
      hashes: a number of each text, int [B, C].
      scores: those of pairs, float [B]; None = there are none.
      kind: as in `similarities`.

    Returns:
      The metrics by name, in the order of `names`.

    Raises:
      UserError: the examples are texts alone, or do not have the scores that a metric needs.
    """
    if vectors.shape[1] < 2:
        raise UserError(
            "the examples are texts alone, which have nothing to compare: name the folder of a "
            "task of pairs with --validation_data"
        )
    names = list(names)
    found: dict[str, float] = {}
    if of_ranks := [name for name in names if name in _OF_RANKS]:
        places = ranks(vectors, hashes, kind)
        found |= {name: float(np.mean(_OF_RANKS[name](places))) for name in of_ranks}
    if of_scores := [name for name in names if name not in _OF_RANKS]:
        if scores is None:
            raise rows.nothing_to_compare("scores")
        alike = similarities(vectors, kind)[:, 0]
        for name in of_scores:
            if name == "average_precision":
                found[name] = _average_precision(scores, alike)
            else:
                found |= rows.compute([name], scores, alike)
    return {name: found[name] for name in names}


def similarities(vectors: np.ndarray, kind: str = "cosine") -> np.ndarray:
    """Returns the similarities of the first text of each example with the others.

    Args:
      vectors: of texts, float [B, C, V]; or of tokens, float [B, C, T, V], where vectors of zeros
        are no tokens.
      kind: `cosine`, `dot`, or one of `nearest_vectors.OF_TOKENS`.

    Returns:
      float32 [B, C - 1].
    """
    if kind not in nearest_vectors.OF_TOKENS:
        unit = np.asarray(_compared(vectors, kind))
        return np.einsum("bv,bcv->bc", unit[:, 0], unit[:, 1:])
    texts = (_compared(example, kind) for example in vectors)
    return np.stack([nearest_vectors.similarity(x[:1], x[1:], kind)[0] for x in texts])


def ranks(vectors: np.ndarray, hashes: np.ndarray, kind: str = "cosine") -> np.ndarray:
    """Returns the rank of the second text of each example, as the module says.

    Args:
      vectors: as in `similarities`.
      hashes: a number of each text, int [B, C].
      kind: as in `similarities`.

    Returns:
      int [B], from 1.
    """
    blocks = np.array_split(np.arange(len(vectors)), max(1, math.ceil(len(vectors) / BLOCK)))
    return np.concatenate([_ranks(vectors[block], hashes[block], kind) for block in blocks])


def _ranks(vectors: np.ndarray, hashes: np.ndarray, kind: str) -> np.ndarray:
    """Returns the ranks of a block of examples."""
    first, second = hashes[:, 0], hashes[:, 1]
    texts = np.concatenate(hashes[:, 1:].T)  # second texts of all examples, then third texts
    candidates = np.concatenate(vectors[:, 1:].swapaxes(0, 1))
    both = _compared(vectors[:, 0], kind), _compared(candidates, kind)
    found = nearest_vectors.similarity(*both, kind)  # [b, b (C - 1)]
    own = np.diagonal(found)[:, None]
    others = (texts != first[:, None]) & (texts != second[:, None])
    others[:, : len(first)] &= first[:, None] != first[None]
    return 1 + np.sum(others & (found >= own), axis=1)


def _compared(vectors: np.ndarray, kind: str) -> Vectors:
    """Returns the vectors of texts [N, ...] as `nearest_vectors.similarity` takes them."""
    vectors = vectors.astype(np.float32)
    if kind in nearest_vectors.OF_TOKENS:
        return [text[text.any(axis=-1)] for text in vectors]
    if kind == "dot":
        return vectors
    return nearest_vectors.normalized(vectors)


def _average_precision(scores: np.ndarray, found: np.ndarray) -> float:
    from sklearn import metrics  # slow to import

    if not np.isin(scores, (0, 1)).all():
        raise UserError(
            "average_precision needs scores of 0 and 1, and there are others: measure spearman, or "
            "make the shards with --embed_as=binary"
        )
    return float(metrics.average_precision_score(scores, found)) if scores.any() else 0.0
