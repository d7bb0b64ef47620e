"""A generator, the detection of what it replaced, and its adversarial training."""

import dataclasses
import math
import types

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from official.config.encoders import TransformerConfig
from official.config.objectives import SHARED, GeneratorConfig, MaskedLMConfig, ReplacedTokensConfig
from official.distribution.statistics import area_under_curve
from official.modeling.encoders.inputs import encode
from official.modeling.layers import embeddings, kernels
from official.modeling.layers.random import Draws
from official.modeling.model import Model
from official.modeling.objectives import base, masked_lm, replaced_tokens
from official.training import optimizers
from official.utils.errors import UserError
from tests import small
from tests.official.training.test_electra import CORRUPTION

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


GDES = GeneratorConfig(size=1.0, num_layers=1, sharing="gdes")
BASE, DELTA = (
    f"{network}/embeddings/token_embedding/{name}"
    for network, name in (("generator/encoder", "table"), ("encoder", "delta"))
)


def test_disentangled_sharing_separates_the_gradients_of_one_table():
    model = make(GDES, ReplacedTokensConfig())
    variables = model.variables_by_path()
    assert "encoder/embeddings/token_embedding/table" not in variables
    assert len({id(v) for v in model.trainable_variables}) == len(model.trainable_variables)
    assert not [v for v in model.encoder.trainable_variables if v.path.startswith("generator")]
    assert not variables[DELTA].numpy().any() and variables[BASE].numpy().any()
    difference = np.random.default_rng(0).normal(size=(13, 12))
    variables[DELTA].assign(difference)
    table = variables[BASE].numpy() + difference
    token = model.encoder.token_table
    ids = tf.constant(IDS)
    np.testing.assert_allclose(token(ids), table[IDS], rtol=1e-12)
    np.testing.assert_allclose(token.first(3, 2), table[2:5], rtol=1e-12)
    states = np.random.default_rng(1).normal(size=(3, 12))
    np.testing.assert_allclose(token.scores(tf.constant(states)), states @ table.T, rtol=1e-12)
    watched = [variables[BASE].value, variables[DELTA].value]

    def gradients(term):
        with tf.GradientTape() as tape:
            losses, _ = model.terms(model.prepare(tensors()))
            loss = losses[term]
        return [g is not None and np.abs(tf.convert_to_tensor(g)).max() > 0
                for g in tape.gradient(loss, watched)]  # fmt: skip

    assert gradients("generator") == [True, False]
    assert gradients("replaced_tokens") == [False, True]
    # Weight decay, which leaves norms and biases alone, falls on the differences too.
    decayed = optimizers.AdamW(0.1)
    decayed.build(model.trainable_variables)
    assert DELTA in [v.path.removeprefix("model/") for v, decays in zip(
        model.trainable_variables, decayed._decayed, strict=True) if decays]  # fmt: skip
    # Others read the sum, and this model goes on with both.
    arrays = {path: variable.numpy() for path, variable in variables.items()}
    finished = embeddings.finished(arrays)
    assert finished.keys() - arrays.keys() == {"encoder/embeddings/token_embedding/table"}
    np.testing.assert_array_equal(finished["encoder/embeddings/token_embedding/table"], table)
    assert embeddings.finished(finished).keys() == finished.keys()


def test_the_head_of_deberta_adds_the_first_state_of_each_text():
    objective = replaced_tokens.ReplacedTokens(
        ReplacedTokensConfig(form="deberta"), ENCODER, dtype="float64"
    )
    objective.build()
    rng = np.random.default_rng(0)
    for variable in objective.variables:
        variable.assign(rng.normal(size=variable.shape))
    values = {v.path.removeprefix("replaced_tokens/"): v.numpy() for v in objective.variables}
    # 2 H + H² + H + H + 1 weights.
    assert sum(v.size for v in values.values()) == 2 * 12 + 144 + 12 + 12 + 1
    hidden = rng.normal(size=(2, 6, 12))

    def expected(b, i, first):
        x = hidden[b, i] + hidden[b, first]
        x = (x - x.mean()) / np.sqrt(x.var() + ENCODER.norm_epsilon)
        x = x * values["norm/scale"] + values["norm/offset"]
        x = x @ values["transform/kernel"] + values["transform/bias"]
        x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        return (x @ values["output/kernel"] + values["output/bias"])[0]

    actual = objective.logits(tf.constant(hidden), {})
    wanted = [[expected(b, i, 0) for i in range(6)] for b in range(2)]
    np.testing.assert_allclose(actual, wanted, rtol=1e-9)
    # Two texts share the first row; the second row has one text and padding.
    parts = {
        "part_ids": tf.constant([[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 2, 2]]),
        "part_starts": tf.constant([[0, 3], [0, 0]]),
    }
    actual = objective.logits(tf.constant(hidden), parts).numpy()
    np.testing.assert_allclose(actual[0, 3:], [expected(0, i, 3) for i in (3, 4, 5)], rtol=1e-9)
    np.testing.assert_allclose(actual[:, :3], np.array(wanted)[:, :3], rtol=1e-9)
    assert np.abs(actual[0, 3:] - np.array(wanted)[0, 3:]).min() > 1e-3


