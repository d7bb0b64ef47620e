"""Flags of words and tags."""

import dataclasses

from absl import flags

from official.tasks import Task, conllu
from official.utils import word_rules
from official.utils.flag_table import Flag

NESTED = ("refuse", "innermost", "outermost")  # which of nested spans are kept
_RULES = "; ".join(f"{name} = {what}" for name, what in word_rules.RULES.items())
FLAGS = (
    Flag(
        "repair_tags",
        bool,
        False,
        "tagging: repair and count tags that do not follow BIO or BIOES, IOB1 too, and widen spans "
        "that cut a word",
    ),
    Flag(
        "split_words",
        str,
        word_rules.DEFAULT,
        f"tagging: how texts are split into words, here and when the model reads texts: {_RULES}",
        values=tuple(word_rules.RULES),
    ),
    Flag(
        "nested_spans",
        str,
        NESTED[0],
        "tagging: which of nested spans are kept; the others are counted",
        values=NESTED,
    ),
    Flag(
        "multiword_tokens",
        str,
        conllu.WORDS,
        "tagging, of CoNLL-U: what is read of words that stand as one in the text (al = a + il): "
        "the words, or the one on the surface, whose tag is that of its line, or those of the "
        "words joined by + (of entities: the first one)",
        values=tuple(conllu.MULTIWORD),
    ),
)


def completed(task: Task, options: flags.FlagValues) -> Task:
    """Returns a task of tags with its rule of words, and any other task as it is."""
    if task.kind != "tagging":
        return task
    return dataclasses.replace(task, split_words=options.split_words)
