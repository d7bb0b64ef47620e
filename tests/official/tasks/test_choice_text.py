"""Where a choice goes in the text of its question, eagerly and in a graph."""

import itertools
import re

import pytest
import tensorflow as tf

from official.tasks import choice_text

CASES = [
    ("Who?", "Tom", True, "Who? Tom"),
    ("The dog is _ .", "old", True, "The dog is old ."),
    ("The dog is ____.", "old", True, "The dog is old."),
    ("_ and __", r"\1 \0", True, r"\1 \0 and \1 \0"),
    ("_", "a_b", True, "a_b"),
    ("The dog is _ .", "old", False, "The dog is _ . old"),
    ("", "old", True, "old"),
    ("", "old", False, "old"),
    ("_x_", "", True, "x"),
]


def slowly(question, choice, blank):
    if blank and "_" in question:
        return re.sub("_+", lambda _: choice, question)
    return f"{question} {choice}" if question else choice


@pytest.mark.parametrize("blank", [True, False])
def test_the_choice_is_put_in_its_place(blank):
    cases = [case for case in CASES if case[2] == blank]
    questions, choices, _, texts = zip(*cases, strict=True)
    joined = choice_text.joined(tf.constant(questions), tf.constant(choices), blank)
    assert [text.decode() for text in joined.numpy()] == list(texts)


@pytest.mark.parametrize("blank", [True, False])
def test_the_graph_does_the_same(blank):
    odd = ["", "_", "__", " _ ", "_a", "a_", "ü_猫__", "\\1", "a b", "_\n_", "___x___y"]
    pairs = [case[:2] for case in CASES] + list(itertools.product(odd, odd))
    joined = tf.function(choice_text.joined)(*map(tf.constant, zip(*pairs, strict=True)), blank)
    assert [text.decode() for text in joined.numpy()] == [slowly(*pair, blank) for pair in pairs]
    none = choice_text.joined(tf.constant([], tf.string), tf.constant([], tf.string), blank)
    assert none.shape == [0]
