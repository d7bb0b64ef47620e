import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from official.config.encoders import TransformerConfig, TransformerXLConfig
from official.modeling import masks
from official.modeling.encoders import transformer_xl
from official.modeling.encoders.inputs import encode as encode_batch
from official.modeling.layers.random import Draws
from official.tokenizers import pair_packing
from official.tokenizers.pair_forms import PairForm
from official.utils import keras_private
from official.utils.errors import UserError
from tests.official.modeling.encoders.numpy_transformer_xl import encode

SMALL = TransformerXLConfig(
    vocab_size=23,
    hidden_size=12,
    num_layers=2,
    num_heads=3,
    intermediate_size=20,
    norm_epsilon=1e-6,
    memory_length=5,
)
# A batch of two with different padding: on the right, and on the left.
PADDING = np.array([[1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1]], bool)
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, 23, PADDING.shape).astype("int32")
SEGMENTS = RNG.integers(0, 3, PADDING.shape).astype("int32")
ORDERS = RNG.random((2, 7, 7)) < 0.5
ORDERS[0, 3] = False  # This one sees nothing before it.
PLACES = np.array([[0, 3, 4], [4, 6, 5]], "int32")
BACKWARD = np.array([False, True])
SLOTS = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], bool)
QUERIES = {"permutation_mask": ORDERS, "query_positions": PLACES}


def make(dtype=None, **changes):
    """An encoder with random values everywhere, norms and biases too."""
    encoder = transformer_xl.Encoder(dataclasses.replace(SMALL, **changes), dtype=dtype)
    encoder.build()
    rng = np.random.default_rng(2)
    for variable in encoder.weights:
        noise = 0.3 * rng.standard_normal(variable.shape)
        variable.assign(1 + noise if variable.path.endswith("scale") else noise)
    return encoder


def memory_of(encoder, dtype="float64"):
    config = encoder.config
    shape = (2, config.num_layers, config.memory_length, config.hidden_size)
    memory = np.random.default_rng(3).standard_normal(shape).astype(dtype)
    return {"memory": tf.constant(memory), "memory_mask": tf.constant(SLOTS)}


def arrays(encoder):
    return {v.path.removeprefix("encoder/"): v.numpy() for v in encoder.weights}


def run(encoder, **options):
    options.setdefault("attention_mask", masks.padding(PADDING))
    return encoder(tf.constant(TOKENS), tf.constant(SEGMENTS), **options)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention": "uni", "clamp_length": 3},
        {"untie_biases": False, "segment_types": 0, "activation": "relu"},
        {"memory_length": 0, "head_size": 5, "scale_embeddings": True, "activation": "gelu"},
        {"query_stream": False, "attention": "uni", "num_layers": 3},
        {"attention": "uni", "same_length": True},
        {"query_stream": False, "memory_length": 0, "num_layers": 1},
    ],
    ids=str,
)
def test_equals_a_forward_pass_by_hand(changes):
    encoder = make("float64", **changes)
    config = encoder.config
    options = memory_of(encoder) if config.memory_length else {}
    options |= {**QUERIES, "backward": BACKWARD} if config.query_stream else {}
    outputs = run(encoder, output_all=True, **options)
    slots = config.memory_length
    for b in range(2):
        keys = np.concatenate([SLOTS[b][:slots], PADDING[b]])
        allowed = np.broadcast_to(keys, (7, slots + 7)).copy()
        if config.attention == "uni":
            distance = slots + np.arange(7)[:, None] - np.arange(slots + 7)
            allowed &= distance >= 0
            if config.same_length:  # a token, and the four before it
                allowed &= distance < 5
        queries = {}
        if config.query_stream:
            order = np.concatenate([np.ones((7, slots), bool), ORDERS[b]], axis=1)
            queries["query_allowed"] = (allowed & order)[PLACES[b]]
            queries |= {"places": PLACES[b], "backward": BACKWARD[b]}
            allowed &= order | np.eye(7, slots + 7, slots, dtype=bool)
        # Padding that may attend to nothing is for nobody's eyes.
        seen = allowed.any(-1)
        states, query_states = encode(
            config,
            arrays(encoder),
            TOKENS[b],
            SEGMENTS[b],
            allowed,
            memory=options["memory"][b].numpy() if slots else None,
            **queries,
        )
        assert len(states) == len(outputs["hidden_states"])
        for ours, theirs in zip(outputs["hidden_states"], states, strict=True):
            np.testing.assert_allclose(ours[b][seen], theirs[seen], rtol=1e-9, atol=1e-9)
        if config.query_stream:
            for ours, theirs in zip(outputs["query_states"], query_states, strict=True):
                np.testing.assert_allclose(ours[b], theirs, rtol=1e-9, atol=1e-9)
            np.testing.assert_array_equal(outputs["query_output"], outputs["query_states"][-1])
    np.testing.assert_array_equal(outputs["sequence_output"], outputs["hidden_states"][-1])


