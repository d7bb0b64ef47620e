"""The generator: what it shares, what it fills in, and what reaches it."""

import dataclasses
import math
import types

import numpy as np
import pytest
import tensorflow as tf

from official.config.encoders import TransformerConfig
from official.config.objectives import SHARED, GeneratorConfig, MaskedLMConfig, ReplacedTokensConfig
from official.modeling.encoders.inputs import encode
from official.modeling.layers import gather
from official.modeling.layers.random import Draws
from official.modeling.model import Model
from official.modeling.objectives import masked_lm, replaced_tokens
from official.utils.errors import UserError

ENCODER = TransformerConfig(
    vocab_size=13,
    hidden_size=12,
    num_layers=2,
    num_heads=3,
    intermediate_size=24,
    max_positions=8,
    pooler=False,
    dropout=0.0,
    attention_dropout=0.0,
    initializer_range=0.5,
)
MASK = 4
IDS = np.array([[1, 5, 6, 7, 8, 2, 0, 0], [1, 9, 10, 11, 12, 5, 6, 2]], "int32")
MASKED = IDS.copy()
MASKED[0, 2] = MASKED[1, 1] = MASKED[1, 6] = MASK  # and position 4 of the second row is kept
BATCH = {
    "token_ids": MASKED,
    "segment_ids": np.array([[0] * 8, [0] * 4 + [1] * 4], "int32"),
    "padding_mask": IDS > 0,
    "example_weights": np.ones(2, "float32"),
    "masked_positions": np.array([[2, 0, 0], [1, 4, 6]], "int32"),
    "masked_ids": np.array([[6, 0, 0], [9, 12, 6]], "int32"),
    "masked_weights": np.array([[1, 0, 0], [1, 1, 1]], "float32"),
    "row_seeds": np.array([[1, 2], [-3, 4]], "int32"),
}
CHOSEN = np.zeros((2, 8), bool)
CHOSEN[0, 2] = CHOSEN[1, 1] = CHOSEN[1, 4] = CHOSEN[1, 6] = True
THIRD = GeneratorConfig(size=1 / 3)


def make(*objectives, dtype="float64", encoder=ENCODER, seed=0):
    config = types.SimpleNamespace(seed=seed, encoder=encoder, objectives=objectives)
    return Model(config, dtype=dtype)


def tensors(batch=BATCH):
    return {name: tf.constant(value) for name, value in batch.items()}


def own(model):
    """Paths of the generator that are not the encoder's."""
    return {path for path in model.variables_by_path() if path.startswith("generator/")}


EMBEDDINGS = {
    "generator/encoder/embeddings/" + path
    for path in (
        "token_embedding/table", "position_embedding/table", "segment_embedding/table",
        "norm/scale", "norm/offset",
    )
}  # fmt: skip
PROJECTION = {f"generator/encoder/embeddings/projection/{name}" for name in ("kernel", "bias")}
HEAD = {
    "generator/masked_lm/" + path
    for path in (
        "transform/kernel", "transform/bias", "norm/scale", "norm/offset", "output_bias",
    )
}  # fmt: skip


@pytest.mark.parametrize(
    "sharing, expected",
    [
        ("none", EMBEDDINGS),
        ("token", EMBEDDINGS - {"generator/encoder/embeddings/token_embedding/table"} | PROJECTION),
        ("embeddings", PROJECTION),
    ],
)
def test_what_is_shared_is_one_variable(sharing, expected):
    model = make(GeneratorConfig(size=1 / 3, sharing=sharing), ReplacedTokensConfig())
    blocks = {path for path in own(model) if "/layer_" in path}
    assert len(blocks) == 2 * 12 and own(model) - blocks == HEAD | expected
    ours, theirs = model.objectives[0].generator.embeddings, model.encoder.embeddings
    for part, actual in (("token", "table"), ("position", "table"), ("norm", "scale")):
        same = getattr(getattr(ours, part), actual) is getattr(getattr(theirs, part), actual)
        assert same == (part in SHARED[sharing])
    assert len({id(v) for v in model.trainable_variables}) == len(model.trainable_variables)


def test_everything_shared_is_the_encoder_itself():
    model = make(GeneratorConfig(size=1.0, sharing="all"), ReplacedTokensConfig())
    assert model.objectives[0].generator is model.encoder
    assert own(model) == HEAD


def test_sizes_are_shares_of_the_encoders():
    base = dataclasses.replace(
        ENCODER, hidden_size=768, num_heads=12, intermediate_size=3072, num_layers=12
    )
    actual = THIRD.network(base)
    assert (actual.hidden_size, actual.num_heads, actual.intermediate_size) == (256, 4, 1024)
    assert (actual.num_layers, actual.embedding_size, actual.pooler) == (12, 768, False)
    small = dataclasses.replace(base, embedding_size=128)
    assert GeneratorConfig().network(small).embedding_size == 128
    alone = GeneratorConfig(sharing="none", num_layers=3)
    assert alone.network(small).embedding_size == 32
    assert alone.network(base).embedding_size == 192
    assert alone.network(base).num_layers == 3


