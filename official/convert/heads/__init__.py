"""Heads: how each is found in another tool's files, and how config.json describes it.

A class is a kind of head: its name, its objective and the keys of config.json that it reads and
writes. An instance is that head in the files of one system: its tensors and its class of
transformers. `official.convert.system.System` has a table of them.
"""

from typing import Any

from official.convert.heads.base import Head
from official.convert.heads.pretraining import (
    CausalLM,
    MaskedLM,
    NextSentence,
    PermutationLM,
    ReplacedTokens,
    SentenceOrder,
    Seq2SeqLM,
)
from official.convert.heads.tasks import (
    Classification,
    ConditionalSpanAnswer,
    MultiLabel,
    MultipleChoice,
    Regression,
    SpanAnswer,
    TaskHead,
    TokenClassification,
)

__all__ = [
    "KINDS",
    "CausalLM",
    "Classification",
    "ConditionalSpanAnswer",
    "Head",
    "MaskedLM",
    "MultiLabel",
    "MultipleChoice",
    "NextSentence",
    "PermutationLM",
    "Regression",
    "ReplacedTokens",
    "SentenceOrder",
    "Seq2SeqLM",
    "SpanAnswer",
    "TaskHead",
    "TokenClassification",
    "kind_of",
    "name_of",
    "table",
]

# The kinds of heads by their names.
KINDS: dict[str, type[Head]] = {
    kind.name: kind
    for kind in (
        MaskedLM,
        NextSentence,
        SentenceOrder,
        CausalLM,
        PermutationLM,
        ReplacedTokens,
        Seq2SeqLM,
        Classification,
        MultiLabel,
        Regression,
        MultipleChoice,
        SpanAnswer,
        ConditionalSpanAnswer,
        TokenClassification,
    )
}


def table(*heads: Head) -> dict[str, Head]:
    """Returns the heads by their names."""
    return {head.name: head for head in heads}


def kind_of(objective: Any) -> type[Head]:
    """Returns the kind of head of an objective; `Head` where no system has one."""
    return next((kind for kind in KINDS.values() if kind.describes(objective)), Head)


def name_of(objective: Any) -> str:
    """Returns the name of the head of an objective: the task's, where there are several."""
    return getattr(objective, "task", "") or kind_of(objective).name or objective.type