def test_only_what_is_asked_for_is_returned():
    assert run(make(memory_length=0)).keys() == {"sequence_output"}
    encoder = make(pooler=True)
    outputs = run(encoder, **QUERIES)
    names = {"sequence_output", "query_output", "pooled_output", "memory", "memory_mask"}
    assert outputs.keys() == names
    names |= {"hidden_states", "attentions", "query_states", "query_attentions"}
    assert run(encoder, output_all=True, **QUERIES).keys() == names


def test_attention_weights():
    encoder = make()
    outputs = run(encoder, output_all=True, **QUERIES, **memory_of(encoder, "float32"))
    hidden = np.concatenate([~SLOTS, ~PADDING], axis=1)[:, None, None, :]
    for name, rows in {"attentions": 7, "query_attentions": 3}.items():
        assert len(outputs[name]) == 2
        for weights in outputs[name]:
            assert weights.shape == (2, 3, rows, 12)
            np.testing.assert_allclose(tf.reduce_sum(weights, -1), np.ones((2, 3, rows)), rtol=1e-5)
            assert (weights.numpy()[np.broadcast_to(hidden, weights.shape)] == 0).all()


def test_the_content_does_not_depend_on_the_queries():
    encoder = make()
    alone = run(encoder, permutation_mask=ORDERS)["sequence_output"]
    beside = run(encoder, **QUERIES)["sequence_output"]
    np.testing.assert_allclose(alone, beside, atol=1e-5)
    # And a query does not depend on which others there are.
    one = run(encoder, permutation_mask=ORDERS, query_positions=PLACES[:, 1:2])["query_output"]
    np.testing.assert_allclose(one[:, 0], run(encoder, **QUERIES)["query_output"][:, 1], atol=1e-5)


def test_a_query_sees_what_its_order_allows_and_no_more():
    encoder = make("float64", memory_length=0, num_layers=3)
    order = np.array([4, 2, 6, 0, 3, 5, 1])  # Token 4 comes first.
    rank = np.argsort(order)
    allowed = np.broadcast_to(rank[None, :] < rank[:, None], (2, 7, 7))
    places = np.broadcast_to(np.arange(7, dtype="int32"), (2, 7))
    queries = {"permutation_mask": allowed, "query_positions": places}
    before = encoder(TOKENS, SEGMENTS, **queries)["query_output"].numpy()
    for t in range(7):
        changed = TOKENS.copy()
        changed[:, t] = (changed[:, t] + 1) % 23
        after = encoder(changed, SEGMENTS, **queries)["query_output"].numpy()
        for p in range(7):
            same = np.allclose(before[:, p], after[:, p], rtol=0, atol=1e-12)
            assert same == (rank[t] >= rank[p]), (t, p)


