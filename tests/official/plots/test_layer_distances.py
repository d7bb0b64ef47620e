"""Distances between the input and the output of layers, against numpy and transformers."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.modeling.model import Model
from official.plots import layer_distances, text_means
from official.utils.errors import UserError
from tests import small
from tests.official.conversion import systems

TEXTS = [
    "ba be",
    "",
    "bi",
    "ba be bi bo bu da de",
    "da",
    "ba ba ba ba ba ba ba ba ba ba ba ba",
    " ",
]
BERT = {"num_layers": 2, "initializer_range": 0.3}
XLNET = {"type": "transformer_xl", "num_layers": 2, "initializer_range": 0.3}


def model_of(**encoder):
    """A model with random weights that tell layers apart."""
    raw = {"vocab_size": 125, "hidden_size": 16, "num_heads": 2, **encoder}
    if "type" in encoder:
        config = small.config(encoder=raw, objectives=[], corruption=None)
    else:
        raw = {f"encoder__{key}": value for key, value in raw.items()}
        config = small.config(objectives=[], corruption=None, **raw)
    return Model(config)


def by_loop(before, after):
    """The values of one token."""
    before, after = np.float64(before), np.float64(after)
    cosine = before @ after / np.linalg.norm(before) / np.linalg.norm(after)
    return np.linalg.norm(after - before), cosine, np.degrees(np.arccos(cosine))


@pytest.mark.parametrize("name", ["albert_masked_lm", "roberta_bare", "gpt2_bare"])
def test_of_the_states_of_transformers(name):
    """Stored states of shared and of unshared layers, with padding."""
    _, parts, states = systems.load(name)
    real = np.asarray(parts["batch"]["padding_mask"], bool)
    assert 0 < real.sum() < real.size
    encoded = {"hidden_states": tuple(map(tf.constant, states))}
    actual = layer_distances.sums({"padding_mask": tf.constant(real)}, encoded)
    for layer, values in enumerate(actual.numpy()):
        tokens = [
            by_loop(states[layer, b, t], states[layer + 1, b, t]) for b, t in np.argwhere(real)
        ]
        np.testing.assert_allclose(values, np.sum(tokens, axis=0), rtol=1e-5)


def test_means_over_the_tokens_of_texts(tmp_path):
    """As a loop has it for one text after the other; blank texts are left out."""
    tokenizer, model = tokenizers.load(small.tokenizer_folder(tmp_path)), model_of(**BERT)
    tokens = []
    for text in (text for text in TEXTS if text.strip()):
        batch = text_means.packed([text], tokenizer, model, 9)
        states = np.stack(model.encode(batch, output_all=True)["hidden_states"])[:, 0]
        assert states.shape[1] == min(len(text.split()) + 2, 9)
        tokens += [
            [by_loop(*pair) for pair in itertools.pairwise(x)] for x in states.swapaxes(0, 1)
        ]
    rows = layer_distances.measure(TEXTS, tokenizer, model, max_length=9, batch_size=2)
    assert [list(row) for row in rows] == [["layer", "l2", "cosine", "degrees"]] * 2
    actual = [list(row.values())[1:] for row in rows]
    np.testing.assert_allclose(actual, np.mean(tokens, axis=0), rtol=1e-5)
    with pytest.raises(UserError, match="there is no text"):
        layer_distances.measure(["", " "], tokenizer, model)


def test_angles_are_exact_and_padding_does_not_count():
    """Angles of nothing, 1e-4 and 90 degrees; padding is not a number; zeros are at 90 degrees."""
    small_angle = 1e-4
    before = tf.constant([[[2.0, 0], [2, 0]], [[0, 3], [np.nan, 1]]])
    turned = [2 * np.cos(small_angle), 2 * np.sin(small_angle)]
    after = tf.constant([[[2.0, 0], turned], [[4, 0], [np.nan, 1]]])
    real = tf.constant([[True, True], [True, False]])
    states = (before, after, tf.where(real[..., None], 0.0, after))
    actual = layer_distances.sums({"padding_mask": real}, {"hidden_states": states}).numpy()
    degrees = np.degrees(small_angle)
    np.testing.assert_allclose(actual[0], [5 + 2 * small_angle, 2, 90 + degrees], rtol=1e-6)
    np.testing.assert_allclose(actual[1], [2 + 2 + 4, 0, 3 * 90], atol=1e-5)


def test_a_line_for_each_model():
    rows = [{"layer": i, "l2": i + 1.0, "cosine": 0.5, "degrees": 60.0 + i} for i in range(3)]
    figure = layer_distances.draw({"shared": rows, "own": rows[:2]})
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["L2 distance", "angle in degrees"]
    lines = [[line.get_ydata().tolist() for line in axes.lines] for axes in figure.axes]
    assert lines == [[[1, 2, 3], [1, 2]], [[60, 61, 62], [60, 61]]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["shared", "own"]
