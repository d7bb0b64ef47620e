"""Tests of the transformer encoder."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from official.config.encoders import (
    Convolution,
    Disentangled,
    LocalAttention,
    TransformerConfig,
)
from official.modeling import masks
from official.modeling.encoders import transformer
from official.modeling.encoders.transformer import block_names
from official.modeling.layers.random import Draws
from official.modeling.layers.rotary_positions import Rotation
from official.utils import keras_private
from official.utils.errors import UserError
from tests.official.modeling.encoders.numpy_transformer import encode

SMALL = TransformerConfig(
    vocab_size=23,
    hidden_size=12,
    num_layers=2,
    num_heads=3,
    intermediate_size=20,
    max_positions=9,
    norm_epsilon=1e-6,
)
# Buckets and distances so small that 7 tokens reach beyond both.
DEBERTA = Disentangled(buckets=4, max_distance=6)
DEBERTA_V1 = Disentangled(buckets=0, max_distance=4, own_projections=True, norm=False)
RELATIVE = {"positions": "relative_key"}
DISTANCES = [
    {"disentangled": DEBERTA},
    {"disentangled": DEBERTA_V1},
    {"positions": "relative_key_query"},
]
MODERN = {
    "num_layers": 4,
    "positions": "rotary",
    "rotary_theta": 160000.0,
    "local_attention": {"window": 4, "global_every": 3, "theta": 20.0},
    "norm": "pre",
    "norm_embeddings": True,
    "first_norm": False,
    "norm_bias": False,
    "use_bias": False,
    "gated": True,
    "activation": "gelu",
    "segment_types": 0,
}
# A batch of two with different padding: on the right, and on the left.
PADDING = np.array([[1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1]], bool)
TOKENS = np.random.default_rng(0).integers(0, 23, PADDING.shape).astype("int32")
SEGMENTS = np.random.default_rng(1).integers(0, 2, PADDING.shape).astype("int32")


def make(dtype=None, **changes):
    """An encoder with random values everywhere, norms and biases too."""
    if changes.get("causal"):
        changes = {"pooled_position": "last", **changes}
    if changes.get("local_attention") is not None:
        changes = {**changes, "local_attention": LocalAttention(**changes["local_attention"])}
    encoder = transformer.Encoder(dataclasses.replace(SMALL, **changes), dtype=dtype)
    encoder.build()
    rng = np.random.default_rng(2)
    for variable in encoder.weights:
        noise = 0.3 * rng.standard_normal(variable.shape)
        variable.assign(1 + noise if variable.path.endswith("scale") else noise)
    return encoder


def arrays(encoder):
    return {v.path.removeprefix("encoder/"): v.numpy() for v in encoder.weights}


def run(encoder, **options):
    options.setdefault("attention_mask", masks.padding(PADDING))
    return encoder(tf.constant(TOKENS), tf.constant(SEGMENTS), **options)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation": "gelu", "norm": "pre", "causal": True, "segment_types": 0},
        {"activation": "relu", "embedding_size": 5, "position_offset": 2},
        {"layer_groups": 1, "num_layers": 3},
        {"layer_groups": 2, "num_layers": 4, "inner_layers": 2, "embedding_size": 7},
        {"embedding_size": 12, "causal": True},
        {"norm": "pre", "embedding_size": 7},
        {"positions": "sinusoidal", "embedding_size": 6, "scale_embeddings": True},
        {"positions": "sinusoidal", "position_offset": 2, "norm": "pre", "causal": True},
        {"positions": "none"},
        {"disentangled": DEBERTA, "activation": "gelu", "positions": "none"},
        {"disentangled": DEBERTA, "convolution": Convolution(3, "gelu"), "activation": "gelu"},
        {"disentangled": DEBERTA_V1, "convolution": Convolution(5, "tanh")},
        {"disentangled": DEBERTA_V1, "layer_groups": 1, "norm": "pre", "segment_types": 0},
        {"positions": "rotary", "rotary_theta": 100.0},
        {"positions": "rotary", "norm": "pre", "causal": True},
        {"positions": "relative_key"},
        {"positions": "relative_key_query", "norm": "pre", "layer_groups": 1},
        {"norm": "pre", "gated": True, "activation": "silu", "norm_type": "rms"},
        {"num_heads": 6, "num_key_value_heads": 2, "positions": "rotary"},
        {"num_heads": 6, "num_key_value_heads": 3, "positions": "relative_key_query"},
        {"num_key_value_heads": 1, "use_bias": False, "norm": "pre", "causal": True},
        {"num_key_value_heads": 1, "num_layers": 3, "local_attention": {"window": 2}},
        {"num_key_value_heads": 3},
        {"use_bias": False, "norm_bias": False, "norm_embeddings": False},
        {**MODERN},
        {**MODERN, "num_layers": 3, "local_attention": {"window": 3, "global_every": 2}},
        {"local_attention": {"window": 2, "global_every": 5}, "layer_groups": 1, "num_layers": 3},
    ],
    ids=str,
)
def test_equals_a_forward_pass_by_hand(changes):
    encoder = make("float64", **changes)
    outputs = run(encoder, output_all=True)
    for b in range(2):
        allowed = np.broadcast_to(PADDING[b], (7, 7)).copy()
        if changes.get("causal"):
            allowed &= np.tril(np.ones((7, 7), bool))
        # Rows that may attend to nothing, for nobody's eyes, attend to themselves by hand.
        seen = allowed.any(-1)
        allowed[~seen] = np.eye(7, dtype=bool)[~seen]
        if changes.get("local_attention"):
            seen = PADDING[b]
        states = encode(encoder.config, arrays(encoder), TOKENS[b], SEGMENTS[b], allowed)
        assert len(states) == len(outputs["hidden_states"])
        for ours, theirs in zip(outputs["hidden_states"], states, strict=True):
            np.testing.assert_allclose(ours[b][seen], theirs[seen], rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(outputs["sequence_output"], outputs["hidden_states"][-1])
    kernel, bias = (arrays(encoder)[f"pooler/{name}"] for name in ("kernel", "bias"))
    # The first position, or the last real one where no other is seen from the first.
    places = [4, 6] if changes.get("causal") else [0, 0]
    pooled = np.tanh(outputs["sequence_output"].numpy()[[0, 1], places] @ kernel + bias)
    np.testing.assert_allclose(outputs["pooled_output"], pooled, rtol=1e-9)


def long_rows(length=300, batch=2):
    """Tokens of long rows, their padding (on the right, and on the left) and their parts."""
    rng = np.random.default_rng(5)
    real = np.ones((batch, length), bool)
    real[0, length - 40 :] = False
    real[1, :25] = False
    parts = np.searchsorted([70, 100, 230], np.arange(length), side="right").astype("int32")
    return rng.integers(0, 23, (batch, length)).astype("int32"), real, np.stack([parts, parts // 2])


LONG = {**MODERN, "max_positions": 400, "pooler": False}


@pytest.mark.parametrize("window", [128, 10])
@pytest.mark.parametrize("length", [300, 384, 256])  # 256: one block holds the row
def test_blocks_compute_what_a_whole_mask_does(window, length):
    local = {"window": window, "global_every": 3, "theta": 20.0}
    encoder = make("float64", **{**LONG, "local_attention": local})
    tokens, real, parts = long_rows(length)
    for given in ({}, {"padding_mask": real}, {"padding_mask": real, "part_ids": parts}):
        blocks = encoder(tokens, **given)
        whole = encoder(tokens, output_all=True, **given)
        weights = whole["attentions"][1].numpy()
        assert weights.shape == (2, 3, length, length)
        shown = given.get("padding_mask", np.ones_like(real))
        np.testing.assert_allclose(
            blocks["sequence_output"][shown], whole["sequence_output"][shown], rtol=0, atol=1e-12
        )
        # By hand: a window, real keys, and the same part.
        places = np.arange(length)
        near = abs(places[:, None] - places) <= window // 2
        allowed = near & shown[:, None, :]
        if "part_ids" in given:
            allowed &= parts[:, :, None] == parts[:, None, :]
        np.testing.assert_array_equal(weights[:, 0][shown] > 0, allowed[shown])


def test_a_window_of_128_has_129_keys():
    for window, length, keys in ((128, 300, 129), (8, 30, 9), (9, 30, 9), (3, 30, 3)):
        local = {"window": window, "global_every": 3}
        encoder = make(**{**LONG, "local_attention": local})
        weights = encoder(long_rows(length)[0], output_all=True)["attentions"]
        counts = [int((layer[0, 0, length // 3] > 0).numpy().sum()) for layer in weights]
        assert counts == [length, keys, keys, length]


def test_dynamic_lengths_of_local_layers():
    encoder = make("float64", **{**LONG, "local_attention": {"window": 6, "global_every": 3}})

    @tf.function(input_signature=[tf.TensorSpec([None, None], t) for t in (tf.int32, tf.bool)])
    def any_length(tokens, real):
        return encoder(tokens, padding_mask=real)["sequence_output"]

    for length in (1, 2, 128, 134, 135, 256):  # up to 134 tokens in one block
        tokens, real, _ = long_rows(300)
        tokens, real = tokens[:, 30 : 30 + length], real[:, :length]
        real[:, 0] = True
        expected = encoder(tokens, padding_mask=real, output_all=True)["sequence_output"]
        np.testing.assert_allclose(any_length(tokens, real)[real], expected[real], atol=1e-12)


@pytest.mark.parametrize(
    "form",
    [
        {"local_attention": {"window": 6}},
        {"local_attention": {"window": 500}},
        {"positions": "none", "disentangled": DEBERTA, "local_attention": None},
    ],
)
@pytest.mark.parametrize("length", [1, 2, 150])
def test_rows_of_padding_alone_of_one_token_and_of_any_length(form, length):
    encoder = make("float64", **{**LONG, "num_layers": 2, **form})
    tokens = np.random.default_rng(8).integers(0, 23, (4, length)).astype("int32")
    counts = [length, 0, 1, -(-length // 2)]  # real tokens of each row; the last one has them last
    real = np.arange(length) < np.array(counts)[:, None]
    real[3] = real[3, ::-1]

    @tf.function(input_signature=[tf.TensorSpec([None, None], t) for t in (tf.int32, tf.bool)])
    def any_length(tokens, real):
        return encoder(tokens, padding_mask=real)["sequence_output"]

    with tf.GradientTape() as tape:
        states = encoder(tokens, padding_mask=real)["sequence_output"]
        loss = tf.reduce_sum(states[real] ** 2)
    gradients = tape.gradient(loss, encoder.trainable_variables)
    assert np.isfinite(states).all() and np.isfinite(any_length(tokens, real)).all()
    assert all(np.isfinite(tf.convert_to_tensor(g)).all() for g in gradients if g is not None)
    for row in (0, 2, 3):
        alone = encoder(tokens[row : row + 1, real[row]])["sequence_output"][0]
        np.testing.assert_allclose(states[row][real[row]], alone, atol=1e-10)
        np.testing.assert_allclose(any_length(tokens, real)[row][real[row]], alone, atol=1e-10)


@pytest.mark.slow
def test_blocks_of_2048_tokens_compute_what_a_whole_mask_does():
    encoder = make(**{**LONG, "num_layers": 2, "max_positions": 2048, "local_attention": {}})
    rng = np.random.default_rng(4)
    tokens = rng.integers(0, 23, (1, 2048)).astype("int32")
    real = np.arange(2048)[None] < 1900
    parts = np.searchsorted([1, 700, 701, 1500], np.arange(2048), side="right")[None]
    given = {"padding_mask": real, "part_ids": parts.astype("int32")}
    blocks = encoder(tokens, **given)["sequence_output"]
    whole = encoder(tokens, output_all=True, **given)["sequence_output"]
    np.testing.assert_allclose(blocks[real], whole[real], rtol=0, atol=1e-4)


@pytest.mark.parametrize("global_every", [3, 2])
def test_read_positions_of_a_last_layer_that_is_global_or_local(global_every):
    local = {"window": 6, "global_every": global_every, "theta": 30.0}
    encoder = make("float64", **{**LONG, "local_attention": local})
    assert encoder.config.is_local(3) == (global_every == 2)
    tokens, real, parts = long_rows()
    places = np.array([[0, 71, 200, 71], [299, 40, 30, 26]], "int32")
    given = {"padding_mask": real, "part_ids": parts}
    for length in (300, 9):  # in several blocks, and in one
        given = {key: value[:, -length:] for key, value in given.items()}
        own = places % length
        whole = encoder(tokens[:, -length:], **given)["sequence_output"].numpy()
        some = encoder(tokens[:, -length:], read_positions=own, **given)["sequence_output"]
        np.testing.assert_allclose(some, whole[[[0], [1]], own], atol=1e-12)


def test_gradients_of_blocks_are_those_of_a_whole_mask():
    encoder = make("float64", **LONG)
    tokens, real, parts = long_rows(150)
    weights = np.random.default_rng(3).standard_normal((2, 150, 12)) * real[:, :, None]

    def gradients(output_all):
        with tf.GradientTape() as tape:
            outputs = encoder(tokens, padding_mask=real, part_ids=parts, output_all=output_all)
            loss = tf.reduce_sum(outputs["sequence_output"] * weights)
        return tape.gradient(loss, encoder.trainable_variables)

    expected = gradients(output_all=True)
    compiled = tf.function(gradients, jit_compile=True)
    for found in (gradients(output_all=False), compiled(output_all=False)):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


def test_parts_of_a_row_are_rows_of_their_own():
    encoder = make("float64", **{**LONG, "local_attention": {"window": 10, "global_every": 3}})
    tokens, _, parts = long_rows()
    whole = encoder(tokens, part_ids=parts)["sequence_output"].numpy()
    for start, end in ((0, 70), (70, 100), (100, 230), (230, 300)):
        alone = encoder(tokens[:1, start:end])["sequence_output"]
        np.testing.assert_allclose(whole[:1, start:end], alone, atol=1e-9)


def test_theta_is_that_of_the_kind_of_layer():
    encoder = make("float64", **MODERN)
    local = {**MODERN["local_attention"], "theta": 160000.0}
    swapped = make("float64", **{**MODERN, "rotary_theta": 20.0, "local_attention": local})
    assert not np.allclose(*(run(e)["sequence_output"] for e in (encoder, swapped)), atol=1e-3)


def test_turned_pairs_of_neighbors_are_the_same_scores_in_another_order():
    """NeoBERT turns number 2 i of a head with 2 i + 1: its rows of W_q and W_k change places."""
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, 1, 1, 6, 8))

    def of_pairs(x):
        out = np.empty_like(x)
        for t in range(6):
            for i in range(4):
                point = complex(*x[0, 0, t, 2 * i : 2 * i + 2])
                point *= np.exp(1j * t / 10000 ** (2 * i / 8))
                out[0, 0, t, 2 * i : 2 * i + 2] = point.real, point.imag
        return out

    expected = of_pairs(query)[0, 0] @ of_pairs(key)[0, 0].T
    turn = Rotation.of(np.arange(6, dtype="int32")[None], 8, 10000.0, "float64").turn
    halves = [*range(0, 8, 2), *range(1, 8, 2)]
    scores = [turn(tf.constant(x[..., halves])).numpy()[0, 0] for x in (query, key)]
    np.testing.assert_allclose(scores[0] @ scores[1].T, expected, rtol=1e-10)
    as_they_are = [turn(tf.constant(x)).numpy()[0, 0] for x in (query, key)]
    assert np.abs(as_they_are[0] @ as_they_are[1].T - expected).max() > 0.1


def test_angles_are_those_of_float32_in_bfloat16():
    positions = np.array([[0, 1, 7, 8000]], "int32")
    given = Rotation.of(positions, 64, 10000.0, "bfloat16")
    for wave, function in zip(given, (np.cos, np.sin), strict=True):
        assert wave.shape == (1, 1, 4, 32)
        for t, position in enumerate(positions[0]):
            for i in range(32):
                exact = function(position / 10000 ** (2 * i / 64))
                # bfloat16 has 8 bits, and a position of bfloat16 would be 8000 + 32 at most.
                np.testing.assert_allclose(float(wave[0, 0, t, i]), exact, rtol=2**-8, atol=1e-3)


def test_global_layers_of_the_released_sizes():
    for layers, expected in ((22, range(0, 22, 3)), (28, range(0, 28, 3)), (4, (0, 3))):
        config = dataclasses.replace(SMALL, num_layers=layers, local_attention=LocalAttention())
        found = [i for i in range(layers) if not config.is_local(i)]
        assert found == list(expected)
    assert not any(SMALL.is_local(i) for i in range(2))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"local_attention": LocalAttention(), "causal": True}, "local_attention: not supported"),
        ({"local_attention": LocalAttention(), "relative_buckets": 8}, "with relative_buckets"),
        ({"local_attention": LocalAttention(), **RELATIVE}, "with positions: relative_key"),
        ({"causal": True, **RELATIVE}, "positions: relative_key: not supported for causal"),
        ({"disentangled": DEBERTA, **RELATIVE}, "relative_key is not supported with disentangled"),
        ({"positions": "rotary", "num_heads": 4}, "heads of the odd size 3 cannot have"),
        ({"norm_type": "rms", "norm_bias": False}, "an RMS norm has no offset"),
        ({"first_norm": False}, "first_norm: false is for norm: pre"),
        ({"first_norm": False, "norm": "pre", "layer_groups": 1}, "without layer_groups"),
        ({"rotary_theta": 0.0}, "rotary_theta: 0.0 is not above 0"),
        ({"attention_output_dropout": 1.0}, "attention_output_dropout: 1.0 is not in"),
        ({"norm_type": "batch"}, "norm_type: 'batch' is not one of"),
        ({"num_key_value_heads": 2}, "num_key_value_heads: 2 heads do not divide the 3 of num_h"),
        ({"num_key_value_heads": 0}, "num_key_value_heads: 0 is less than 1"),
        ({"num_key_value_heads": 1, "disentangled": DEBERTA}, "not supported with disentangled"),
    ],
    ids=str,
)
def test_settings_that_do_not_go_together(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, pooled_position=None, **changes)


def test_windows_that_there_cannot_be():
    with pytest.raises(ValueError, match="window: 1 is less than 2"):
        LocalAttention(window=1)
    with pytest.raises(ValueError, match="theta: 0 is not above 0"):
        LocalAttention(theta=0)


def test_dropout_of_attention_outputs_alone():
    quiet = {"dropout": 0.0, "attention_dropout": 0.0}
    encoder = make(attention_output_dropout=0.3, **quiet)
    dropped = run(encoder, rng=Draws((1, 2)))["sequence_output"]
    assert not np.allclose(dropped, run(encoder)["sequence_output"])
    # With no attention output there is nothing to drop.
    for block in encoder.blocks:
        for variable in block.attention.output_projection.weights:
            variable.assign(tf.zeros_like(variable))
    dropped = run(encoder, rng=Draws((1, 2)))["sequence_output"]
    np.testing.assert_allclose(dropped, run(encoder)["sequence_output"], atol=2e-6)


def test_attention_weights():
    outputs = run(make(), output_all=True)
    assert len(outputs["attentions"]) == 2
    for weights in outputs["attentions"]:
        assert weights.shape == (2, 3, 7, 7)
        np.testing.assert_allclose(tf.reduce_sum(weights, -1), np.ones((2, 3, 7)), rtol=1e-5)
        hidden = np.broadcast_to(~PADDING[:, None, None, :], weights.shape)
        assert (weights.numpy()[hidden] == 0).all()


@pytest.mark.parametrize("causal", [True, False])
def test_the_last_real_position_may_be_pooled(causal):
    encoder = make("float64", causal=causal, pooled_position="last")
    kernel, bias = (arrays(encoder)[f"pooler/{name}"] for name in ("kernel", "bias"))
    outputs = run(encoder)
    states = outputs["sequence_output"].numpy()
    expected = np.tanh(states[[0, 1], [4, 6]] @ kernel + bias)
    np.testing.assert_allclose(outputs["pooled_output"], expected, rtol=1e-12)
    plain = run(encoder, attention_mask=None)
    expected = np.tanh(plain["sequence_output"][:, -1] @ kernel + bias)
    np.testing.assert_allclose(plain["pooled_output"], expected, rtol=1e-12)
    places = np.array([[2, 0], [5, 6]], "int32")
    some = run(encoder, pooled_positions=places)["pooled_output"]
    expected = np.stack([states[b][places[b]] for b in range(2)])
    np.testing.assert_allclose(some, np.tanh(expected @ kernel + bias), rtol=1e-12)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "relu"])
def test_a_pooler_may_have_another_activation(name):
    encoder = make("float64", pooler_activation=name)
    kernel, bias = (arrays(encoder)[f"pooler/{name}"] for name in ("kernel", "bias"))
    outputs = run(encoder)
    z = outputs["sequence_output"].numpy()[:, 0] @ kernel + bias
    expected = {
        "gelu": [[v * (1 + math.erf(v / 2**0.5)) / 2 for v in row] for row in z],
        "gelu_tanh": z / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z**3))),
        "relu": np.maximum(z, 0),
    }[name]
    np.testing.assert_allclose(outputs["pooled_output"], expected, rtol=1e-9)


def test_an_activation_of_poolers_that_there_is_none_of():
    with pytest.raises(ValueError, match="pooler_activation: 'mish' is not one of gelu, gelu_tanh"):
        TransformerConfig(pooler_activation="mish")


def test_which_position_is_pooled_where_nothing_says_so():
    assert (SMALL.pooled_position, SMALL.layout) == ("first", "cls_first")
    causal = TransformerConfig(causal=True)
    assert (causal.pooled_position, causal.layout) == ("last", "cls_first")
    with pytest.raises(
        ValueError, match="pooled_position: with causal: true the first position attends"
    ):
        TransformerConfig(causal=True, pooled_position="first")
    with pytest.raises(ValueError, match="pooled_position: 'mean' is not one of first, last"):
        TransformerConfig(pooled_position="mean")


def test_a_cache_that_is_gone_on_with_pools_the_newest_position():
    encoder = make("float64", causal=True)
    first = encoder(TOKENS[:, :4], cache=encoder.empty_cache(2, 7))
    second = encoder(TOKENS[:, 4:], positions=np.arange(4, 7)[None], cache=first["cache"], slot=4)
    whole = encoder(TOKENS)["pooled_output"]
    np.testing.assert_allclose(second["pooled_output"], whole, rtol=1e-9)


def test_only_what_is_asked_for_is_returned():
    assert run(make()).keys() == {"sequence_output", "pooled_output"}
    assert run(make(pooler=False)).keys() == {"sequence_output"}


def test_nothing_comes_from_padding():
    encoder = make()
    changed = np.where(PADDING, TOKENS, (TOKENS + 1) % 23)
    before = run(encoder)["sequence_output"].numpy()
    after = encoder(changed, SEGMENTS, masks.padding(PADDING))["sequence_output"].numpy()
    np.testing.assert_array_equal(before[PADDING], after[PADDING])
    assert not np.allclose(before[~PADDING], after[~PADDING])


def test_nothing_comes_from_the_future_when_causal():
    encoder = make(causal=True)
    changed = TOKENS.copy()
    changed[:, 4:] = (changed[:, 4:] + 1) % 23
    before, after = (
        encoder(tokens, SEGMENTS)["sequence_output"].numpy() for tokens in (TOKENS, changed)
    )
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert not np.allclose(before[:, 4:], after[:, 4:])


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_a_row_that_may_attend_to_nothing_gives_numbers_and_gradients(dtype):
    encoder = make(dtype)
    nothing = masks.padding(np.zeros((2, 7), bool))
    with tf.GradientTape() as tape:
        outputs = run(encoder, attention_mask=nothing, output_all=True)
        loss = tf.reduce_sum(tf.square(tf.cast(outputs["sequence_output"], tf.float32)))
    for weights in outputs["attentions"]:
        np.testing.assert_allclose(tf.cast(weights, tf.float32), 1 / 7, rtol=1e-6)
    for gradient in tape.gradient(loss, encoder.embeddings.trainable_variables):
        assert np.isfinite(gradient).all()


def test_positions_and_segments_may_be_left_out():
    encoder = make()
    zeros = np.zeros_like(TOKENS)
    rows = np.broadcast_to(np.arange(7, dtype="int32"), TOKENS.shape)
    plain = encoder(TOKENS)["sequence_output"]
    np.testing.assert_allclose(encoder(TOKENS, zeros)["sequence_output"], plain, atol=1e-6)
    for positions in (rows, rows[:1]):
        given = encoder(TOKENS, zeros, positions=positions)["sequence_output"]
        np.testing.assert_allclose(given, plain, atol=1e-6)
    shifted = encoder(TOKENS, zeros, positions=rows + 1)["sequence_output"]
    assert not np.allclose(shifted, plain, atol=1e-3)


def test_the_order_of_tokens_only_matters_through_positions():
    encoder = make()
    order = np.random.default_rng(3).permutation(7)
    plain = encoder(TOKENS, SEGMENTS)["sequence_output"].numpy()
    moved = encoder(TOKENS[:, order], SEGMENTS[:, order], positions=order[None].astype("int32"))[
        "sequence_output"
    ]
    np.testing.assert_allclose(moved, plain[:, order], atol=1e-5)


def test_paths_of_all_variables():
    expected = [
        "encoder/embeddings/token_embedding/table",
        "encoder/embeddings/position_embedding/table",
        "encoder/embeddings/segment_embedding/table",
        "encoder/embeddings/norm/scale",
        "encoder/embeddings/norm/offset",
        "encoder/pooler/kernel",
        "encoder/pooler/bias",
    ]
    for i in range(2):
        for layer in ["attention/query_key_value", "attention/output"]:
            expected += [f"encoder/layer_{i}/{layer}/{name}" for name in ("kernel", "bias")]
        for layer in ["feed_forward/inner", "feed_forward/outer"]:
            expected += [f"encoder/layer_{i}/{layer}/{name}" for name in ("kernel", "bias")]
        for layer in ["attention_norm", "feed_forward_norm"]:
            expected += [f"encoder/layer_{i}/{layer}/{name}" for name in ("scale", "offset")]
    assert sorted(v.path for v in make().weights) == sorted(expected)


def test_paths_of_other_forms():
    paths = {v.path for v in make(norm="pre", embedding_size=5, pooler=False).weights}
    assert {"encoder/final_norm/scale", "encoder/embeddings/projection/kernel"} <= paths
    assert not [p for p in paths if p.startswith(("encoder/embeddings/norm", "encoder/pooler"))]
    shared = {v.path for v in make(num_layers=4, layer_groups=2, inner_layers=2).weights}
    blocks = {p.split("/")[1] for p in shared if "layer" in p}
    assert blocks == {f"group_{g}_layer_{i}" for g in range(2) for i in range(2)}
    grouped = {v.path: v.shape for v in make(num_key_value_heads=1, use_bias=False).weights}
    found = {p.rpartition("attention/")[2]: s for p, s in grouped.items() if "/attention/" in p}
    sizes = {"query/kernel": (12, 12), "key_value/kernel": (12, 8), "output/kernel": (12, 12)}
    assert found == sizes


def count(**sizes):
    """Parameters of an encoder, without making them."""
    with keras_private.uninitialized_variables():
        encoder = transformer.Encoder(TransformerConfig(**sizes))
        encoder.build()
        return sum(int(np.prod(v.shape)) for v in encoder.weights)


@pytest.mark.parametrize("form", DISTANCES, ids=str)
def test_some_positions_of_the_last_layer_with_distances(form):
    encoder = make("float64", **form)
    whole = run(encoder)
    places = np.array([[0, 4, 2, 2], [6, 3, 5, 0]], "int32")
    some = run(encoder, read_positions=places)
    expected = np.take_along_axis(whole["sequence_output"].numpy(), places[:, :, None], axis=1)
    np.testing.assert_allclose(some["sequence_output"], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(some["pooled_output"], whole["pooled_output"], rtol=1e-9)


@pytest.mark.parametrize("form", DISTANCES, ids=str)
def test_distances_of_a_length_that_is_known_at_run_time_only(form):
    encoder = make("float64", **form, convolution=Convolution())
    signature = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, 1, None, None], bool)]
    graph = tf.function(lambda *given: encoder(given[0], None, given[1]), signature)
    for length in (2, 5, 7):
        mask = masks.padding(PADDING[:, -length:])
        given = tf.constant(TOKENS[:, :length]), tf.tile(mask, (1, 1, length, 1))
        expected = encoder(given[0], None, mask)
        for name, actual in graph(*given).items():
            np.testing.assert_allclose(actual, expected[name], rtol=1e-9, atol=1e-12)


def test_texts_that_share_a_row_do_not_see_each_other_beside_them():
    encoder = make("float64", disentangled=DEBERTA, positions="none", convolution=Convolution())
    parts = np.array([[0, 0, 0, 1, 1, 1, 1]])
    both = encoder(TOKENS[:1], None, masks.parts(parts))["sequence_output"]
    for rows in (slice(0, 3), slice(3, 7)):
        alone = encoder(TOKENS[:1, rows])["sequence_output"]
        np.testing.assert_allclose(both[:, rows], alone, rtol=1e-9, atol=1e-12)


def modern(hidden_size, num_layers, num_heads, intermediate_size, **changes):
    """The sizes of a ModernBERT."""
    form = {**MODERN, "norm_epsilon": 1e-5, "max_positions": 8192, "pooler": False}
    form |= {"local_attention": LocalAttention(), "vocab_size": 50368, "num_layers": num_layers}
    sizes = {"hidden_size": hidden_size, "num_heads": num_heads}
    return {**form, **sizes, "intermediate_size": intermediate_size, **changes}


NEO = {
    "vocab_size": 30522,
    "activation": "silu",
    "norm_type": "rms",
    "norm_bias": True,
    "norm_embeddings": False,
    "first_norm": True,
    "local_attention": None,
}
MODERN_SIZES = {
    "ModernBERT base": (modern(768, 22, 12, 1152), 149_014_272),
    "ModernBERT large": (modern(1024, 28, 16, 2624), 394_781_696),
    "Ettin 17M": (modern(256, 7, 4, 384), 16_797_440),
    "Ettin 32M": (modern(384, 10, 6, 576), 31_883_136),
    "Ettin 68M": (modern(512, 19, 8, 768), 68_144_640),
    "Ettin 1B": (modern(1792, 28, 28, 3840), 1_028_050_688),
    "NeoBERT": (modern(768, 28, 12, 2048, **NEO), 221_665_536),
}
LARGE = {"hidden_size": 1024, "num_layers": 24, "num_heads": 16, "intermediate_size": 4096}

V3 = {"vocab_size": 128_100, "disentangled": Disentangled()}
V3 |= {"positions": "none", "segment_types": 0, "pooler": False}
XLARGE = {"hidden_size": 1536, "num_heads": 24, "intermediate_size": 6144}
XLARGE |= {"convolution": Convolution(3, "gelu")}
V1 = {**V3, "vocab_size": 50_265}
V1 |= {"disentangled": Disentangled(0, 512, own_projections=True, norm=False)}


@pytest.mark.parametrize(
    "sizes, published",
    [
        ({"vocab_size": 30522}, 109_482_240),
        ({"vocab_size": 28996}, 108_310_272),
        ({"vocab_size": 30522, **LARGE}, 335_141_888),
        # RoBERTa: positions from 2, one segment. ALBERT: one shared layer. ELECTRA: projection.
        ({"vocab_size": 50265, "position_offset": 2, "segment_types": 1}, 124_645_632),
        ({"vocab_size": 30000, "embedding_size": 128, "layer_groups": 1}, 11_683_584),
        ({"vocab_size": 30522, "pooler": False}, 108_891_648),
        *MODERN_SIZES.values(),
        (
            {
                "vocab_size": 50257,
                "max_positions": 1024,
                "norm": "pre",
                "segment_types": 0,
                "pooler": False,
            },
            124_439_808,
        ),
        ({**V3, "hidden_size": 384, "num_heads": 6, "intermediate_size": 1536}, 70_682_112),
        ({**V3, "num_layers": 6}, 141_304_320),
        (V3, 183_831_552),
        ({**V3, **LARGE}, 434_012_160),
        ({**V3, "vocab_size": 251_000}, 278_218_752),
        ({**V3, **XLARGE, "num_layers": 24}, 884_593_152),
        ({**V3, **XLARGE, "num_layers": 48}, 1_564_549_632),
        (V1, 138_601_728),
        ({**V1, **LARGE}, 405_163_008),
        ({**V1, **LARGE, "num_layers": 48}, 757_804_032),
    ],
    ids=[
        "BERT base", "cased", "BERT large", "RoBERTa", "ALBERT", "ELECTRA", *MODERN_SIZES, "GPT-2",
        "DeBERTa-v3 xsmall", "v3 small", "v3 base", "v3 large", "mDeBERTa-v3 base",
        "DeBERTa-v2 xlarge", "v2 xxlarge", "DeBERTa base", "large", "xlarge",
    ],
)  # fmt: skip
def test_parameter_counts_are_the_published_ones(sizes, published):
    assert count(**sizes) == published


@pytest.mark.slow
def test_a_whole_bert_base_has_the_published_number_of_parameters():
    encoder = transformer.Encoder(TransformerConfig(vocab_size=30522))
    encoder.build()
    assert sum(v.numpy().size for v in encoder.weights) == 109_482_240


def test_initial_weights_are_a_function_of_seed_and_name():
    def weights(**options):
        encoder = transformer.Encoder(SMALL, **options)
        encoder.build()
        return {v.path.split("/", 1)[1]: v.numpy() for v in encoder.weights}

    first, again = weights(seed=1), weights(seed=1)
    others = [weights(seed=2), weights(seed=1, name="generator")]
    kernels = [path for path in first if path.endswith(("kernel", "table"))]
    for path in first:
        np.testing.assert_array_equal(first[path], again[path])
        constant = 1.0 if path.endswith("scale") else 0.0
        if path not in kernels:
            np.testing.assert_array_equal(first[path], np.full_like(first[path], constant))
    for path in kernels:
        for other in others:
            assert not np.isin(first[path], other[path]).any()
    same_shape = [first[f"layer_{i}/attention/output/kernel"] for i in range(2)]
    assert not np.isin(*same_shape).any()


def test_residual_outputs_may_begin_smaller():
    def kernels(**changes):
        encoder = transformer.Encoder(dataclasses.replace(SMALL, hidden_size=48, **changes))
        encoder.build()
        return {p: a for p, a in arrays(encoder).items() if p.endswith(("kernel", "table"))}

    plain, scaled = kernels(), kernels(scale_residual_init=True)
    for path, values in scaled.items():
        factor = 0.5 if path.endswith(("attention/output/kernel", "outer/kernel")) else 1.0
        np.testing.assert_allclose(values, plain[path] * factor, rtol=1e-6)  # 2 layers: 1 / √4
    deep = kernels(scale_residual_init=True, num_layers=8)
    for path in ("layer_7/attention/output/kernel", "layer_7/feed_forward/outer/kernel"):
        # Drawn within two deviations: 0.8796 of what it would be uncut.
        np.testing.assert_allclose(deep[path].std(), 0.02 * 0.25 * 0.8796, rtol=0.05)


def cached(encoder, steps, **options):
    """The outputs of TOKENS given a few at a time, and the cache."""
    cache, slot, actual = encoder.empty_cache(2, 9), 0, []
    real = np.pad(PADDING, ((0, 0), (0, 2)), constant_values=True)
    for length in steps:
        tokens = TOKENS[:, slot : slot + length]
        outputs = encoder(
            tokens,
            SEGMENTS[:, slot : slot + length],
            masks.padding(real),
            positions=np.arange(slot, slot + length, dtype="int32")[None],
            cache=cache,
            slot=tf.constant(slot),
            **options,
        )
        actual.append(outputs["sequence_output"])
        cache, slot = outputs["cache"], slot + length
    return np.concatenate(actual, axis=1), cache


@pytest.mark.parametrize("steps", [(7,), (1,) * 7, (3, 1, 2, 1)], ids=str)
@pytest.mark.parametrize(
    "changes", [{"norm": "pre", "num_key_value_heads": 1}, {"layer_groups": 1, "num_layers": 3}]
)
def test_a_cache_stands_for_the_tokens_before(steps, changes):
    encoder = make("float64", causal=True, **changes)
    whole = run(encoder)["sequence_output"].numpy()
    actual, cache = cached(encoder, steps)
    # The row that is padded on the left has positions that see nothing, for nobody's eyes.
    np.testing.assert_allclose(actual[PADDING], whole[PADDING], rtol=0, atol=1e-12)
    assert len(cache) == len(encoder.depths)
    for keys, values in cache:
        assert keys.shape == values.shape == (2, 3, 9, 4)
        assert not np.any(keys[:, :, 7:]) and not np.any(values[:, :, 7:])
        assert np.all(keys[:, :, :7]) and np.all(values[:, :, :7])


def test_what_the_cache_has_room_for_is_not_seen():
    encoder = make(causal=True)
    real = masks.padding(np.ones((2, 9), bool))
    noise = tuple(
        tuple(tf.random.stateless_normal((2, 3, 9, 4), (i, j)) for j in range(2)) for i in range(2)
    )
    first, second = (
        encoder(TOKENS[:, :3], None, real, cache=cache)["sequence_output"]
        for cache in (encoder.empty_cache(2, 9), noise)
    )
    np.testing.assert_array_equal(first, second)


def test_dropout_is_seeded_and_off_without_draws():
    encoder = make(dropout=0.3, attention_dropout=0.3)
    plain = make(dropout=0.0, attention_dropout=0.0)
    np.testing.assert_array_equal(run(encoder)["sequence_output"], run(plain)["sequence_output"])
    # Where there is something to learn, GELU is another formula of the same function.
    same = run(plain, rng=Draws((1, 2)))["sequence_output"]
    np.testing.assert_allclose(same, run(plain)["sequence_output"], atol=2e-6)
    first, again, other = (
        run(encoder, rng=Draws(pair))["sequence_output"].numpy()
        for pair in [(1, 2), (1, 2), (1, 2 + 65536)]
    )
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    assert not np.allclose(first, run(encoder)["sequence_output"])


def test_dropout_makes_no_variables():
    assert len(make(dropout=0.3).weights) == len(make(dropout=0.0, attention_dropout=0.0).weights)


def test_batch_and_length_may_be_dynamic():
    encoder = make(causal=True)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    def encode_any(tokens, real):
        return encoder(tokens, attention_mask=masks.padding(real))["sequence_output"]

    for rows, length in [(1, 2), (2, 7), (2, 3)]:
        tokens, real = TOKENS[:rows, :length], PADDING[:rows, :length].astype("int32")
        expected = encoder(tokens, attention_mask=masks.padding(real))["sequence_output"]
        np.testing.assert_allclose(encode_any(tokens, real), expected, atol=1e-5)


def test_float64_is_float64_from_end_to_end():
    encoder = make("float64")
    outputs = run(encoder, output_all=True, rng=Draws((1, 2)))
    assert {x.dtype for x in tf.nest.flatten(outputs)} == {tf.float64}

    @tf.function
    def both():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(run(encoder, rng=Draws((1, 2)))["sequence_output"])
        return tape.gradient(loss, [v.value for v in encoder.trainable_variables[:5]])

    for op in both.get_concrete_function().graph.get_operations():
        assert tf.float32 not in [x.dtype for x in op.outputs], op.name


def test_mixed_bfloat16_keeps_sums_in_float32():
    encoder, exact = make("mixed_bfloat16"), make("float32")
    outputs = run(encoder, output_all=True)
    assert outputs["sequence_output"].dtype == tf.bfloat16
    assert {v.dtype for v in encoder.weights} == {"float32"}
    assert {w.dtype for w in outputs["attentions"]} == {tf.float32}
    sums = tf.reduce_sum(outputs["attentions"][0], -1)
    np.testing.assert_allclose(sums, np.ones((2, 3, 7)), rtol=1e-6)
    error = tf.cast(outputs["sequence_output"], tf.float32) - run(exact)["sequence_output"]
    assert tf.sqrt(tf.reduce_mean(error**2)) < 0.03


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_heads": 5}, "num_heads: 5 heads do not divide hidden_size 12"),
        ({"activation": "swish"}, "activation: 'swish' is not one of gelu, gelu_tanh, relu"),
        ({"norm": "none"}, "norm: 'none' is not one of post, pre"),
        ({"dropout": 1.0}, r"dropout: 1.0 is not in \[0, 1\)"),
        ({"attention_dropout": -0.1}, r"attention_dropout: -0.1 is not in \[0, 1\)"),
        ({"num_layers": 0}, "num_layers: 0 is less than 1"),
        ({"vocab_size": 0}, "vocab_size: 0 is less than 1"),
        ({"segment_types": -1}, "segment_types: -1 is negative"),
        ({"inner_layers": 2}, "inner_layers: not supported without layer_groups: set it"),
        ({"layer_groups": 3}, "layer_groups: 3 groups do not divide 2 layers"),
        ({"positions": "relative"}, "positions: 'relative' is not one of learned, sinusoidal, ro"),
        ({"positions": "sinusoidal", "embedding_size": 5}, "embedding_size: 5 is odd: half of it"),
    ],
)
def test_config_errors(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **changes)


def test_use_errors():
    with pytest.raises(UserError, match="encoder.vocab_size: not set"):
        transformer.Encoder(TransformerConfig())
    encoder = make()
    with pytest.raises(UserError, match=r"a cache needs .*: set encoder\.causal: true"):
        encoder(TOKENS, cache=encoder.empty_cache(2, 9))
    with pytest.raises(UserError, match="sequences of 10 tokens, but the encoder has 9 positions"):
        encoder(np.zeros((1, 10), "int32"))
    with pytest.raises(UserError, match=r"token_ids: expected \[B, T\], got shape \(3,\)"):
        encoder(np.zeros((3,), "int32"))
    with pytest.raises(UserError, match=r"attention_mask: .* got \(2, 7\); masks.padding makes"):
        encoder(TOKENS, attention_mask=PADDING)


def test_one_row_of_segments_is_every_token_s():
    # RoBERTa: the second text of a pair has no segment of its own.
    encoder = make(segment_types=1, position_offset=2)
    alike = encoder(tf.constant(TOKENS), attention_mask=masks.padding(PADDING))
    actual = run(encoder)
    np.testing.assert_array_equal(actual["sequence_output"], alike["sequence_output"])
    table = arrays(encoder)["embeddings/segment_embedding/table"]
    assert SEGMENTS.any() and table.shape == (1, 12)
    # Its row is added to each token: with a zero in its place the outputs are others.
    encoder.embeddings.segment.table.assign(np.zeros_like(table))
    assert np.abs(run(encoder)["sequence_output"] - actual["sequence_output"]).max() > 1e-3


READ = np.array([[4, 0, 4], [3, 6, 0]], "int32")  # a position twice, and padding
PARTS = masks.parts(np.array([[0, 0, 0, 1, 1, 2, 2]] * 2))
SETTINGS = [
    {},
    {"norm": "pre", "segment_types": 0},
    {"layer_groups": 1, "num_layers": 3, "embedding_size": 5},
    {"num_layers": 1},
    {"causal": True, "num_key_value_heads": 1},
]


@pytest.mark.parametrize("changes", SETTINGS)
@pytest.mark.parametrize(
    "options",
    [{}, {"attention_mask": PARTS, "pooled_positions": np.array([[0, 3], [5, 0]], "int32")}],
    ids=["rows", "parts"],
)
def test_positions_that_are_read_are_what_they_are_among_all(changes, options):
    encoder = make("float64", **changes)
    whole, alone = run(encoder, **options), run(encoder, read_positions=READ, **options)
    assert set(alone) == set(whole) == {"sequence_output", "pooled_output"}
    expected = np.take_along_axis(whole["sequence_output"].numpy(), READ[..., None], axis=1)
    np.testing.assert_allclose(alone["sequence_output"], expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(alone["pooled_output"], whole["pooled_output"], rtol=1e-12)


def test_positions_that_are_read_have_the_same_gradients():
    encoder = make("float64")
    actual = []
    for read in (None, READ):
        with tf.GradientTape() as tape:
            outputs = run(encoder, read_positions=read)
            states = outputs["sequence_output"]
            if read is None:
                states = tf.gather(states, READ, batch_dims=1)
            loss = tf.reduce_sum(tf.sin(outputs["pooled_output"]))
            loss += tf.reduce_sum(tf.square(states))
        actual.append(tape.gradient(loss, [v.value for v in encoder.weights]))
    for variable, whole, alone in zip(encoder.weights, *actual, strict=True):
        np.testing.assert_allclose(alone, whole, rtol=1e-10, atol=1e-12, err_msg=variable.path)


def test_of_the_last_layer_nothing_else_is_computed():
    encoder = make()
    traced = tf.function(lambda: run(encoder, read_positions=READ)).get_concrete_function()
    products = [op for op in traced.graph.get_operations() if op.type == "MatMul"]
    rows = [op.outputs[0].shape[0] for op in products if op.outputs[0].shape[1] == 20]
    # Of the feed-forward networks: all of two rows of 7, then 3 positions and the pooled one.
    assert rows == [14, 8]


def test_no_groups():
    assert block_names(3) == ("layer_0", "layer_1", "layer_2")


@pytest.mark.parametrize("layers", [4, 6, 12, 24])
def test_a_layer_belongs_to_the_group_of_alberts_release(layers):
    for groups in (n for n in range(1, layers + 1) if layers % n == 0):
        actual = block_names(layers, groups)
        assert actual == tuple(f"group_{int(i / layers * groups)}_layer_0" for i in range(layers))


def test_the_inner_layers_of_a_group_run_one_after_the_other():
    assert block_names(4, 2, 2) == (
        "group_0_layer_0", "group_0_layer_1", "group_0_layer_0", "group_0_layer_1",
        "group_1_layer_0", "group_1_layer_1", "group_1_layer_0", "group_1_layer_1",
    )  # fmt: skip
