"""Rules for the tokens of generated texts: against transformers, and at their doors."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from official.saving import generation_settings
from official.saving.generation_settings import Settings
from official.serving.generation import token_choice
from official.serving.generation.token_choice import Processors
from official.utils.errors import UserError
from tests.official.serving.generation.generated import (
    NEW,
    check,
    make,
    names_of,
    read,
    settings_of,
)


@pytest.fixture(scope="module", params=["t5", "gpt2"])
def case(request):
    return make(request.param)


def test_a_greedy_search_with_all_rules_is_that_of_transformers(case):
    golden, generator = case
    name = names_of(golden, beams=False)[-1]
    assert len(json.loads(name)) == 3
    check(golden, generator, [name])


@pytest.mark.slow
def test_a_beam_search_is_that_of_transformers(case):
    golden, generator = case
    name = names_of(golden, beams=True)[-1]
    check(golden, generator, [name])
    settings = settings_of(name)
    assert (settings.num_beams, settings.num_return_sequences) == (4, 2)
    inputs = tf.constant(golden["token_ids"]), tf.constant(golden["padding_mask"])
    rules = token_choice.options(settings)
    graph = generator._beam_graph  # made by `check`
    _, scores = graph(*inputs, NEW, 4, "huggingface", tf.constant(2.0), True, rules)
    expected = golden[f"scores/{name}"].reshape(-1, 2)
    np.testing.assert_allclose(scores[:, :2], expected, atol=1e-5, rtol=1e-5)


def test_rules_change_scores_as_in_transformers():
    golden = read("processors/")
    tokens, scores = golden["tokens"], golden["scores"]
    names = [name for name in golden if name.startswith("{")]
    assert len(names) == 7
    # As a prompt of three tokens, with padding before it, and six new tokens, with others after.
    prompt = np.concatenate([tokens[:, 3:5], tokens[:, :3]], axis=1)
    new = np.concatenate([tokens[:, 3:], tokens[:, :3]], axis=1)
    for compiled in (False, True):

        @tf.function(autograph=False, jit_compile=compiled)
        def all_of(prompt, new, i):
            padding = tf.fill([4], 2)
            return [
                Processors(prompt, padding, 1, **json.loads(name))(scores, new, i) for name in names
            ]

        for name, actual in zip(names, all_of(prompt, new, 6), strict=True):
            np.testing.assert_array_equal(actual, golden[name], err_msg=name)


def test_nothing_is_added_to_a_graph_without_rules():
    golden, generator = make("t5")
    inputs = tf.constant(golden["token_ids"]), tf.constant(golden["padding_mask"])
    assert token_choice.options(Settings()) is None
    graph = tf.function(generator.write, autograph=False).get_concrete_function(*inputs, NEW)
    nodes = [op.type for f in graph.graph._functions.values() for op in f.graph.get_operations()]
    assert "ArgMax" in nodes and "ScatterNd" not in nodes and "Roll" not in nodes


def test_each_copy_of_a_text_has_draws_of_its_own():
    settings = Settings(temperature=1.0, seed=5)
    numbers = np.array([4, 0, 9])
    one = token_choice.draws(settings, numbers, 9)["seeds"].numpy()
    copies = dataclasses.replace(settings, num_return_sequences=3)
    three = token_choice.draws(copies, numbers, 9)["seeds"].numpy()
    np.testing.assert_array_equal(three[::3], one)
    assert len(set(three.tolist())) == 9


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"min_new_tokens": -1}, "min_new_tokens: -1 is negative; 0 stands for no rule"),
        ({"min_new_tokens": 65}, "min_new_tokens: 65 is above max_new_tokens: 64"),
        ({"no_repeat_ngram_size": 1.5}, "no_repeat_ngram_size: 1.5 is not a whole number"),
        ({"repetition_penalty": 0}, "repetition_penalty: 0 is not a finite number above 0; 1 st"),
        ({"repetition_penalty": "x"}, "repetition_penalty: 'x' is not a number"),
        ({"early_stopping": "always"}, "early_stopping: 'always' is not true, false or 'never'"),
        ({"num_return_sequences": 0}, "num_return_sequences: 0 is not from 1 to 1,000"),
        ({"num_beams": 1001}, "num_beams: 1001 is not from 1 to 1,000"),
        ({"max_new_tokens": 100_001}, "max_new_tokens: 100001 is not from 1 to 100,000"),
        (
            {"num_return_sequences": 3, "num_beams": 2},
            "3: beam search returns at most num_beams: 2",
        ),
        (
            {"num_return_sequences": 3, "temperature": 0.0},
            "num_return_sequences: 3: greedy search finds one text; remove it, or give num_",
        ),
        ({"num_beam": 2}, r"num_beam: not a setting of generation \(did you mean 'num_beams'"),
        ({"do_sample": True}, "do_sample: not a setting of generation: give temperature: above 0"),
        ({"max_length": 9}, "max_length: not a setting of generation: give max_new_tokens, the n"),
    ],
)
def test_settings_are_checked(given, message):
    with pytest.raises(UserError, match=message):
        generation_settings.Settings.of(given)