def test_sizes_are_shares_of_the_encoders():
    base = dataclasses.replace(
        ENCODER, hidden_size=768, num_heads=12, intermediate_size=3072, num_layers=12
    )
    actual = THIRD.network(base)
    assert (actual.hidden_size, actual.num_heads, actual.intermediate_size) == (256, 4, 1024)
    assert (actual.num_layers, actual.embedding_size, actual.pooler) == (12, 768, False)
    assert actual.num_key_value_heads is None
    grouped = dataclasses.replace(base, num_key_value_heads=3)
    assert THIRD.network(grouped).num_key_value_heads == 1
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
    actual = kernels.add_at_positions(
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


def test_errors_of_a_generator():
    for options, message in [
        ({"sharing": "tables"}, "sharing: 'tables' is not one of none, token, embeddings, all, g"),
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
            "generator: size: 0.5 makes its hidden_size 6, but with sharing: all it is the encoder "
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


WEIGHTED = {**BATCH, "example_weights": np.array([1, 1], "float32")}
FILLER = {**BATCH, "example_weights": np.array([0, 1], "float32")}
FILLER["masked_weights"] = BATCH["masked_weights"] * [[0], [1]]


def scores(model, token_ids, batch):
    """The discriminator's scores [2, 8] from its variables, by hand from the hidden states on."""
    v = {path: x.numpy() for path, x in model.variables_by_path().items()}
    hidden = model.encode({**batch, "token_ids": token_ids})["sequence_output"].numpy()
    hidden = hidden @ v["replaced_tokens/transform/kernel"] + v["replaced_tokens/transform/bias"]
    hidden = np.maximum(hidden, 0)
    return (hidden @ v["replaced_tokens/output/kernel"] + v["replaced_tokens/output/bias"])[..., 0]


@pytest.mark.parametrize("tokens", ["all", "masked"])
@pytest.mark.parametrize("batch", [WEIGHTED, FILLER])
def test_the_joint_loss_is_that_of_numpy_on_the_captured_draws(tokens, batch):
    relu = dataclasses.replace(ENCODER, activation="relu")
    model = make(GeneratorConfig(1 / 3), ReplacedTokensConfig(tokens=tokens), encoder=relu)
    rng = np.random.default_rng(1)
    for variable in model.objectives[1].variables:
        variable.assign(rng.standard_normal(variable.shape))
    prepared = model.prepare(batch)
    losses, metrics = model.terms(prepared)
    sums = model.weight_sums(batch)

    token_ids = prepared["token_ids"].numpy()  # captured
    logits = prepared["generator_logits"].numpy().reshape(2, 3, 13)
    weights = batch["masked_weights"] * batch["example_weights"][:, None]
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    of_targets = np.take_along_axis(log_probs, BATCH["masked_ids"][..., None], -1)[..., 0]
    generator_loss = -(of_targets * weights).sum()

    z, labels = scores(model, token_ids, batch), (token_ids != IDS).astype(float)
    probability = 1 / (1 + np.exp(-z))
    each = -(labels * np.log(probability) + (1 - labels) * np.log(1 - probability))
    counted = (IDS > 0) if tokens == "all" else CHOSEN
    counted = counted * batch["example_weights"][:, None]

    np.testing.assert_allclose(losses["generator"], generator_loss)
    np.testing.assert_allclose(losses["replaced_tokens"], (each * counted).sum())
    np.testing.assert_allclose(sums["generator"], weights.sum())
    np.testing.assert_allclose(sums["replaced_tokens"], counted.sum())
    joint = sum(model.term_weights[t] * losses[t] / sums[t] for t in losses)
    expected = generator_loss / weights.sum() + 50 * (each * counted).sum() / counted.sum()
    np.testing.assert_allclose(joint, expected)

    hits = ((z > 0) == labels) * counted
    np.testing.assert_allclose(metrics["replaced_tokens_accuracy"], (hits.sum(), counted.sum()))
    np.testing.assert_allclose(
        metrics["replaced_tokens_rate"], ((labels * counted).sum(), counted.sum())
    )
    positive, negative = metrics["replaced_tokens_auc"]
    np.testing.assert_allclose(sum(positive), (labels * counted).sum())
    np.testing.assert_allclose(sum(negative), ((1 - labels) * counted).sum())


def test_weights_of_the_loss():
    model = make(GeneratorConfig(1 / 3), ReplacedTokensConfig())
    assert model.term_weights == {"generator": 1.0, "replaced_tokens": 50.0}


@pytest.mark.slow
def test_a_step_of_a_generator_that_is_the_encoder_compiles():
    model = make(
        GeneratorConfig(1.0, sharing="all"), ReplacedTokensConfig(), dtype="mixed_bfloat16"
    )

    @tf.function(jit_compile=True)
    def step(batch, pair):
        with tf.GradientTape() as tape:
            rng = Draws(pair)
            losses, _ = model.terms(model.prepare(batch, rng), rng)
            assert {loss.dtype for loss in losses.values()} == {tf.float32}
            loss = tf.add_n(list(losses.values()))
        return tape.gradient(loss, [v.value for v in model.trainable_variables])

    assert all(np.isfinite(g).all() for g in step(tensors(), tf.constant([1, 2])))


def test_the_area_under_the_curve():
    rng = np.random.default_rng(0)
    labels = rng.random(20_000) < 0.15
    logits = rng.standard_normal(20_000) * 2 - 2 + labels * 2
    weights = (rng.random(20_000) < 0.9).astype("float64")
    halves = [
        base.score_histograms(logits[part], labels[part], weights[part])
        for part in (slice(0, 5000), slice(5000, None))
    ]
    positive, negative = (np.sum([h[i] for h in halves], axis=0) for i in range(2))
    expected = roc_auc_score(labels, logits, sample_weight=weights)
    assert 0.6 < expected < 0.9
    np.testing.assert_allclose(area_under_curve(positive, negative), expected, atol=2e-4)


def test_the_area_of_extremes():
    assert area_under_curve([0, 0, 2], [3, 0, 0]) == 1
    assert area_under_curve([2, 0, 0], [0, 0, 3]) == 0
    assert area_under_curve([0, 2, 0], [0, 3, 0]) == 0.5
    assert area_under_curve([0, 0], [3, 1]) == 0.5  # nothing was replaced: nothing to tell apart
    far = base.score_histograms(np.array([-1e9, 1e9]), np.array([0, 1]), np.ones(2))
    assert area_under_curve(*far) == 1


def test_needs():
    plain, masked = (ReplacedTokensConfig(tokens=tokens) for tokens in ("all", "masked"))
    assert plain.needs() == {"padding_mask", "replaced"}
    assert masked.needs() == {
        "padding_mask", "replaced", "masked", "masked_weights",
    }  # fmt: skip
    with pytest.raises(ValueError, match="tokens: 'some' is not one of all, masked"):
        ReplacedTokensConfig(tokens="some")


BASELINE = GeneratorConfig(size=1 / 3, sharing="none", baseline=True, weight=0.0)
ADVERSARIAL = ReplacedTokensConfig(adversarial_weight=2.0)


def randomised():
    model = make(BASELINE, ADVERSARIAL)
    rng = np.random.default_rng(1)
    for objective in model.objectives:
        for variable in objective.variables:
            variable.assign(rng.standard_normal(variable.shape) / 2)
    return model


def test_the_losses_are_those_of_reinforce():
    model = randomised()
    prepared = model.prepare(BATCH)
    losses, _ = model.terms(prepared)
    hidden = model.encode(prepared)["sequence_output"]
    z = model.objectives[1].logits(hidden).numpy()  # [2, 8]
    logits = prepared["generator_logits"].numpy().reshape(2, 3, 13)
    guesses = prepared["baseline_logits"].numpy()
    adversarial = baseline = 0.0
    for b, p in [(0, 0), (1, 0), (1, 1), (1, 2)]:
        position = BATCH["masked_positions"][b, p]
        drawn = prepared["token_ids"][b, position].numpy()
        fake = drawn != BATCH["masked_ids"][b, p]
        chance = 1 / (1 + np.exp(-z[b, position]))  # that it is a fake, says the encoder
        reward = -np.log(chance if fake else 1 - chance)
        softmax = np.exp(logits[b, p]) / np.exp(logits[b, p]).sum()
        expected = 1 / (1 + np.exp(-guesses[b, p]))
        adversarial -= (reward + np.log(expected)) * np.log(softmax[drawn])
        right = np.exp(-reward)
        baseline -= right * np.log(expected) + (1 - right) * np.log(1 - expected)
    np.testing.assert_allclose(losses["adversarial"], adversarial)
    np.testing.assert_allclose(losses["adversarial_baseline"], baseline)
    sums = model.weight_sums(BATCH)
    assert float(sums["adversarial"]) == float(sums["adversarial_baseline"]) == CHOSEN.sum()
    assert model.term_weights == {
        "generator": 0.0, "replaced_tokens": 50.0, "adversarial": 2.0, "adversarial_baseline": 2.0,
    }  # fmt: skip


def test_the_policy_gradient_is_a_score_times_a_surprise():
    """The gradient of one draw's log chance is one-hot minus softmax."""
    model = randomised()
    with tf.GradientTape() as tape:
        prepared = model.prepare(tensors())
        loss = model.terms(prepared)[0]["adversarial"]
    gradient = tape.gradient(loss, prepared["generator_logits"]).numpy().reshape(2, 3, 13)
    logits = prepared["generator_logits"].numpy().reshape(2, 3, 13)
    z = model.objectives[1].logits(model.encode(prepared)["sequence_output"]).numpy()
    position, drawn = 4, prepared["token_ids"][1, 4].numpy()
    sign = 1 if drawn != BATCH["masked_ids"][1, 1] else -1
    surprise = np.log1p(np.exp(-sign * z[1, position]))
    surprise -= np.log1p(np.exp(-prepared["baseline_logits"].numpy()[1, 1]))
    softmax = np.exp(logits[1, 1]) / np.exp(logits[1, 1]).sum()
    np.testing.assert_allclose(gradient[1, 1], -surprise * (np.eye(13)[drawn] - softmax))
    np.testing.assert_allclose(gradient[0, 1:], 0)  # no predictions there


def test_who_learns_from_what():
    model = randomised()
    with tf.GradientTape(persistent=True) as tape:
        losses, _ = model.terms(model.prepare(tensors()))
    paths = model.variables_by_path()
    values = {path: v.value for path, v in paths.items()}

    def reached(term):
        return {p for p, g in tape.gradient(losses[term], values).items() if g is not None}

    baseline = {"generator/baseline/kernel", "generator/baseline/bias"}
    assert reached("adversarial") == own(model) - baseline
    assert reached("adversarial_baseline") == baseline
    assert reached("replaced_tokens") == paths.keys() - own(model)


def test_temperature_is_part_of_the_policy():
    warm = make(GeneratorConfig(size=1 / 3, baseline=True, temperature=3.0), ADVERSARIAL)
    prepared = warm.prepare(BATCH)
    logits = prepared["generator_logits"].numpy().reshape(2, 3, 13) / 3
    drawn = prepared["token_ids"][0, 2].numpy()
    expected = logits[0, 0, drawn] - np.log(np.exp(logits[0, 0]).sum())
    np.testing.assert_allclose(prepared["sample_log_probs"][0, 0], expected)


def test_a_frozen_generator_has_no_trainable_variable_and_no_dropout():
    model = make(GeneratorConfig(size=1.0, sharing="none", frozen=True), ADVERSARIAL_OFF)
    trained = {v.path.removeprefix("model/") for v in model.trainable_variables}
    assert trained == model.variables_by_path().keys() - own(model) and own(model)
    assert model.term_weights == {"generator": 0.0, "replaced_tokens": 50.0}


ADVERSARIAL_OFF = ReplacedTokensConfig()


def test_errors_of_adversarial_training():
    for options, message in [
        ({"sharing": "token", "size": 1.0}, "frozen: with sharing: token the encoder would train"),
        ({"sharing": "none", "size": 0.5}, "frozen: generator and encoder start from the same"),
        ({"sharing": "none", "size": 1.0, "num_layers": 2}, "frozen: generator and encoder start"),
        (
            {"sharing": "none", "size": 1.0, "baseline": True},
            "baseline: not supported for a frozen",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            GeneratorConfig(frozen=True, **options)
    for options, message in [
        ({}, "decoupled: with sharing: embeddings both losses train the shared weights: set"),
        ({"sharing": "gdes", "baseline": True}, "decoupled: with baseline the generator also lear"),
        ({"sharing": "none", "size": 1.0, "frozen": True}, "decoupled: a frozen generator is not"),
    ]:
        with pytest.raises(ValueError, match=message):
            GeneratorConfig(decoupled=True, **options)
    with pytest.raises(ValueError, match="rate_factor: needs decoupled: true: set it, or remove"):
        GeneratorConfig(sharing="gdes", rate_factor=0.5)
    with pytest.raises(ValueError, match="adversarial_weight: -1.0 is negative"):
        ReplacedTokensConfig(adversarial_weight=-1.0)
    with pytest.raises(UserError, match="replaced_tokens needs baseline_logits, sample_log_probs"):
        small.config(
            objectives=[
                {"type": "generator"},
                {"type": "replaced_tokens", "adversarial_weight": 1.0},
            ],
            corruption=CORRUPTION,
        )
    assert THIRD.gives() == {"original_ids", "masked", "replaced"}
    frozen = {"type": "generator", "frozen": True, "size": 1.0, "sharing": "none"}
    with pytest.raises(UserError, match="recipe.init_weights: encoder, but a generator is frozen"):
        small.config(objectives=[frozen], corruption=CORRUPTION)
    with pytest.raises(UserError, match="recipe.init_weights: generator, but no generator is fro"):
        small.config(recipe__init_weights="generator")
    assert BASELINE.type == "generator"