@pytest.mark.parametrize("reuse", [0, 3])
def test_memory_is_what_layers_read_and_has_no_gradient(reuse):
    encoder = make("float64", reuse_length=reuse)
    old = memory_of(encoder)
    with tf.GradientTape() as tape:
        outputs = run(encoder, output_all=True, **old)
        total = tf.reduce_sum(outputs["memory"])
    assert tape.gradient(total, encoder.trainable_variables[0].value) is None
    for i in range(2):
        kept = outputs["hidden_states"][i][:, : reuse or None]
        joined = np.concatenate([old["memory"][:, i], kept], axis=1)
        np.testing.assert_array_equal(outputs["memory"][:, i], joined[:, -5:])
    kept = np.concatenate([SLOTS, PADDING[:, : reuse or None]], axis=1)[:, -5:]
    np.testing.assert_array_equal(outputs["memory_mask"], kept)
    # Without a memory the slots before the row are empty.
    fresh = run(make("float64", memory_length=9, reuse_length=reuse))
    empty = 9 - (reuse or 7)
    np.testing.assert_array_equal(fresh["memory"][:, :, :empty], np.zeros((2, 2, empty, 12)))
    expected = np.pad(PADDING[:, : reuse or None], [(0, 0), (empty, 0)])
    np.testing.assert_array_equal(fresh["memory_mask"], expected)


def test_three_rows_with_memory_are_one_long_row():
    # One layer: with more of them, a token's reach grows with depth and a long row sees further.
    encoder = make("float64", attention="uni", num_layers=1, memory_length=14)
    tokens = RNG.integers(0, 23, (2, 21)).astype("int32")
    whole = encoder(tokens)["sequence_output"]
    memory = {}
    for i in range(3):
        outputs = encoder(tokens[:, 7 * i : 7 * i + 7], **memory)
        memory = {name: outputs[name] for name in ("memory", "memory_mask")}
        np.testing.assert_allclose(
            outputs["sequence_output"], whole[:, 7 * i : 7 * i + 7], rtol=1e-9
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"clamp_length": 3},
        {"memory_length": 0, "untie_biases": False, "scale_embeddings": True},
        {"memory_length": 20, "segment_types": 0, "query_stream": False, "head_size": 5},
        {"memory_length": 4, "same_length": True},
    ],
    ids=str,
)
@pytest.mark.parametrize(("dtype", "exact"), [("float64", 1e-12), ("float32", 1e-5)])
def test_tokens_read_with_a_cache_see_one_long_row(changes, dtype, exact):
    encoder = make(dtype, attention="uni", **changes)
    tokens = RNG.integers(0, 23, (2, 11)).astype("int32")
    real = np.arange(11) >= np.array([[0], [3]])  # on the left, of different lengths
    whole = encoder(tokens, attention_mask=masks.padding(real))["sequence_output"].numpy()
    seen = masks.padding(np.pad(real, [(0, 0), (0, 2)], constant_values=True))
    noise = [
        tuple(tf.random.stateless_normal(x.shape, (1, 2), dtype=x.dtype) for x in layer[:2])
        for layer in encoder.empty_cache(2, 13)
    ]
    for filled in (False, True):
        cache = encoder.empty_cache(2, 13)  # two slots more than there are tokens
        if filled:  # What stands in slots yet to be filled does not matter.
            cache = tuple((*pair, layer[2]) for pair, layer in zip(noise, cache, strict=True))
        actual, slot = [], 0
        for count in (5, 1, 1, 3, 1):
            read = tokens[:, slot : slot + count]
            outputs = encoder(read, attention_mask=seen, cache=cache, slot=tf.constant(slot))
            assert outputs.keys() == {"sequence_output", "cache"}
            actual.append(outputs["sequence_output"].numpy())
            cache, slot = outputs["cache"], slot + count
        actual = np.concatenate(actual, axis=1)
        np.testing.assert_allclose(actual[real], whole[real], rtol=0, atol=exact)
    assert np.abs(whole[:, 1:] - whole[:, :-1]).max() > 0.1