def test_initial_weights_are_not_those_of_the_encoder():
    model = make(GeneratorConfig(size=1.0, sharing="none"))
    v = model.variables_by_path()
    kernel = "layer_0/feed_forward/inner/kernel"
    assert not np.allclose(v[f"generator/encoder/{kernel}"], v[f"encoder/{kernel}"])


@pytest.mark.parametrize("sharing, size", [("embeddings", 1 / 3), ("none", 2 / 3), ("all", 1.0)])
def test_masked_positions_are_filled_and_nothing_else(sharing, size):
    model = make(GeneratorConfig(size=size, sharing=sharing))
    drawn = set()
    prepare = tf.function(model.prepare)
    for seed in range(20):
        seeds = tf.constant([[seed, 2], [seed, 4]])
        actual = prepare({**tensors(), "row_seeds": seeds})
        np.testing.assert_array_equal(actual["original_ids"], IDS)
        np.testing.assert_array_equal(actual["masked"], CHOSEN)
        token_ids = actual["token_ids"].numpy()
        np.testing.assert_array_equal(token_ids[~CHOSEN], IDS[~CHOSEN])
        # A draw that is the original counts as original, and the kept token was filled as well.
        np.testing.assert_array_equal(actual["replaced"], token_ids != IDS)
        drawn.add(tuple(token_ids[CHOSEN]))
    assert len(drawn) > 10
    hits = [d[i] == IDS[CHOSEN][i] for d in drawn for i in range(4)]
    assert any(hits) and not all(hits)


def test_the_generator_reads_the_masked_text_and_scores_like_masked_lm():
    model = make(THIRD)
    objective = model.objectives[0]
    prepared = model.prepare(BATCH)
    hidden = encode(objective.generator, tensors())["sequence_output"]
    np.testing.assert_allclose(
        hidden,
        objective.generator(
            MASKED,
            BATCH["segment_ids"],
            BATCH["padding_mask"][:, None, None, :],
        )["sequence_output"],
    )
    # The same head and the same table, put together as the masked-LM objective does it.
    head = masked_lm.MaskedLM(MaskedLMConfig(), objective.network, dtype="float64")
    head.build()
    for a, b in zip(head.variables, objective.head.variables, strict=True):
        a.assign(b)
    expected = head.terms(BATCH, {"sequence_output": hidden}, model.encoder)
    actual = objective.terms(prepared, None, model.encoder)
    np.testing.assert_allclose(actual.losses["generator"], expected.losses["masked_lm"])
    np.testing.assert_allclose(
        actual.metrics["generator_accuracy"], expected.metrics["masked_lm_accuracy"]
    )
    np.testing.assert_allclose(model.weight_sums(BATCH)["generator"], 4)
    assert model.term_weights == {"generator": 1.0}


