"""Which signatures a SavedModel has: one table, by the objective that is served.

| objective | signatures | serving_default |
|---|---|---|
| span_answer | answer, tokens (of the form `independent`) | answer |
| multiple_choice | choose, tokens | choose |
| ranking, kernel_ranking | rank, tokens | rank |
| classification, regression, any other | single, pair, tokens | single or pair |
| causal_lm | generate, sample beside the last ones | as the last ones |
"""

from collections.abc import Mapping
from typing import Protocol

import tensorflow as tf

from official import config as configs
from official.modeling.model import Model
from official.modeling.objectives.base import Objective
from official.serving.generator import why_not
from official.serving.signatures import causal_lm, classification, inputs
from official.tasks import kinds

# By the types of their objectives; a head that is no classification or regression comes first.
_KINDS = {
    name: kind
    for kind in sorted(kinds.KINDS.values(), key=lambda kind: kind.generic)
    for name in kind.objectives
}


class Signatures(Protocol):
    """A module of signatures; `official.tasks.kinds` says which kind of task has which.

    Attributes:
      DEFAULT: the names of those that can be `serving_default`, and what they take in words.
      LONG: what happens to texts that are too long, in words.
    """

    DEFAULT: Mapping[str, str]
    LONG: str

    def signatures(self, parts: inputs.ServingContext) -> dict[str, inputs.Signature]:
        """Makes the signatures."""


def module_of(objective: str) -> Signatures:
    """Returns the module with the signatures of an objective's task."""
    return kinds.load(_KINDS[objective].signatures)


def served(config: configs.Config, model: Model) -> tuple[Signatures, Objective | None]:
    """Returns how a model is served, and its objective that is; None = the encoder is."""
    names = [objective.type for objective in config.objectives]
    for name in _KINDS:
        if name in names:
            return module_of(name), model.objectives[names.index(name)]
    return classification, None


def described(default: str) -> str:
    """Returns in words what a default signature takes, and what it does to long texts."""
    modules = map(module_of, _KINDS)
    module = next(module for module in modules if default in module.DEFAULT)
    return f"{module.DEFAULT[default]}, {module.LONG}"


def make(
    parts: inputs.ServingContext, module: Signatures, default: str, count: int
) -> tuple[tf.Module, dict]:
    """The object to save and its signatures.

    Args:
      parts: what they are made of.
      module: of the signatures.
      default: the one that is `serving_default` too.
      count: how many tokens a causal LM writes.
    """
    server = tf.Module()
    server.tokenizer = parts.tokenizer.module()
    server.weights = parts.weights.module  # the heads of pretraining, a generator, stay behind
    signatures = module.signatures(parts)
    if why_not(parts.model) is None:
        signatures |= causal_lm.signatures(parts, count)
    signatures["serving_default"] = signatures[default]
    return server, signatures
