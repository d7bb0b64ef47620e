"""The LSTM with a projection, and the bidirectional one, against loops over the tokens.

The first also against Keras' LSTM and its automatic gradient.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers.lstm import BiLSTM, ProjectedLSTM
from official.modeling.layers.random import Draws

B, T, SIZE, C, P = 3, 5, 4, 6, 2


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_hand(x, lengths, kernel, bias, projection, c, m, cell_clip, projection_clip):
    """The outputs of each row, step by step, and the last state."""
    outputs = np.zeros((*x.shape[:2], projection.shape[1]))
    c, m = c.copy(), m.copy()
    for b in range(len(x)):
        for t in range(lengths[b]):
            z = np.concatenate([x[b, t], m[b]]) @ kernel + bias
            i, j, f, o = np.split(z, 4)
            c[b] = sigmoid(f + 1) * c[b] + sigmoid(i) * np.tanh(j)
            c[b] = np.clip(c[b], -cell_clip, cell_clip)
            m[b] = (sigmoid(o) * np.tanh(c[b])) @ projection
            m[b] = outputs[b, t] = np.clip(m[b], -projection_clip, projection_clip)
    return outputs, c, m


def layer(clip=0.0, cells=C, projection=P, dtype="float64", scale=1.0):
    made = ProjectedLSTM(
        SIZE, cells, projection, cell_clip=clip, projection_clip=clip / 2, initializer="zeros",
        name="lstm", dtype=dtype,
    )  # fmt: skip
    made.build()
    rng = np.random.default_rng(1)
    for variable in made.variables:
        variable.assign(scale * rng.normal(size=variable.shape))
    return made


def inputs():
    rng = np.random.default_rng(2)
    x, c, m = rng.normal(size=(B, T, SIZE)), rng.normal(size=(B, C)), rng.normal(size=(B, P))
    lengths = np.array([5, 1, 3])
    return x, np.arange(T) < lengths[:, None], lengths, c / 4, m / 4


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_outputs_and_states_are_those_of_a_loop(clip):
    lstm, (x, real, lengths, c, m) = layer(clip), inputs()
    outputs, state = lstm(x, real, (c, m))
    limits = (clip or np.inf, clip / 2 or np.inf)
    weights = [v.numpy() for v in (lstm.kernel, lstm.bias, lstm.projection)]
    wanted = by_hand(x, lengths, *weights, c, m, *limits)
    for value, other in zip((outputs, *state), wanted, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-12, atol=1e-14)
    assert not clip or (np.abs(wanted[1]) == clip).any() and (np.abs(wanted[2]) == clip / 2).any()
    fresh, _ = lstm(x, real)
    zeros = by_hand(x, lengths, *weights, 0 * c, 0 * m, *limits)
    np.testing.assert_allclose(fresh, zeros[0], rtol=1e-12, atol=1e-14)


def plain(lstm, x, real, c, m):
    """The outputs by operations with automatic gradients."""
    outputs = []
    for t in range(T):
        keep = tf.cast(real[:, t, None], tf.float64)
        z = tf.concat([x[:, t], m], -1) @ lstm.kernel.value + lstm.bias.value
        i, j, f, o = tf.split(z, 4, axis=-1)
        new = tf.sigmoid(f + 1) * c + tf.sigmoid(i) * tf.tanh(j)
        limit = lstm.clips["cell_clip"] or np.inf
        new = tf.clip_by_value(new, -limit, limit)
        limit = lstm.clips["projection_clip"] or np.inf
        output = (tf.sigmoid(o) * tf.tanh(new)) @ lstm.projection.value
        output = tf.clip_by_value(output, -limit, limit)
        c, m = keep * new + (1 - keep) * c, keep * output + (1 - keep) * m
        outputs.append(keep * output)
    return tf.stack(outputs, axis=1)


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "xla"])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_gradients_are_the_automatic_ones(clip, compiled):
    lstm, (x, real, _, c, m) = layer(clip), inputs()
    upstream = np.random.default_rng(3).normal(size=(B, T, P))
    variables = [v.value for v in lstm.trainable_variables]

    def gradients(run):
        @tf.function(jit_compile=compiled, autograph=False)
        def graph(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                outputs = run(x)
            return tape.gradient(outputs, [x, *variables], upstream)

        return graph(tf.constant(x))

    found = gradients(lambda x: lstm(x, real, (c, m))[0])
    wanted = gradients(lambda x: plain(lstm, x, real, tf.constant(c), tf.constant(m)))
    for value, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-9, atol=1e-12)
        assert np.abs(other).max() > 0.01


def test_without_a_projection_it_is_the_lstm_of_keras():
    """Keras has the order i, f, c, o, and its forget bias is a part of the bias."""
    lstm = layer(cells=4, projection=4, dtype="float64")
    lstm.projection.assign(np.eye(4))
    reference = keras.layers.LSTM(4, return_sequences=True, dtype="float64")
    x, real, *_ = inputs()
    reference.build(x.shape)
    i, j, f, o = np.split(lstm.kernel.numpy(), 4, axis=1)
    kernel = np.concatenate([i, f, j, o], axis=1)
    i, j, f, o = np.split(lstm.bias.numpy(), 4)
    reference.set_weights([kernel[:SIZE], kernel[SIZE:], np.concatenate([i, f + 1, j, o])])
    outputs, _ = lstm(x, None)
    np.testing.assert_allclose(outputs, reference(x), rtol=1e-6, atol=1e-7)
    outputs, _ = lstm(x, real)
    masked = reference(x, mask=tf.constant(real)).numpy() * real[:, :, None]
    np.testing.assert_allclose(outputs, masked, rtol=1e-6, atol=1e-7)


def test_a_carried_state_continues_a_row():
    lstm, (x, *_) = layer(), inputs()
    whole, (c, m) = lstm(x, None)
    first, state = lstm(x[:, :2], None)
    second, (last_c, last_m) = lstm(x[:, 2:], None, state)
    np.testing.assert_allclose(tf.concat([first, second], axis=1), whole, rtol=1e-12)
    np.testing.assert_allclose(last_c, c, rtol=1e-12)
    np.testing.assert_allclose(last_m, m, rtol=1e-12)


CELLS = 3


def make_bilstm(dtype="float64"):
    lstm = BiLSTM(SIZE, CELLS, seed=Draws((0, 1)), dtype=dtype)
    lstm.build()
    return lstm


def one_direction(x, kernel, bias):
    """The outputs [T, C] of one row [T, I] without padding."""
    cells = len(bias) // 4
    c, h, outputs = np.zeros(cells), np.zeros(cells), []
    for t in range(len(x)):
        i, j, f, o = np.split(np.concatenate([x[t], h]) @ kernel + bias, 4)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs)


def test_each_row_is_read_in_both_directions():
    lstm, (x, real, lengths, *_) = make_bilstm(), inputs()
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
    expected = np.zeros((*x.shape[:2], 2 * CELLS))
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
    ends = [np.concatenate([row[n - 1, :CELLS], row[0, CELLS:]])
            for row, n in zip(expected, lengths, strict=True)]  # fmt: skip
    np.testing.assert_allclose(lstm.last(lstm(x, real), real), ends, rtol=1e-12)
    np.testing.assert_allclose(lstm.last(lstm(x[:1])), ends[:1], rtol=1e-12)
    left = [np.roll(array, T - 3, axis=1) for array in (x[2:], real[2:], expected[2:])]
    found = lstm(*left[:2])
    np.testing.assert_allclose(found, left[2], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(lstm.last(found, left[1]), ends[2:], rtol=1e-12)
    assert not lstm.last(lstm(x, real & False), real & False).numpy().any()


def test_gradients_are_the_differences_of_the_outputs():
    lstm, (x, real, *_) = make_bilstm(), inputs()
    factors = np.random.default_rng(4).normal(size=(*x.shape[:2], 2 * CELLS))

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
    lstm = make_bilstm("mixed_bfloat16")
    forward, backward = (direction.kernel.numpy() for direction in lstm.directions)
    limit = (6 / sum(forward.shape)) ** 0.5
    assert 0.8 * limit < np.abs(forward).max() <= limit
    assert (forward != backward).all()
    assert lstm(tf.zeros((2, 3, SIZE)), None).dtype == tf.bfloat16