def test_backward_rows_read_a_reversed_text_as_it_was():
    encoder = make("float64", memory_length=0)
    plain = run(encoder)["sequence_output"]
    flipped = encoder(
        TOKENS[:, ::-1],
        SEGMENTS[:, ::-1],
        masks.padding(PADDING[:, ::-1]),
        backward=np.array([True, True]),
    )["sequence_output"]
    np.testing.assert_allclose(flipped[:, ::-1], plain, rtol=1e-9)
    mixed = run(encoder, backward=np.array([False, True]))["sequence_output"]
    np.testing.assert_allclose(mixed[0], plain[0], rtol=1e-9)
    assert np.abs(mixed[1] - plain[1]).max() > 1e-3


def test_segments_count_only_as_same_or_other():
    encoder = make("float64")
    memory = memory_of(encoder)
    plain = run(encoder, **memory)["sequence_output"]
    renamed = np.array([0, 7, 4])[SEGMENTS].astype("int32")
    options = {"attention_mask": masks.padding(PADDING), **memory}
    actual = encoder(TOKENS, renamed, **options)["sequence_output"]
    np.testing.assert_allclose(actual, plain, rtol=1e-12)
    zeros = encoder(TOKENS, np.zeros_like(SEGMENTS), **options)["sequence_output"]
    np.testing.assert_allclose(
        encoder(TOKENS, **options)["sequence_output"], zeros, rtol=1e-9, atol=1e-12
    )
    # Memory is segment 0: where all others are another, that makes a difference.
    ones = encoder(TOKENS, np.ones_like(SEGMENTS), **options)["sequence_output"]
    assert np.abs(ones - zeros).max() > 1e-3


def test_pooled_output():
    encoder = make("float64", pooler=True)
    outputs = run(encoder)
    states = outputs["sequence_output"].numpy()
    kernel, bias = (arrays(encoder)[f"pooler/{name}"] for name in ("kernel", "bias"))
    last = np.tanh(states[[0, 1], [4, 6]] @ kernel + bias)  # The last real positions.
    np.testing.assert_allclose(outputs["pooled_output"], last, rtol=1e-12)
    plain = encoder(TOKENS)
    np.testing.assert_allclose(
        plain["pooled_output"], np.tanh(plain["sequence_output"][:, -1] @ kernel + bias)
    )
    first = run(make("float64", pooler=True, pooled_position="first"))["pooled_output"]
    np.testing.assert_allclose(first, np.tanh(states[:, 0] @ kernel + bias), rtol=1e-12)
    of_text = make("float64", pooler=True, pooled_position="first_of_text")
    of_text, real = run(of_text)["pooled_output"], np.argmax(PADDING, axis=1)
    np.testing.assert_allclose(of_text, np.tanh(states[[0, 1], real] @ kernel + bias), rtol=1e-12)
    places = np.array([[2, 0], [5, 6]], "int32")
    some = run(encoder, pooled_positions=places)["pooled_output"]
    expected = np.stack([states[b][places[b]] for b in range(2)])
    np.testing.assert_allclose(some, np.tanh(expected @ kernel + bias), rtol=1e-12)


@pytest.mark.parametrize(
    "attention, pooled", [("bi", "last"), ("uni", "last"), ("bi", "first_of_text")]
)
def test_the_amount_of_padding_on_the_left_changes_nothing(attention, pooled):
    encoder = make(pooler=True, attention=attention, pooled_position=pooled, memory_length=0)
    lengths = (5, 3)
    rows = tf.ragged.constant([TOKENS[0, :5].tolist(), TOKENS[1, :3].tolist()], tf.int32)

    def packed(ids, more=0):
        special = types.SimpleNamespace(pad_id=1, cls_id=2, sep_id=3, pairs=PairForm())
        batch = pair_packing.pack([ids], special, 20)
        batch = {name: tf.pad(value, [[0, 0], [0, more]]) for name, value in batch.items()}
        return pair_packing.arrange(batch, special, encoder.config.layout)

    alone = [encode_batch(encoder, packed(rows[b : b + 1])) for b in range(2)]
    for more in (0, 1, 13):
        both = encode_batch(encoder, packed(rows, more))
        for b, one in enumerate(alone):
            assert one["sequence_output"].shape[1] == lengths[b] + 2
            states = both["sequence_output"][b : b + 1, -lengths[b] - 2 :]
            np.testing.assert_allclose(states, one["sequence_output"], rtol=0, atol=1e-5)
            np.testing.assert_allclose(
                both["pooled_output"][b], one["pooled_output"][0], rtol=0, atol=1e-5
            )
    assert np.abs(alone[0]["pooled_output"] - alone[1]["pooled_output"]).max() > 1e-2


