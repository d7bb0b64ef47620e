"""The bidirectional LSTM against a loop over the tokens of each row."""

import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers.bilstm import BiLSTM
from official.modeling.layers.random import Draws
from tests.official.modeling.layers.test_lstm import SIZE, inputs, sigmoid

C = 3


def make(dtype="float64"):
    lstm = BiLSTM(SIZE, C, seed=Draws((0, 1)), dtype=dtype)
    lstm.build()
    return lstm


def one_direction(x, kernel, bias):
    """The outputs [T, C] of one row [T, I]."""
    c, h, outputs = np.zeros(C), np.zeros(C), []
    for t in range(len(x)):
        i, j, f, o = np.split(np.concatenate([x[t], h]) @ kernel + bias, 4)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs)


def test_each_row_is_read_in_both_directions():
    lstm, (x, real, lengths, *_) = make(), inputs()
    v = {variable.path: variable for variable in lstm.variables}
    assert set(v) == {
        f"bilstm/{direction}/{name}"
        for direction in ("forward", "backward")
        for name in ("kernel", "bias")
    }
    rng = np.random.default_rng(3)
    for variable in v.values():
        variable.assign(rng.normal(size=variable.shape))
    v = {path: variable.numpy() for path, variable in v.items()}
    expected = np.zeros((*x.shape[:2], 2 * C))
    for b, length in enumerate(lengths):
        row = x[b, :length]
        ahead, back = (
            one_direction(part, v[f"bilstm/{name}/kernel"], v[f"bilstm/{name}/bias"])
            for name, part in (("forward", row), ("backward", row[::-1]))
        )
        expected[b, :length] = np.concatenate([ahead, back[::-1]], axis=1)
    np.testing.assert_allclose(lstm(x, real), expected, rtol=1e-12, atol=1e-14)
    padded = np.where(real[..., None], x, 77.0)
    np.testing.assert_array_equal(lstm(padded, real), lstm(x, real))
    np.testing.assert_allclose(lstm(x[:1], None), expected[:1], rtol=1e-12)  # no padding


def test_gradients_are_the_differences_of_the_outputs():
    lstm, (x, real, *_) = make(), inputs()
    factors = np.random.default_rng(4).normal(size=(*x.shape[:2], 2 * C))

    def value():
        return tf.reduce_sum(lstm(x, real) * factors)

    variables = lstm.trainable_variables
    with tf.GradientTape() as tape:
        total = value()
    gradients = tape.gradient(total, [variable.value for variable in variables])
    for variable, gradient in zip(variables, gradients, strict=True):
        start, place = variable.numpy(), (1,) * len(variable.shape)
        ends = []
        for step in (1e-5, -1e-5):
            changed = start.copy()
            changed[place] += step
            variable.assign(changed)
            ends.append(float(value()))
        variable.assign(start)
        assert gradient.numpy()[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)


def test_initial_weights_differ_between_directions():
    lstm = make("mixed_bfloat16")
    forward, backward = (direction.kernel.numpy() for direction in lstm.directions)
    limit = (6 / sum(forward.shape)) ** 0.5
    assert 0.8 * limit < np.abs(forward).max() <= limit
    assert (forward != backward).all()
    assert lstm(tf.zeros((2, 3, SIZE)), None).dtype == tf.bfloat16
