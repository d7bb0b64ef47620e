"""What is drawn, against transformers' filters and by counting."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official.modeling.token_loop import likeliest
from official.saving import generation_settings
from official.serving.generation import token_choice
from official.utils.errors import UserError
from tests.official.conversion import systems


def by_token(logits, temperature, top_k, top_p):
    """`likeliest_first` in the order of the vocabulary."""
    chances, tokens = token_choice.likeliest_first(
        tf.constant(logits), tf.constant(temperature), tf.constant(top_k), tf.constant(top_p)
    )
    assert (np.diff(chances) <= 0).all()
    actual = np.zeros(logits.shape)
    np.put_along_axis(actual, tokens.numpy(), chances.numpy(), axis=-1)
    return actual


def test_what_is_left_is_what_transformers_leaves():
    golden = systems.load("gpt2_causal_lm")[1]["generation"]
    settings = zip(golden["temperature"], golden["top_k"], golden["top_p"], strict=True)
    for number, (temperature, top_k, top_p) in enumerate(settings):
        actual = by_token(golden["logits"], np.float32(temperature), int(top_k), np.float32(top_p))
        expected = golden["chances"][number]
        np.testing.assert_array_equal(actual > 0, expected > 0)
        actual /= actual.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(actual, expected, atol=1e-6)
    assert (golden["chances"] > 0).sum(axis=-1).min() < 7


LOGITS = np.log(np.array([[0.1, 0.5, 0.15, 0.25], [0.25, 0.25, 0.25, 0.25]], np.float32))


def draw(uniforms, temperature=1.0, top_k=0, top_p=1.0):
    """Tokens of both rows for each of some numbers, [2, how many]."""
    actual = [
        token_choice.drawn(
            tf.constant(LOGITS),
            tf.constant([u, u], tf.float32),
            tf.constant(temperature),
            tf.constant(top_k),
            tf.constant(top_p),
        )
        for u in uniforms
    ]
    return np.stack(actual, axis=1)


def test_draws_come_as_often_as_their_chances_say():
    evenly = (np.arange(40) + 0.5) / 40
    counts = [np.bincount(row, minlength=4).tolist() for row in draw(evenly)]
    assert counts == [[4, 20, 6, 10], [10, 10, 10, 10]]
    squared = np.array([0.1, 0.5, 0.15, 0.25]) ** 2
    actual = np.bincount(draw(evenly, temperature=0.5)[0], minlength=4)
    np.testing.assert_allclose(actual / 40, squared / squared.sum(), atol=0.03)
    assert np.bincount(draw(evenly, top_k=2)[0], minlength=4).tolist() in (
        [0, 27, 0, 13],
        [0, 26, 0, 14],
    )
    assert set(draw(evenly, top_p=0.8)[0]) == {1, 2, 3}  # 0.5 and 0.25 come to less


def test_the_ends_of_the_draw():
    assert draw([0.0]).tolist() == [[1], [0]]
    almost = np.nextafter(np.float32(1), np.float32(0))
    assert draw([almost]).tolist() == [[0], [3]]
    assert draw([almost], top_k=1).tolist() == [[1], [0]]
    assert draw([almost], top_p=1e-6).tolist() == [[1], [0]]


@pytest.mark.parametrize("scale", [1.0, 1e30])
@pytest.mark.parametrize(
    "small", [{"temperature": 1e-45}, {"temperature": 1e-30}, {"top_p": 1e-45}]
)
def test_the_likeliest_token_is_left_by_the_smallest_settings(small, scale):
    settings = {"temperature": 1.0, "top_p": 1.0, **small}
    for uniform in (0.0, 0.99):
        actual = token_choice.drawn(
            tf.constant(LOGITS[:1] * scale),
            tf.constant([uniform], tf.float32),
            tf.constant(settings["temperature"], tf.float32),
            tf.constant(0),
            tf.constant(settings["top_p"], tf.float32),
        )
        assert actual.numpy().tolist() == [1]


def test_temperature_0_is_the_likeliest_token():
    assert draw([0.99], temperature=0.0).tolist() == [[1], [0]]
    assert likeliest(tf.constant(LOGITS)).numpy().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens: 0 is not from 1 to 100,000"),
        ({"temperature": -0.5}, r"temperature: -0\.5 is not a finite number of at least 0; 0 take"),
        ({"temperature": float("nan")}, "temperature: nan is not a finite number of at least 0"),
        ({"temperature": float("inf")}, "temperature: inf is not a finite number of at least 0"),
        ({"temperature": "hot"}, "temperature: 'hot' is not a number"),
        ({"top_k": -1}, "top_k: -1 is negative; 0 stands for all tokens"),
        ({"top_k": 1.5}, "top_k: 1.5 is not a whole number"),
        ({"top_p": 0.0}, r"top_p: 0\.0 is not in \(0, 1\]; 1 stands for all tokens"),
        ({"top_p": 1.5}, r"top_p: 1\.5 is not in \(0, 1\]"),
        ({"top_p": float("nan")}, r"top_p: nan is not in \(0, 1\]"),
        (
            {"temperature": 0.0, "top_k": 5},
            r"top_k: 5, top_p: 1\.0: not supported with temperature 0, which takes the likel",
        ),
    ],
)
def test_settings_that_cannot_be(changes, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(generation_settings.Settings(), **changes)