def test_the_layout_of_texts_is_that_of_the_pooled_position():
    assert SMALL.layout == "cls_last"
    assert dataclasses.replace(SMALL, pooled_position="first").layout == "cls_first"
    assert dataclasses.replace(SMALL, pooled_position="first_of_text").layout == "cls_last"


def test_a_batch_gives_all_of_it_and_other_encoders_refuse_what_they_cannot_read():
    encoder = make()
    batch = {
        "token_ids": tf.constant(TOKENS),
        "segment_ids": tf.constant(SEGMENTS),
        "padding_mask": tf.constant(PADDING),
        "permutation_mask": tf.constant(ORDERS),
        "masked_positions": tf.constant(PLACES),
        "backward": tf.constant(BACKWARD),
        **memory_of(encoder, "float32"),
    }
    actual = encode_batch(encoder, batch)
    expected = run(encoder, **QUERIES, backward=BACKWARD, **memory_of(encoder, "float32"))
    np.testing.assert_array_equal(actual.pop("padding_mask"), PADDING)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value)
    # Masked positions without an order are those of a masked LM.
    del batch["permutation_mask"]
    assert "query_output" not in encode_batch(encoder, batch)

    from official.modeling.encoders import transformer

    other = transformer.Encoder(TransformerConfig(23, 12, 1, 3, 20, max_positions=9), name="other")
    other.build()
    for name in ("memory", "permutation_mask", "backward"):
        with pytest.raises(UserError, match=f"{name}: the batch has this field, but the encoder"):
            encode_batch(other, {"token_ids": TOKENS, name: BACKWARD})


def test_paths_of_all_variables():
    expected = ["encoder/embeddings/token_embedding/table", "encoder/embeddings/query_start"]
    for i in range(2):
        for layer in ["query_key_value", "position_key", "output"]:
            expected.append(f"encoder/layer_{i}/attention/{layer}/kernel")
        for bias in ["content_bias", "position_bias", "segment_bias"]:
            expected.append(f"encoder/layer_{i}/attention/biases/{bias}")
        expected.append(f"encoder/layer_{i}/attention/segment_embedding")
        for layer in ["feed_forward/inner", "feed_forward/outer"]:
            expected += [f"encoder/layer_{i}/{layer}/{name}" for name in ("kernel", "bias")]
        for layer in ["attention_norm", "feed_forward_norm"]:
            expected += [f"encoder/layer_{i}/{layer}/{name}" for name in ("scale", "offset")]
    assert sorted(v.path for v in make().weights) == sorted(expected)
    tied = make(untie_biases=False, segment_types=0, query_stream=False, pooler=True)
    paths = {v.path for v in tied.variables}
    assert {p for p in paths if "bias" in p and "layer_" not in p} == {
        "encoder/biases/content_bias",
        "encoder/biases/position_bias",
        "encoder/pooler/bias",
    }
    assert not [p for p in paths if "segment" in p or "attention/biases" in p or "query_start" in p]


def count(**sizes):
    """Parameters of an encoder, without making them."""
    with keras_private.uninitialized_variables():
        encoder = transformer_xl.Encoder(TransformerXLConfig(vocab_size=32000, **sizes))
        encoder.build()
        return sum(int(np.prod(v.shape)) for v in encoder.weights)


