"""The signatures of a SavedModel by the objective that is served.

| objective | signatures | serving_default |
|---|---|---|
| span_answer | answer, tokens (of the form `independent`) | answer |
| token_classification | tag, tag_words, tokens | tag |
| multiple_choice | choose, tokens | choose |
| ranking, kernel_ranking | rank, tokens | rank |
| classification, regression, any other | single, pair, tokens | single or pair |
| seq2seq_lm | generate, sample | generate |
| causal_lm | generate, sample beside those of the encoder | as those of the encoder |

An ensemble has only the signatures that take texts, because ids are those of one vocabulary.

An ELMo without a head, or with the layer mix of a head, also has the signatures of
`texts.word_signatures`. A model with a masked LM also has those of `fill_mask`.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import tensorflow as tf

from official import config as configs
from official.modeling.model import Model
from official.modeling.objectives.base import Objective
from official.serving.generation import generator
from official.serving.signatures import fill_mask, generation, inputs, texts
from official.tasks import kinds

# Kinds of tasks by the types of their objectives. Classification and regression come last.
_KINDS = {
    name: kind
    for kind in sorted(kinds.KINDS.values(), key=lambda kind: kind.generic)
    for name in kind.objectives
    if kind.signatures
}


class Signatures(Protocol):
    """A module of signatures. `official.tasks.kinds` names the module of each kind of task.

    Attributes:
      DEFAULT: the names of the signatures that can be `serving_default`, with a description of
        their inputs.
      LONG: a description of what happens to texts that are too long.
    """

    DEFAULT: dict[str, str]
    LONG: str

    def signatures(self, context: inputs.ServingContext) -> dict[str, inputs.Signature]:
        """Returns the signatures by name."""


def module_of(objective: str) -> Signatures:
    """Returns the module with the signatures of an objective's task."""
    return kinds.load(_KINDS[objective].signatures)


def served(config: configs.ResolvedConfig, model: Model) -> tuple[Signatures, Objective | None]:
    """Returns the module of signatures of a model and the objective that is served.

    The objective is None if the encoder alone is served.
    """
    names = [objective.type for objective in config.objectives]
    for name in _KINDS:
        if name in names:
            return module_of(name), model.objectives[names.index(name)]
    return texts, None


def described(default: str, task: Mapping[str, Any]) -> str:
    """Returns a description of the inputs of a default signature, of a model of a task."""
    modules = map(module_of, _KINDS)
    module = next(module for module in modules if default in module.DEFAULT)
    count = task.get("windows") if default == "single" else None
    long = f"read in up to {count} windows of" if count else module.LONG
    return f"{module.DEFAULT[default]}, {long}"


def make(
    context: inputs.ServingContext, module: Signatures, default: str
) -> tuple[tf.Module, dict]:
    """Returns the object to save and its signatures.

    Args:
      context: the model.
      module: the module of signatures.
      default: the name of the signature that is also `serving_default`.
    """
    server = tf.Module()  # what is stored: without other heads and without a generator
    server.tokenizer = context.tokenizer.module()
    server.weights = context.weights.module
    signatures = module.signatures(context)
    if generator.objective(context.model) == "causal_lm":
        signatures |= generation.signatures(context)
    signatures |= texts.word_signatures(context)
    if context.filler is not None:
        signatures |= fill_mask.signatures(context)
    signatures["serving_default"] = signatures[default]
    return server, signatures
