"""Which signatures a SavedModel has: one table, by the objective that is served.

| objective | signatures | serving_default |
|---|---|---|
| span_answer | answer, tokens (of the form `independent`) | answer |
| multiple_choice | choose, tokens | choose |
| ranking, kernel_ranking | rank, tokens | rank |
| classification, regression, any other | single, pair, tokens | single or pair |
| causal_lm | generate, sample beside the last ones | as the last ones |
"""

import dataclasses
from collections.abc import Callable, Mapping

import tensorflow as tf

from official import config as configs
from official.modeling.model import Model
from official.modeling.objectives.base import Objective
from official.serving.generator import why_not
from official.serving.signatures import (
    causal_lm,
    classification,
    inputs,
    multiple_choice,
    ranking,
    span_answer,
)


@dataclasses.dataclass(frozen=True)
class Kind:
    """What models of one kind are served as.

    Attributes:
      signatures: makes them.
      default: the names of those that can be `serving_default`, and what they take in words.
      long: what happens to texts that are too long.
    """

    signatures: Callable[[inputs.Parts], dict[str, inputs.Signature]]
    default: Mapping[str, str]
    long: str = "cut at"


_TEXTS = Kind(classification.signatures, {"single": "a text", "pair": "two texts"})
_RANK = Kind(ranking.signatures, {"rank": "a query and documents"})
# The first objective of this table that a model has is the one that is served.
KINDS = {
    "span_answer": Kind(
        span_answer.signatures, {"answer": "question and context"}, "read in windows of"
    ),
    "multiple_choice": Kind(
        multiple_choice.signatures, {"choose": "context, question and choices"}
    ),
    "ranking": _RANK,
    "kernel_ranking": _RANK,
    "classification": _TEXTS,
    "regression": _TEXTS,
}


def kind_of(config: configs.Config, model: Model) -> tuple[Kind, Objective | None]:
    """How a model is served, and its objective that is; None where it is the encoder."""
    names = [objective.type for objective in config.objectives]
    for name, kind in KINDS.items():
        if name in names:
            return kind, model.objectives[names.index(name)]
    return _TEXTS, None


def make(parts: inputs.Parts, kind: Kind, default: str, count: int) -> tuple[tf.Module, dict]:
    """The object to save and its signatures.

    Args:
      parts: what they are made of.
      kind: which they are.
      default: the one that is `serving_default` too.
      count: how many tokens a causal LM writes.
    """
    server = tf.Module()
    server.tokenizer = parts.tokenizer.module()
    server.weights = parts.weights.module  # the heads of pretraining, a generator, stay behind
    signatures = kind.signatures(parts)
    if why_not(parts.model) is None:
        signatures |= causal_lm.signatures(parts, count)
    signatures["serving_default"] = signatures[default]
    return server, signatures