def test_parameter_counts_are_the_published_ones():
    assert count() == 116_718_336
    large = {"hidden_size": 1024, "num_layers": 24, "num_heads": 16, "intermediate_size": 4096}
    assert count(**large) == 360_268_800


def test_initial_weights_are_a_function_of_seed_and_name():
    def weights(**options):
        encoder = transformer_xl.Encoder(SMALL, **options)
        encoder.build()
        return {v.path.split("/", 1)[1]: v.numpy() for v in encoder.weights}

    first, again = weights(seed=1), weights(seed=1)
    others = [weights(seed=2), weights(seed=1, name="generator")]
    drawn = ("kernel", "table", "query_start", "segment_embedding", "_bias")
    for path in first:
        np.testing.assert_array_equal(first[path], again[path])
        if path.endswith(drawn):
            assert 0 < np.abs(first[path]).max() <= 0.1  # five deviations
            assert not any(np.isin(first[path], other[path]).any() for other in others)
        else:
            constant = 1.0 if path.endswith("scale") else 0.0
            np.testing.assert_array_equal(first[path], np.full_like(first[path], constant))


@pytest.mark.slow
def test_dropout_is_seeded_and_off_without_draws():
    rates = ("dropout", "attention_dropout", "inner_dropout")
    plain = make(**dict.fromkeys(rates, 0.0))
    for rate in rates:
        encoder = make(**{**dict.fromkeys(rates, 0.0), rate: 0.3})
        for name in ("sequence_output", "query_output"):
            expected = run(plain, **QUERIES)[name]
            np.testing.assert_array_equal(run(encoder, **QUERIES)[name], expected)
            first, again, other = (
                run(encoder, rng=Draws(pair), **QUERIES)[name].numpy()
                for pair in [(1, 2), (1, 2), (1, 2 + 65536)]
            )
            np.testing.assert_array_equal(first, again)
            assert not np.allclose(first, other)
            assert not np.allclose(first, expected)


def test_a_graph_that_predicts_leaves_the_last_content_rows_out():
    encoder = make("float32", num_layers=1, memory_length=0)

    def flops(name):
        asked = tf.function(lambda: run(encoder, **QUERIES)[name])
        graph = asked.get_concrete_function().graph
        wanted, seen = [o.op for o in graph.outputs], set()
        while wanted:
            op = wanted.pop()
            if op not in seen:
                seen.add(op)
                wanted += [i.op for i in op.inputs]
        products = [op for op in seen if op.type == "MatMul"]
        return sum(np.prod(op.outputs[0].shape) for op in products)

    assert flops("query_output") < flops("sequence_output")


def test_batch_and_length_may_be_dynamic():
    encoder = make(pooler=True, clamp_length=2)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    def encode_any(tokens, real):
        return encoder(tokens, attention_mask=masks.padding(real))

    for rows, length in [(1, 2), (2, 7), (2, 3)]:
        tokens, real = TOKENS[:rows, :length], PADDING[:rows, :length].astype("int32")
        expected = encoder(tokens, attention_mask=masks.padding(real))
        actual = encode_any(tokens, real)
        for name, value in expected.items():
            np.testing.assert_allclose(
                tf.cast(actual[name], tf.float32), tf.cast(value, tf.float32), atol=1e-5
            )


def test_float64_is_float64_from_end_to_end():
    encoder = make("float64")
    options = {**QUERIES, "backward": BACKWARD, "rng": Draws((1, 2)), **memory_of(encoder)}
    outputs = run(encoder, output_all=True, **options)
    slots = outputs.pop("memory_mask")
    assert slots.dtype == tf.bool
    assert {x.dtype for x in tf.nest.flatten(outputs)} == {tf.float64}

    @tf.function
    def both():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(run(encoder, **options)["query_output"])
        return tape.gradient(loss, [v.value for v in encoder.trainable_variables[:5]])

    for op in both.get_concrete_function().graph.get_operations():
        assert tf.float32 not in [x.dtype for x in op.outputs], op.name


