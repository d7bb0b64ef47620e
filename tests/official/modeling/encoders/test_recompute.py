"""Layers that are computed again for the gradient: the same losses, gradients and dropout."""

import types

import numpy as np
import pytest
import tensorflow as tf

from official.config.encoders import TransformerConfig
from official.config.objectives import GeneratorConfig, MaskedLMConfig, ReplacedTokensConfig
from official.modeling.encoders.base import Encoder
from official.modeling.layers.random import Draws
from official.modeling.model import Model
from official.utils import keras_private
from tests import small

SIZES = {
    "vocab_size": 13, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "intermediate_size": 24,
    "max_positions": 32, "initializer_range": 0.2, "dropout": 0.2, "attention_dropout": 0.2,
}  # fmt: skip
DEBERTA = {"positions": "none", "disentangled": {"buckets": 8, "max_distance": 16}, "pooler": False}
MODERN = {
    "positions": "rotary", "local_attention": {"window": 4, "global_every": 2}, "norm": "pre",
    "norm_embeddings": True, "first_norm": False, "gated": True, "use_bias": False,
    "pooler": False, "num_key_value_heads": 1,
}  # fmt: skip
DECODER = MaskedLMConfig(enhanced_mask_decoder=True)
GDES = GeneratorConfig(size=1.0, num_layers=1, sharing="gdes", enhanced_mask_decoder=True)
CASES = {
    "bert": ({}, [MaskedLMConfig()]),
    "shared layers and biases": ({"layer_groups": 1, "relative_buckets": 8}, [MaskedLMConfig()]),
    "modernbert": (MODERN, [MaskedLMConfig()]),
    "deberta": (DEBERTA, [DECODER]),
    "deberta_v3": (DEBERTA, [GDES, ReplacedTokensConfig(form="deberta")]),
}


def batch():
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 13, (2, 20)).astype("int32")
    real = np.arange(20) < np.array([[20], [13]])
    positions = np.array([[2, 7, 16], [1, 11, 0]], "int32")
    return {
        "token_ids": tf.constant(np.where(real, ids, 0)),
        "segment_ids": tf.zeros([2, 20], tf.int32),
        "padding_mask": tf.constant(real),
        "masked_positions": tf.constant(positions),
        "masked_ids": tf.constant(np.take_along_axis(ids, positions, axis=1)),
        "masked_weights": tf.constant([[1.0, 1, 1], [1, 1, 0]]),
        "row_seeds": tf.constant([[1, 2], [3, 4]]),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n if n == "deberta" else pytest.param(n, marks=pytest.mark.long) for n in CASES]
)
def test_gradients_and_dropout_are_the_same(name):
    changes, objectives = CASES[name]
    encoder = small.config(
        encoder={"type": "transformer", **SIZES, **changes}, objectives=[{"type": "masked_lm"}]
    ).encoder
    assert isinstance(encoder, TransformerConfig)
    config = types.SimpleNamespace(seed=0, encoder=encoder, objectives=objectives)
    model = Model(config, dtype="float64")
    encoders = [e for e in keras_private.sublayers(model) if isinstance(e, Encoder)]
    variables = model.trainable_variables

    def gradients(step):
        rng = Draws(tf.stack([step, 0]), 0, 2)
        prepared = model.prepare(batch(), rng)
        losses, _ = model.terms(prepared, rng)
        loss = tf.add_n(list(losses.values()))
        found = tf.gradients(loss, [variable.value for variable in variables])
        return loss, [None if each is None else tf.convert_to_tensor(each) for each in found]

    def result(step, recompute):
        for each in encoders:
            each.recompute = recompute
        return tf.function(gradients, autograph=False)(tf.constant(step))

    kept, again = result(5, False), result(5, True)
    assert float(kept[0]) == float(again[0])
    assert float(result(6, True)[0]) != float(kept[0])  # There is dropout.
    reached = 0
    for variable, one, two in zip(variables, kept[1], again[1], strict=True):
        # What is computed again has a gradient of 0 where there was none, as of a pooler.
        assert one is not None or two is None, variable.path
        if one is not None:
            np.testing.assert_allclose(two, one, rtol=1e-10, atol=1e-12, err_msg=variable.path)
            reached += bool(np.abs(one).max() > 0)
    assert reached > 20