def test_draws_follow_the_softmax():
    logits = np.random.default_rng(0).standard_normal((1, 5)) * 1.5
    count = 40_000
    seeds = np.stack([np.arange(40), np.arange(40) % 3], axis=1).astype("int32")
    rows = np.broadcast_to(logits, (40, count // 40, 5)).astype("float32")
    drawn = tf.function(replaced_tokens.sample)(rows, seeds).numpy()
    expected = np.exp(logits[0]) / np.exp(logits[0]).sum() * count
    actual = np.bincount(drawn.ravel(), minlength=5)
    assert ((actual - expected) ** 2 / expected).sum() < 18.5  # chi-square, 4 degrees: p = 0.001


@pytest.mark.parametrize("size", [2, 5, 1000, 30522])
def test_draws_of_every_part_of_a_vocabulary(size):
    """The tokens that can be drawn stand alone: at both ends, and where blocks end and begin."""
    logits = np.full((3, size), -1e4, "float32")
    width = math.isqrt(size - 1) + 1
    tokens = [0, size - 1, min(width, size - 1)]
    logits[np.arange(3), tokens] = [80.0, -80.0, 0.0]
    rows = np.broadcast_to(logits[:, None], (3, 50, size))
    drawn = replaced_tokens.sample(rows, np.arange(6, dtype="int32").reshape(3, 2)).numpy()
    np.testing.assert_array_equal(drawn, np.broadcast_to(np.array(tokens)[:, None], (3, 50)))


def test_draws_of_a_large_vocabulary_follow_the_softmax():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal(3000) * 2
    rows = np.broadcast_to(logits.astype("float32"), (20, 1000, 3000))
    seeds = rng.integers(0, 2**31, (20, 2)).astype("int32")
    drawn = replaced_tokens.sample(rows, seeds).numpy().ravel()
    chances = np.exp(logits) / np.exp(logits).sum()
    # Sixty bins of tokens: those of a block of 55 are in several bins.
    bins = np.arange(3000) % 60
    expected = np.bincount(bins, weights=chances) * len(drawn)
    actual = np.bincount(bins[drawn], minlength=60)
    assert ((actual - expected) ** 2 / expected).sum() < 98.3  # 59 degrees: p = 0.001


def test_temperature():
    sharp = make(dataclasses.replace(THIRD, temperature=1e-4))
    actual = sharp.prepare(BATCH)
    best = actual["generator_logits"].numpy().argmax(-1).reshape(2, 3)
    assert actual["token_ids"][0, 2] == best[0, 0]
    np.testing.assert_array_equal(actual["token_ids"].numpy()[1, [1, 4, 6]], best[1])


def test_a_row_draws_the_same_in_any_company():
    logits = np.random.default_rng(0).standard_normal((6, 7, 50)).astype("float32")
    seeds = np.arange(12, dtype="int32").reshape(6, 2)
    whole = replaced_tokens.sample(logits, seeds).numpy()
    np.testing.assert_array_equal(replaced_tokens.sample(logits[2:4], seeds[2:4]), whole[2:4])
    # XLA has a generator of its own, of which the same holds.
    compiled = tf.function(replaced_tokens.sample, jit_compile=True)
    part = compiled(logits[2:4], seeds[2:4])
    np.testing.assert_array_equal(part, compiled(logits, seeds)[2:4])
    assert (replaced_tokens.sample(logits, seeds + 1).numpy() != whole).any(axis=1).all()


def gradients(model, term):
    with tf.GradientTape() as tape:
        losses, _ = model.terms(model.prepare(tensors()))
    values = {path: v.value for path, v in model.variables_by_path().items()}
    return tape.gradient(losses[term], values)


@pytest.mark.parametrize("sharing", ["none", "embeddings"])
def test_the_encoders_loss_does_not_reach_the_generator(sharing):
    model = make(GeneratorConfig(size=1 / 3, sharing=sharing), ReplacedTokensConfig())
    for path, gradient in gradients(model, "replaced_tokens").items():
        assert (gradient is None) == path.startswith("generator/"), path
    table = "encoder/embeddings/token_embedding/table"
    of_generator = gradients(model, "generator")
    assert (of_generator[table] is None) == (sharing == "none")
    reached = {path for path, gradient in of_generator.items() if gradient is not None}
    assert own(model) <= reached and not [p for p in reached if p.startswith("encoder/layer")]


def test_gather_place():
    actual = gather.place(
        tf.constant([[5, 7, 0, 1], [2, 3, 4, 0]]), tf.constant([[2, 0, 0, 2], [1, 3, 0, 0]]), 4
    )
    np.testing.assert_array_equal(actual, [[7, 0, 6, 0], [4, 2, 0, 3]])


def test_dropout_is_drawn_in_training_alone():
    model = make(THIRD, encoder=dataclasses.replace(ENCODER, dropout=0.5))
    scores = [
        model.prepare(BATCH, rng)["generator_logits"].numpy()
        for rng in (None, None, Draws((1, 2)), Draws((1, 2)), Draws((1, 3)))
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[2], scores[3])
    assert not np.allclose(scores[1], scores[2]) and not np.allclose(scores[3], scores[4])


def test_errors():
    for options, message in [
        ({"sharing": "tables"}, "sharing: 'tables' is not one of none, token, embeddings, all"),
        ({"size": 0.0}, "size: 0.0 is not above 0"),
        ({"num_layers": 0}, "num_layers: 0 is less than 1"),
        ({"temperature": 0.0}, "temperature: 0.0 is not above 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            GeneratorConfig(**options)
    for sharing in ("token", "embeddings"):
        with pytest.raises(UserError) as caught:
            make(GeneratorConfig(size=2.0, sharing=sharing))
        assert (
            "generator: size: 2.0 makes it 24 wide, wider than the encoder, 12, whose tables it "
            f"has with sharing: {sharing}: set size to at most 1.0, or sharing to none"
        ) in str(caught.value)
    make(GeneratorConfig(size=2.0, sharing="none"))
    for options, message in [
        (
            {"size": 0.5},
            "generator: size: 0.5 makes its hidden_size 6, and with sharing: all it is the encoder "
            "itself, whose hidden_size is 12: set size to 1.0 and remove num_layers",
        ),
        (
            {"size": 1.0, "num_layers": 1},
            "generator: num_layers: 1 makes its num_layers 1, .* whose num_layers is 2",
        ),
    ]:
        with pytest.raises(UserError, match=message):
            make(GeneratorConfig(sharing="all", **options))
    with pytest.raises(UserError, match="generator: size: 0.6 of the encoder: num_heads: 2 heads"):
        make(GeneratorConfig(size=0.6))