def test_mixed_bfloat16_keeps_sums_in_float32():
    encoder, exact = make("mixed_bfloat16"), make("float32")
    options = {**QUERIES, **memory_of(encoder, "float32")}
    outputs = run(encoder, output_all=True, **options)
    assert {v.dtype for v in encoder.weights} == {"float32"}
    for name in ("sequence_output", "query_output", "memory"):
        assert outputs[name].dtype == tf.bfloat16
        error = tf.cast(outputs[name], tf.float32) - run(exact, **options)[name]
        assert tf.sqrt(tf.reduce_mean(error**2)) < 0.03
    for weights in (*outputs["attentions"], *outputs["query_attentions"]):
        assert weights.dtype == tf.float32
        np.testing.assert_allclose(tf.reduce_sum(weights, -1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_heads": 5}, "num_heads: 5 heads do not divide hidden_size 12: set head_size"),
        ({"hidden_size": 9}, "hidden_size: 9 is odd"),
        ({"activation": "swish"}, "activation: 'swish' is not one of gelu, gelu_tanh, relu"),
        ({"attention": "both"}, "attention: 'both' is not one of bi, uni"),
        ({"pooled_position": "mean"}, "pooled_position: 'mean' is not one of last, first"),
        (
            {"attention": "uni", "pooled_position": "first"},
            "pooled_position: with attention: uni the position first attends only to itself",
        ),
        ({"segment_types": 1}, "segment_types: 1 is not one of 0, 2"),
        ({"dropout": 1.0}, r"dropout: 1.0 is not in \[0, 1\)"),
        ({"attention_dropout": -0.1}, r"attention_dropout: -0.1 is not in \[0, 1\)"),
        ({"inner_dropout": 2.0}, r"inner_dropout: 2.0 is not in \[0, 1\)"),
        ({"num_layers": 0}, "num_layers: 0 is less than 1"),
        ({"head_size": 0}, "head_size: 0 is less than 1"),
        ({"memory_length": -1}, "memory_length: -1 is negative"),
        ({"clamp_length": -1}, "clamp_length: -1 is negative"),
        ({"reuse_length": -1}, "reuse_length: -1 is negative"),
        (
            {"same_length": True},
            "same_length: only supported with attention: uni and a memory_length",
        ),
        (
            {"same_length": True, "attention": "uni", "memory_length": 0},
            "same_length: only supported with attention: uni and a memory_length",
        ),
        (
            {"memory_length": 0, "reuse_length": 3},
            "reuse_length: not supported without memory_length: set it",
        ),
    ],
)
def test_config_errors(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **changes)


def test_use_errors():
    with pytest.raises(UserError, match="encoder.vocab_size: not set"):
        transformer_xl.Encoder(TransformerXLConfig())
    encoder = make()
    with pytest.raises(UserError, match=r"token_ids: expected \[B, T\], got shape \(3,\)"):
        encoder(np.zeros((3,), "int32"))
    with pytest.raises(UserError, match=r"attention_mask: .* got \(2, 7\); masks.padding makes"):
        encoder(TOKENS, attention_mask=PADDING)
    with pytest.raises(UserError, match=r"memory: expected \[B, 2, 5, 12\], got shape \(2, 2, 4"):
        encoder(TOKENS, memory=np.zeros((2, 2, 4, 12), "float32"))
    with pytest.raises(UserError, match="memory: given, and encoder.memory_length is 0: set it"):
        make(memory_length=0)(TOKENS, memory=np.zeros((2, 2, 4, 12), "float32"))
    with pytest.raises(UserError, match="a cache needs .*: set encoder.attention: uni"):
        encoder.empty_cache(2, 9)
    with pytest.raises(UserError, match="query_positions: given without permutation_mask, so"):
        encoder(TOKENS, query_positions=PLACES)
    with pytest.raises(UserError, match="query_positions: given, and encoder.query_stream is fal"):
        make(query_stream=False)(TOKENS, **QUERIES)
