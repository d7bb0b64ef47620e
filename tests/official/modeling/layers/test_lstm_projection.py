"""The LSTM with projection against a loop over its steps, Keras' LSTM and automatic gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers import lstm_projection
from official.modeling.layers.gradient import left_out
from official.modeling.layers.lstm_projection import ProjectedLSTM
from official.utils.errors import UserError

RNG = np.random.default_rng(0)
BATCH, LENGTH, INPUT, CELL, OUTPUT = 3, 7, 5, 11, 6
CLIPS = {"cell_clip": 0.6, "projection_clip": 0.25}


def make(output=OUTPUT, **options):
    layer = ProjectedLSTM(INPUT, CELL, output, initializer="zeros", name="lstm", **options)
    layer.build()
    for variable in layer.variables:
        variable.assign(RNG.standard_normal(variable.shape) * 0.5)
    return layer


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def loop(layer, x, lengths=None, state=None, cell_clip=np.inf, projection_clip=np.inf):
    """Runs each row alone, in float64."""
    kernel, bias, *projection = (v.numpy().astype("float64") for v in layer.variables)
    outputs = np.zeros((*x.shape[:2], layer.output_size))
    cells, lasts = [], []
    for row, steps in enumerate(x):
        c, m = np.zeros(CELL), np.zeros(layer.output_size)
        if state is not None:
            c, m = state[0][row], state[1][row]
        for t in range(len(steps) if lengths is None else lengths[row]):
            i, j, f, o = np.split(np.concatenate([steps[t], m]) @ kernel + bias, 4)
            c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -cell_clip, cell_clip)
            m = sigmoid(o) * np.tanh(c)
            if projection:
                m = m @ projection[0]
            m = outputs[row, t] = np.clip(m, -projection_clip, projection_clip)
        cells.append(c)
        lasts.append(m)
    return outputs, np.stack(cells), np.stack(lasts)


def check(layer, x, *, lengths=None, state=None, **clips):
    real = None if lengths is None else np.arange(x.shape[1]) < np.array(lengths)[:, None]
    expected = loop(layer, x, lengths, state, **clips)

    def close(outputs, state):
        for ours, theirs in zip((outputs, *state), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)

    close(*layer(x.astype("float32"), real, state))
    with left_out():
        close(*layer(x.astype("float32"), real, state))


def test_steps():
    check(make(), RNG.standard_normal((BATCH, LENGTH, INPUT)))


def test_without_projection():
    check(make(None), RNG.standard_normal((BATCH, LENGTH, INPUT)))


def test_clips_lengths_and_state():
    layer, x = make(**CLIPS), RNG.standard_normal((BATCH, LENGTH, INPUT)) * 3
    state = RNG.standard_normal((BATCH, CELL)), RNG.standard_normal((BATCH, OUTPUT))
    check(layer, x, lengths=[4, 0, 7], state=state, **CLIPS)
    outputs = np.abs(layer(x)[0])
    assert 0.1 < (outputs == 0.25).mean() < 0.9  # Both cases occur.


def test_a_long_row():
    length = lstm_projection.UNROLLED + 1
    x = RNG.standard_normal((2, length, INPUT))
    check(make(**CLIPS), x, lengths=[length, 3], **CLIPS)


def test_a_row_in_two_parts():
    layer, x = make(**CLIPS), RNG.standard_normal((BATCH, LENGTH, INPUT)).astype("float32")
    whole, end = layer(x)
    first, state = layer(x[:, :3])
    second, state = layer(x[:, 3:], state=state)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, atol=1e-6)
    for ours, theirs in zip(state, end, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_equals_keras():
    layer, x = make(None), RNG.standard_normal((BATCH, LENGTH, INPUT)).astype("float32")
    theirs = keras.layers.LSTM(CELL, return_sequences=True)
    theirs.build(x.shape)
    kernel, bias = (v.numpy().copy() for v in layer.variables)
    bias[2 * CELL : 3 * CELL] += 1  # Keras' variable contains the bias of the forget gate.

    def reordered(values):
        i, j, f, o = np.split(values, 4, axis=-1)
        return np.concatenate([i, f, j, o], axis=-1)

    theirs.set_weights([reordered(kernel[:INPUT]), reordered(kernel[INPUT:]), reordered(bias)])
    np.testing.assert_allclose(layer(x)[0], theirs(x), atol=1e-5)


@pytest.mark.parametrize("output", [OUTPUT, None])
@pytest.mark.parametrize("lengths", [None, [4, 0, 7]])
def test_gradients(output, lengths):
    layer = make(output, **CLIPS, dtype="float64")
    x = tf.constant(RNG.standard_normal((BATCH, LENGTH, INPUT)))
    state = [tf.constant(RNG.standard_normal((BATCH, n))) for n in (CELL, output or CELL)]
    real = None if lengths is None else np.arange(LENGTH) < np.array(lengths)[:, None]
    weights = [RNG.standard_normal(s) for s in ((BATCH, LENGTH, output or CELL), (BATCH, CELL))]
    weights.append(RNG.standard_normal((BATCH, output or CELL)))

    def gradients():
        with tf.GradientTape() as tape:
            tape.watch([x, *state])
            outputs, last = layer(x, real, state)
            values = zip(weights, (outputs, *last), strict=True)
            loss = sum(tf.reduce_sum(weight * value) for weight, value in values)
        return tape.gradient(loss, [x, *state, *[v.value for v in layer.variables]])

    ours = gradients()
    with left_out():
        automatic = gradients()
    assert len(ours) == (6 if output else 5)
    for gradient, expected in zip(ours, automatic, strict=True):
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)


def test_unknown_sizes():
    layer, x = make(**CLIPS), RNG.standard_normal((BATCH, LENGTH, INPUT)).astype("float32")
    traced = tf.function(layer.call, input_signature=[tf.TensorSpec((None, None, INPUT))])
    np.testing.assert_allclose(traced(x)[0], layer(x)[0], atol=1e-6)


def test_a_state_of_another_batch():
    layer = make()
    x = np.zeros((BATCH, LENGTH, INPUT), "float32")
    with pytest.raises(UserError, match=r"state: expected \[3, 11\], got shape \(2, 11\)"):
        layer(x, state=(np.zeros((2, CELL)), np.zeros((2, OUTPUT))))
