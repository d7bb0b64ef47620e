"""The mix of layers against loops in numpy."""

import numpy as np
import pytest
from keras import ops

from official.modeling.layers.layer_mix import LayerMix
from official.utils.errors import UserError

SIZES = 3, 2, 4, 5  # K, B, T, D
LENGTHS = 4, 2
MASK = np.arange(SIZES[2]) < np.array(LENGTHS)[:, None]


def layers():
    """Returns the states of random layers, with large values at the padding: [K, B, T, D]."""
    states = np.random.default_rng(0).normal(1, 2, SIZES)
    states[:, ~MASK] += 100
    return states


def normalized(layer, norm):
    """Returns a layer [B, T, D], normalized by loops."""
    if norm == "none":
        return layer
    normal = np.empty_like(layer)
    if norm == "layer":
        values = [x for row, n in zip(layer, LENGTHS, strict=True) for x in row[:n].ravel()]
        return (layer - np.mean(values)) / np.sqrt(np.var(values) + 1e-12)
    for place in np.ndindex(layer.shape[:2]):
        vector = layer[place]
        normal[place] = (vector - vector.mean()) / np.sqrt(vector.var() + 1e-12)
    return normal


def make(norm, weights=None, gamma=None, dtype="float64"):
    mix = LayerMix(SIZES[0], norm=norm, dtype=dtype)
    mix.build()
    if weights is not None:
        mix.layer_weights.assign(weights)
        mix.gamma.assign(gamma)
    return mix


@pytest.mark.parametrize("norm", ["none", "layer", "token"])
def test_mix_is_the_weighted_sum_of_normalized_layers(norm):
    weights = np.array([0.5, -1.0, 2.0])
    shares = np.exp(weights) / np.exp(weights).sum()
    expected = 0.0
    for share, layer in zip(shares, layers(), strict=True):
        expected = expected + 1.5 * share * normalized(layer, norm)
    mixed = make(norm, weights, 1.5)([ops.convert_to_tensor(x) for x in layers()], MASK)
    np.testing.assert_allclose(mixed, expected, rtol=1e-10, atol=1e-10)


def test_mix_begins_as_the_mean_of_the_layers():
    mixed = make("none")([ops.convert_to_tensor(x) for x in layers()])
    np.testing.assert_allclose(mixed, layers().mean(axis=0), rtol=1e-12)


def test_layer_norm_without_a_mask_takes_all_positions():
    mixed = make("layer")([ops.convert_to_tensor(x) for x in layers()])
    normal = [(x - x.mean()) / np.sqrt(x.var() + 1e-12) for x in layers()]
    np.testing.assert_allclose(mixed, np.mean(normal, axis=0), rtol=1e-9, atol=1e-12)


def test_mix_in_bfloat16_adds_in_float32():
    states = [ops.cast(x, "bfloat16") for x in layers()]
    mixed = make("none", dtype="mixed_bfloat16")(states)
    exact = np.mean([np.array(ops.cast(x, "float32")) for x in states], axis=0)
    assert mixed.dtype == "bfloat16"
    rounded = ops.cast(ops.cast(exact, "bfloat16"), "float32")
    np.testing.assert_array_equal(ops.cast(mixed, "float32"), rounded)


def test_penalty_reads_the_weights_before_the_softmax():
    assert float(make("none", [1.0, -2.0, 3.0], 7.0).squared_weights()) == 14.0


def test_mix_refuses_another_number_of_layers():
    with pytest.raises(UserError, match="mix: expected 3 layers, got 2"):
        make("none")([ops.convert_to_tensor(x) for x in layers()[:2]])
