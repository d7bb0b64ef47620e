"""All-tokens MLM against a loop, Replace MLM behind a generator, the enhanced mask decoder."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.encoders import TransformerConfig
from official.config.objectives import AllTokensLMConfig, MaskedLMConfig
from official.config.parts import ResolvedConfig
from official.conversion import huggingface
from official.conversion.heads import name_of
from official.modeling import weight_counts
from official.modeling.layers.random import Draws
from official.modeling.model import Model
from official.utils.errors import UserError
from tests import CONFIGS, small
from tests.official.modeling.encoders.test_transformer import modern
from tests.official.modeling.objectives.test_replaced_tokens import BATCH, IDS, THIRD, make, tensors

ENCODER = TransformerConfig(
    vocab_size=13, hidden_size=12, num_layers=2, num_heads=3, intermediate_size=24,
    max_positions=8, pooler=False, dropout=0.0, attention_dropout=0.0, positions="none",
    segment_types=0, initializer_range=0.4, activation="relu",
)  # fmt: skip


@pytest.mark.parametrize("example_weights", [[1, 1], [0, 1]])
def test_copying_and_writing_share_the_chance(example_weights):
    batch = {**BATCH, "example_weights": np.array(example_weights, "float32")}
    model = make(THIRD, AllTokensLMConfig(weight=2.0))
    objective = model.objectives[1]
    rng = np.random.default_rng(1)
    for variable in objective.variables:
        variable.assign(rng.standard_normal(variable.shape))
    v = {path: x.numpy() for path, x in model.variables_by_path().items()}
    prepared = model.prepare(batch)
    hidden = model.encode(prepared)["sequence_output"].numpy()
    loss, of_replaced = 0.0, []
    for b in range(2):
        for t in np.flatnonzero(IDS[b]):
            logits = objective.logits(hidden[b, t][None], model.encoder).numpy()[0]
            softmax = np.exp(logits) / np.exp(logits).sum()
            copy = hidden[b, t] @ v["all_tokens_lm/copy/kernel"] + v["all_tokens_lm/copy/bias"]
            copy = 1 / (1 + np.exp(-copy[0]))
            chances = (1 - copy) * softmax
            chances[prepared["token_ids"][b, t]] += copy
            np.testing.assert_allclose(chances.sum(), 1)
            loss -= example_weights[b] * np.log(chances[IDS[b, t]])
            if prepared["token_ids"][b, t] != IDS[b, t] and example_weights[b]:
                of_replaced.append(-np.log(chances[IDS[b, t]]))
    losses, metrics = model.terms(prepared)
    np.testing.assert_allclose(losses["all_tokens_lm"], loss)
    np.testing.assert_allclose(
        metrics["all_tokens_lm_replaced"], (sum(of_replaced), len(of_replaced))
    )
    real = (IDS > 0).sum(1) @ example_weights
    np.testing.assert_allclose(model.weight_sums(batch)["all_tokens_lm"], real)
    assert model.term_weights["all_tokens_lm"] == 2.0
    assert objective.config.needs() <= {"padding_mask"} | THIRD.gives()


def test_the_enhanced_mask_decoder_runs_the_last_layer_twice_in_the_order_of_the_release():
    config = types.SimpleNamespace(
        seed=0, encoder=ENCODER, objectives=[MaskedLMConfig(enhanced_mask_decoder=True)]
    )
    model = Model(config, dtype="float64")
    values = {path: v.numpy() for path, v in model.variables_by_path().items()}
    table = values["masked_lm/position_embedding/table"]
    assert table.shape == (8, 12) and table.std() > 0.1
    ids = np.array([[1, 5, 4, 7, 8, 4, 2, 0], [1, 9, 4, 11, 12, 5, 6, 2]], "int32")
    batch = {
        "token_ids": tf.constant(ids),
        "padding_mask": tf.constant(ids > 0),
        "masked_positions": tf.constant([[2, 5, 0], [2, 6, 1]]),
        "masked_ids": tf.constant([[6, 9, 0], [3, 6, 9]]),
        "masked_weights": tf.constant([[1.0, 1, 0], [1, 1, 1]]),
    }
    states = model.encode(batch, output_all=True)["hidden_states"]
    layer = "encoder/layer_1"

    def norm(x, name):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * values[f"{layer}/{name}/scale"] + values[f"{layer}/{name}/offset"]

    def affine(x, name):
        return x @ values[f"{layer}/{name}/kernel"] + values[f"{layer}/{name}/bias"]

    def last_layer(queries, inputs, real):
        q = np.split(affine(queries, "attention/query_key_value"), 3, axis=-1)[0]
        _, k, v = np.split(affine(inputs, "attention/query_key_value"), 3, axis=-1)
        context = np.empty_like(queries)
        for head in (slice(0, 4), slice(4, 8), slice(8, 12)):
            scores = np.where(real, q[:, head] @ k[:, head].T / 2, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            context[:, head] = weights @ v[:, head] / weights.sum(-1, keepdims=True)
        x = norm(queries + affine(context, "attention/output"), "attention_norm")
        inner = np.maximum(affine(x, "feed_forward/inner"), 0)
        return norm(x + affine(inner, "feed_forward/outer"), "feed_forward_norm")

    head = model.objectives[0]
    encoded = model.encode_as_read(batch)
    (read,) = head.states_read(batch, encoded)
    every = head.states(batch, model.encoder).numpy()
    for b in range(2):
        inputs, real = states[1][b].numpy(), ids[b] > 0
        first = last_layer(inputs + table, inputs, real)
        wanted = last_layer(first, inputs, real)
        np.testing.assert_allclose(every[b][real], wanted[real], rtol=1e-8)
        positions = batch["masked_positions"][b].numpy()
        np.testing.assert_allclose(read[b], wanted[positions], rtol=1e-8)
        assert np.abs(states[2][b].numpy() - wanted)[real].max() > 0.1
    # In rows with several texts, positions begin anew.
    moved = {**batch, "positions": tf.constant([[*range(4), *range(4)]] * 2)}
    other = head.read_offsets(moved).numpy()
    np.testing.assert_allclose(other[0], table[[2, 1, 0]])
    np.testing.assert_allclose(other[1], table[[2, 2, 1]])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"encoder__norm": "pre"}, "enhanced_mask_decoder: only supported for encoder.type: trans"),
        (
            {"objectives": [
                {"type": "masked_lm", "enhanced_mask_decoder": True}, {"type": "sentence_pair"},
            ]},
            "enhanced_mask_decoder: other objectives would read a different last layer",
        ),
    ],
)  # fmt: skip
def test_what_the_enhanced_mask_decoder_does_not_go_with(changes, message):
    decoder = {"objectives": [{"type": "masked_lm", "enhanced_mask_decoder": True}]}
    with pytest.raises(UserError, match=message):
        small.config(**{**decoder, **changes})


@pytest.mark.parametrize(
    "sizes, published",
    [
        ((768, 22, 12, 1152), 149_655_232),
        ((1024, 28, 16, 2624), 395_881_664),
        ((256, 7, 4, 384), 16_913_600),
    ],
    ids=["ModernBERT base", "large", "Ettin 17M"],
)
def test_a_modern_bert_with_its_head_has_the_published_number_of_weights(sizes, published):
    encoder = TransformerConfig(**modern(*sizes))
    config = ResolvedConfig(name="m", encoder=encoder, objectives=(MaskedLMConfig(),))
    assert weight_counts.count(config).total == published


def test_a_neobert_has_the_published_number_of_weights():
    config = ResolvedConfig.of(configs.load(CONFIGS / "pretrain" / "neobert.yaml"))
    counts = weight_counts.count(config)
    assert (counts.encoders["encoder"], counts.total) == (221_665_536, 245_136_954)
    assert counts.heads == {"masked_lm": 30522 * 768 + 30522}


@pytest.mark.parametrize(
    "embedding_size, form", [(None, "linear"), (6, "linear"), (None, "kernel")]
)
def test_a_linear_head_by_a_loop(embedding_size, form):
    encoder = dataclasses.replace(ENCODER, embedding_size=embedding_size, initializer="uniform")
    config = types.SimpleNamespace(
        seed=0, encoder=encoder, objectives=[MaskedLMConfig(weight=3.0, form=form)]
    )
    model = Model(config, dtype="float64")
    (head,) = model.objectives
    bias = np.linspace(-1, 1, 13) if form == "linear" else np.zeros(13)
    v = {path: x.numpy() for path, x in model.variables_by_path().items()}
    names = {path for path in v if path.startswith("masked_lm/")}
    if form == "linear":
        head.output_bias.assign(bias)
        names.remove("masked_lm/output_bias")
    assert names == {"masked_lm/output/kernel"}
    kernel = v["masked_lm/output/kernel"]
    assert kernel.shape == (12, 13) and 0.35 < np.abs(kernel).max() < 0.4
    assert kernel.std() == pytest.approx(0.4 / 3**0.5, rel=0.1)
    batch = {
        "token_ids": tf.constant([[1, 5, 4, 7, 2, 0], [1, 9, 4, 4, 12, 2]]),
        "padding_mask": tf.constant([[1, 1, 1, 1, 1, 0], [1] * 6]) > 0,
        "masked_positions": tf.constant([[2, 0], [3, 2]]),
        "masked_ids": tf.constant([[6, 0], [3, 9]]),
        "masked_weights": tf.constant([[1.0, 0], [1, 1]]),
        "example_weights": tf.constant([2.0, 1]),
    }
    hidden = model.encode(batch)["sequence_output"].numpy()
    loss, hits = 0.0, 0.0
    for b, t, token, weight in ((0, 2, 6, 2), (1, 3, 3, 1), (1, 2, 9, 1)):
        scores = hidden[b, t] @ kernel + bias
        loss += weight * (np.log(np.exp(scores).sum()) - scores[token])
        hits += weight * (scores.argmax() == token)
    losses, metrics = model.terms(batch)
    np.testing.assert_allclose(losses["masked_lm"], loss)
    np.testing.assert_allclose(metrics["masked_lm_accuracy"], (hits, 4))
    # The token table learns from what is read alone.
    with tf.GradientTape() as tape:
        total = model.terms(batch)[0]["masked_lm"]
    gradient = tf.convert_to_tensor(tape.gradient(total, model.encoder.token_table.table.value))
    read = np.flatnonzero(np.abs(gradient).sum(1))
    assert set(read) == {1, 2, 4, 5, 7, 9, 12}


def test_what_a_linear_head_does_not_go_with():
    linear = [{"type": "masked_lm", "form": "linear"}]
    config = ResolvedConfig.of(small.config(objectives=linear, encoder__pooler=False))
    heads = [name_of(objective) for objective in config.objectives]
    with pytest.raises(UserError, match="has the heads linear_masked_lm. To write only the"):
        huggingface.SYSTEMS["bert"].huggingface_config(config, heads)
    with pytest.raises(UserError, match="form: 'twice'"):
        small.config(objectives=[{"type": "masked_lm", "form": "twice"}])
    with pytest.raises(UserError, match="form.*unknown|unknown.*form"):
        small.config(objectives=[{"type": "generator", "form": "linear"}])


def test_scores_that_are_far_apart_stay_finite():
    model = make(THIRD, AllTokensLMConfig(), dtype="float32")
    for sign in (1, -1):
        model.objectives[1].copy.bias.assign([sign * 1e4])
        with tf.GradientTape() as tape:
            loss = model.terms(model.prepare(tensors()))[0]["all_tokens_lm"]
        gradient = tape.gradient(loss, model.objectives[1].copy.bias.value)
        assert np.isfinite(loss) and np.isfinite(gradient).all()


def test_masked_lm_behind_a_generator_reads_draws_in_place_of_masks():
    model = make(THIRD, MaskedLMConfig())
    prepared = model.prepare(BATCH)
    losses, _ = model.terms(prepared)
    encoded = model.encode({**BATCH, "token_ids": prepared["token_ids"]})
    expected = model.objectives[1].terms(BATCH, encoded, model.encoder).losses["masked_lm"]
    np.testing.assert_allclose(losses["masked_lm"], expected)
    assert set(losses) == {"generator", "masked_lm"}


@pytest.mark.slow
@pytest.mark.long
def test_a_step_with_masked_lm_behind_a_generator_compiles():
    model = make(THIRD, MaskedLMConfig(), dtype="float32")

    @tf.function(jit_compile=True)
    def step(batch):
        with tf.GradientTape() as tape:
            losses, _ = model.terms(model.prepare(batch, Draws((1, 2))), Draws((1, 2)))
            loss = tf.add_n(list(losses.values()))
        return tape.gradient(loss, [v.value for v in model.trainable_variables])

    assert all(np.isfinite(gradient).all() for gradient in step(tensors()))
