"""The encoder-decoder: states by loops, cached steps, packed rows, buckets and initial weights."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.encoders import EncoderDecoderConfig
from official.modeling import weight_counts
from official.modeling.encoders import encoder_decoder
from official.modeling.encoders.inputs import encode
from official.modeling.layers.relative_bias import buckets
from official.utils.errors import UserError
from tests import CONFIGS
from tests.official.modeling.encoders.numpy_encoder_decoder import run

T5 = EncoderDecoderConfig(
    vocab_size=23,
    hidden_size=10,
    num_layers=2,
    decoder_layers=1,
    num_heads=3,
    head_size=4,
    intermediate_size=14,
    relative_buckets=8,
    relative_max_distance=7,
)
GATED = {
    "gated": True,
    "activation": "gelu_tanh",
    "tied_output": False,
    "scale_output": None,
    "decoder_layers": 3,
}
PLAIN = {
    "norm": "layer",
    "norm_position": "post",
    "use_bias": True,
    "scale_scores": True,
    "positions": "sinusoidal",
    "scale_embeddings": True,
    "scale_output": False,
}
# A batch of two with different padding: on the right, and on the left.
PADDING = np.array([[1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1]], bool)
TOKENS = np.random.default_rng(0).integers(0, 23, PADDING.shape).astype("int32")
DECODED = np.random.default_rng(1).integers(0, 23, (2, 9)).astype("int32")


def make(dtype="float64", **changes):
    """An encoder-decoder with random values everywhere, norms and biases too."""
    encoder = encoder_decoder.Encoder(dataclasses.replace(T5, **changes), dtype=dtype)
    encoder.build()
    rng = np.random.default_rng(2)
    for variable in encoder.weights:
        noise = 0.4 * rng.standard_normal(variable.shape)
        variable.assign(1 + noise if variable.path.endswith("scale") else noise)
    return encoder


def arrays(encoder):
    return {v.path.removeprefix("encoder/"): v.numpy() for v in encoder.weights}


def both(encoder, tokens=TOKENS, padding=PADDING, decoded=DECODED, **more):
    return encode(
        encoder,
        {"token_ids": tokens, "padding_mask": padding, "decoder_ids": decoded, **more},
    )


@pytest.mark.parametrize("changes", [{}, GATED, PLAIN], ids=["t5", "gated", "plain"])
@pytest.mark.parametrize("dtype, error", [("float64", 1e-10), ("float32", 2e-5)])
def test_states_by_loops(changes, dtype, error):
    if changes is PLAIN and dtype == "float32":
        changes = {**changes, "norm_epsilon": 1e-5}
    encoder = make(dtype, **changes)
    outputs = both(encoder)
    for row in range(2):
        encoded, decoded = run(
            encoder.config, arrays(encoder), TOKENS[row], DECODED[row], PADDING[row]
        )
        real = PADDING[row]
        got = outputs["sequence_output"][row].numpy()[real]
        np.testing.assert_allclose(got, encoded[real], atol=error, rtol=error)
        np.testing.assert_allclose(
            outputs["decoder_output"][row].numpy(), decoded, atol=error, rtol=error
        )


@pytest.mark.parametrize("changes", [{}, GATED, PLAIN], ids=["t5", "gated", "plain"])
@pytest.mark.parametrize("steps", [(1,) * 9, (4, 5)], ids=["one by one", "four and five"])
def test_cached_steps_are_the_whole_sequence(changes, steps):
    encoder = make(**changes)
    whole = both(encoder)["decoder_output"]
    states = both(encoder)["sequence_output"]
    mask = tf.constant(PADDING)[:, None, None]
    cache = encoder.empty_cache(states, slots=12)
    decode = tf.function(lambda ids, cache, slot: encoder.decode(ids, cache, slot, mask))
    done = 0
    for count in steps:
        ids = tf.constant(DECODED[:, done : done + count])
        hidden, cache = decode(ids, cache, tf.constant(done))
        np.testing.assert_allclose(hidden, whole[:, done : done + count], atol=1e-12)
        done += count


@pytest.mark.parametrize("changes", [{}, PLAIN], ids=["t5", "plain"])
def test_packed_examples_are_those_of_single_rows(changes):
    encoder = make(**changes)
    lengths, targets = (4, 2), (3, 5)
    tokens, decoded = TOKENS[:1, :6], DECODED[:1, :8]
    packed = both(
        encoder,
        tokens,
        np.ones((1, 6), bool),
        decoded,
        part_ids=np.repeat([0, 1], lengths)[None].astype("int32"),
        positions=np.concatenate([np.arange(n) for n in lengths])[None].astype("int32"),
        target_part_ids=np.repeat([0, 1], targets)[None].astype("int32"),
        target_positions=np.concatenate([np.arange(n) for n in targets])[None].astype("int32"),
    )
    single = [
        both(encoder, tokens[:, :4], np.ones((1, 4), bool), decoded[:, :3]),
        both(encoder, tokens[:, 4:], np.ones((1, 2), bool), decoded[:, 3:]),
    ]
    for name in ("sequence_output", "decoder_output"):
        wanted = np.concatenate([outputs[name] for outputs in single], axis=1)
        np.testing.assert_allclose(packed[name], wanted, atol=1e-12)


@pytest.mark.filterwarnings("error:You are using a softmax")
def test_an_input_of_one_token_is_that_of_a_padded_row():
    """The inputs of a language model without a prefix are an end token alone."""
    encoder = make()
    alone = both(encoder, TOKENS[:, :1], np.ones((2, 1), bool))
    padded = both(encoder, TOKENS[:, :3], np.array([[1, 0, 0], [1, 0, 0]], bool))
    np.testing.assert_allclose(alone["decoder_output"], padded["decoder_output"], atol=1e-12)


def test_lengths_that_are_known_at_run_time_change_nothing():
    """Batches of several lengths share a graph."""
    encoder = make()
    inputs = {"token_ids": TOKENS, "padding_mask": PADDING, "decoder_ids": DECODED}
    specs = [tf.TensorSpec([None, None], dtype) for dtype in (tf.int32, tf.bool, tf.int32)]

    @tf.function(input_signature=specs)
    def graph(*values):
        return encode(encoder, dict(zip(inputs, values, strict=True)))["decoder_output"]

    wanted = encode(encoder, inputs)["decoder_output"]
    np.testing.assert_allclose(graph(*inputs.values()), wanted, rtol=1e-12)


def test_all_layers_are_returned_when_asked():
    encoder = make()
    outputs = encoder(
        TOKENS,
        None,
        tf.constant(PADDING)[:, None, None],
        decoder_ids=DECODED,
        cross_mask=tf.constant(PADDING)[:, None, None],
        output_all=True,
    )
    assert [len(outputs[name]) for name in ("hidden_states", "decoder_hidden_states")] == [3, 2]
    np.testing.assert_array_equal(outputs["hidden_states"][-1], outputs["sequence_output"])
    (crossed,) = outputs["cross_attention_parts"]
    scores = np.einsum("bnth,bnsh->bnts", crossed.query, crossed.key)  # T5 has no factor
    np.testing.assert_allclose(crossed.scores, scores, atol=1e-12)
    weights = np.exp(scores) * PADDING[:, None, None]
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(outputs["cross_attentions"][0], weights, atol=1e-12)


# First distance of each bucket of 32 with the largest distance 128.
TWO_SIDED = {8: 8, 9: 12, 10: 16, 11: 23, 12: 32, 13: 46, 14: 64, 15: 91}
ONE_SIDED = {
    16: 16, 17: 19, 18: 21, 19: 24, 20: 27, 21: 31, 22: 35, 23: 40, 24: 46, 25: 52, 26: 59, 27: 67,
    28: 77, 29: 87, 30: 99, 31: 113,
}  # fmt: skip


def test_bucket_edges():
    rule = {"num_buckets": 32, "max_distance": 128}
    distances = np.arange(300)
    before = buckets(-distances, bidirectional=True, **rule)
    after = buckets(distances, bidirectional=True, **rule)
    causal = buckets(-distances, bidirectional=False, **rule)
    edges = {**{n: n for n in range(8)}, **TWO_SIDED}
    assert {b: int(np.argmax(before == b)) for b in range(16)} == edges
    assert {b: int(np.argmax(after == 16 + b)) for b in range(1, 16)} == {
        b: edges[b] for b in range(1, 16)
    }
    assert 16 not in after and after[0] == 0
    assert before[-1] == 15 and after[-1] == 31 and causal[-1] == 31
    edges = {**{n: n for n in range(16)}, **ONE_SIDED}
    assert {b: int(np.argmax(causal == b)) for b in range(32)} == edges
    assert not buckets(distances, bidirectional=False, **rule).any()


def test_initial_weights_have_the_laws_of_t5():
    config = dataclasses.replace(
        T5, vocab_size=500, hidden_size=48, num_heads=6, head_size=16, intermediate_size=80
    )
    encoder = encoder_decoder.Encoder(config)
    encoder.build()
    values = arrays(encoder)
    joined = values["encoder/layer_0/attention/query_key_value/kernel"]
    laws = {
        "token_embedding/table": (values["token_embedding/table"], 1),
        "query": (joined[:, :96], (48 * 16) ** -0.5),
        "key and value": (joined[:, 96:], 48**-0.5),
        "cross query": (
            values["decoder/layer_0/cross_attention/query/kernel"],
            (48 * 16) ** -0.5,
        ),
        "output": (values["encoder/layer_0/attention/output/kernel"], 96**-0.5),
        "inner": (values["encoder/layer_0/feed_forward/inner/kernel"], 48**-0.5),
        "outer": (values["encoder/layer_0/feed_forward/outer/kernel"], 80**-0.5),
    }
    for name, (value, stddev) in laws.items():
        spread = 5 / np.sqrt(2 * value.size)
        assert abs(value.std() / stddev - 1) < spread, name
        assert abs(value.mean()) < 5 * stddev / np.sqrt(value.size), name


# Weights of the released models, and of the encoder with the token table.
RELEASED = {
    "t5_small": (60_506_624, 35_330_816),
    "t5_base": (222_903_552, 109_628_544),
    "t5_large": (737_668_096, 334_939_648),
    "t5_3b": (2_851_598_336, 1_240_909_824),
    "t5_11b": (11_307_321_344, 4_864_791_552),
    "t5_1_1_small": (76_961_152, 35_332_800),
    "t5_1_1_base": (247_577_856, 109_628_544),
    "t5_1_1_large": (783_150_080, 341_231_104),
    "t5_1_1_xl": (2_849_757_184, 1_223_527_424),
    "t5_1_1_xxl": (11_135_332_352, 4_762_310_656),
}


@pytest.mark.parametrize("name", RELEASED)
def test_numbers_of_weights(name):
    config = configs.load(CONFIGS / "pretrain" / f"{name}.yaml")
    lengths = config.corruption.lengths(config.segments.max_length)
    assert lengths == (568, 512, 114)
    counts = weight_counts.count(config)
    assert (counts.total, counts.encoders["encoder_alone"]) == RELEASED[name]


STUDY = sorted(path.stem for path in (CONFIGS / "pretrain").glob("t5_study_*.yaml"))


def test_the_objectives_of_the_study_have_one_model():
    read = [configs.load(CONFIGS / "pretrain" / f"{name}.yaml") for name in STUDY]
    encoders = {dataclasses.replace(config.encoder, vocab_size=None) for config in read}
    assert len(STUDY) == 14 and len(encoders) == 1
    for config in read:
        pieces = 32_000 + max(100, config.corruption.sentinels)
        assert config.encoder.vocab_size == 128 * math.ceil(pieces / 128)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": 10, "head_size": None}, "num_heads: 3 heads do not divide hidden_size 10"),
        ({"positions": "sinusoidal", "hidden_size": 9}, "hidden_size: 9 is odd"),
        ({"relative_buckets": 6}, "relative_buckets: 6 is not a multiple of 4"),
        ({"relative_max_distance": 4}, "relative_max_distance: 4 is not above 4"),
        ({"tied_output": False, "scale_output": True}, "scale_output: true needs a tied output"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(T5, **changes)


def test_decoder_ids_need_a_decoder():
    from official.config.encoders import TransformerConfig
    from official.modeling.encoders import transformer

    encoder = transformer.Encoder(
        TransformerConfig(
            vocab_size=9, hidden_size=4, num_layers=1, num_heads=1, intermediate_size=4
        )
    )
    encoder.build()
    with pytest.raises(UserError, match="decoder_ids: .* use encoder.type encoder_decoder"):
        both(encoder)
