import keras
import numpy as np
import pytest
import tensorflow as tf

from official.modeling.objectives.cross_entropy import cross_entropy


def by_hand(logits, targets, of_loss, of_log_z):
    """Returns the losses, log Z and the gradient of the weighted sums, in float64."""
    logits = np.asarray(logits, np.float64)
    largest = logits.max(axis=1, keepdims=True)
    log_z = (largest + np.log(np.exp(logits - largest).sum(axis=1, keepdims=True)))[:, 0]
    rows = np.arange(len(targets))
    gradient = np.exp(logits - log_z[:, None]) * (of_loss + of_log_z)[:, None]
    gradient[rows, targets] -= of_loss
    return log_z - logits[rows, targets], log_z, gradient


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-6)])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_losses_and_gradients_are_those_of_the_definition(dtype, tolerance, compiled):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(7, 11)) * np.array([0, 1, 5, 30, 100, 1, 1])[:, None]
    logits[5] += 1e4  # Sums of exponentials overflow here.
    logits[6] -= 1e4
    logits = np.asarray(logits, dtype)
    targets = rng.integers(0, 11, 7)
    of_loss, of_log_z = rng.normal(size=7), rng.normal(size=7)

    @tf.function(jit_compile=compiled, autograph=False)
    def run(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            losses, log_z, hits = cross_entropy(logits, targets)
            total = tf.reduce_sum(losses * of_loss.astype(dtype) + log_z * of_log_z.astype(dtype))
        return losses, log_z, hits, tape.gradient(total, logits)

    losses, log_z, hits, gradient = run(tf.constant(logits))
    expected = by_hand(logits, targets, of_loss, of_log_z)
    scale = max(1.0, np.abs(logits).max())
    np.testing.assert_allclose(losses, expected[0], rtol=tolerance, atol=tolerance * scale)
    np.testing.assert_allclose(log_z, expected[1], rtol=tolerance, atol=tolerance)
    # Logits of 1e4 are multiples of 1e-3 in float32; their differences are exact.
    np.testing.assert_allclose(gradient, expected[2], rtol=0, atol=10 * tolerance)
    assert list(hits.numpy()) == list(targets == logits.argmax(axis=1))


def test_a_tie_is_a_hit_and_the_smallest_difference_is_none():
    below = np.nextafter(np.float32(3), np.float32(0))
    logits = np.array([[3, 3, 0], [below, 3, 0]], np.float32)
    _, _, hits = cross_entropy(keras.ops.convert_to_tensor(logits), np.array([0, 0]))
    assert list(hits.numpy()) == [True, False]


def test_a_probability_of_zero_has_a_finite_loss():
    logits = np.array([[-200.0, 200.0]], np.float32)  # exp(-400) is 0 in float32.
    losses, _, _ = cross_entropy(keras.ops.convert_to_tensor(logits), np.array([0]))
    assert losses.numpy()[0] == 400
