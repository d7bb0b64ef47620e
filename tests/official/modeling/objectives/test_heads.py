"""Heads that read a mix of all layers, or a BiLSTM: values by hand, penalties, every encoder."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.config import registry
from official.config.compatibility import with_pooler
from official.config.encoders import (
    BilmConfig,
    EncoderDecoderConfig,
    TransformerConfig,
    TransformerXLConfig,
)
from official.config.heads import (
    ClassificationConfig,
    Mix,
    MultiLabelConfig,
    MultipleChoiceConfig,
    RankingConfig,
    RegressionConfig,
    SpanAnswerConfig,
    TokenClassificationConfig,
)
from official.config.objectives import MaskedLMConfig
from official.modeling import weight_counts
from official.modeling.layers.random import Draws
from official.modeling.model import Model
from official.saving import model_folder, warm_start
from official.utils.errors import UserError
from tests import small
from tests.official.modeling.layers.test_lstm import one_direction

SIZES = {"vocab_size": 11, "hidden_size": 8, "num_layers": 2, "num_heads": 2}
BERT = TransformerConfig(**SIZES, intermediate_size=8, max_positions=6)
ENCODERS = {
    "bert": BERT,
    "albert": dataclasses.replace(BERT, layer_groups=1, inner_layers=2),
    "gpt2": dataclasses.replace(BERT, causal=True, norm="pre", pooled_position="last"),
    "xlnet": TransformerXLConfig(**SIZES, intermediate_size=8),
    "t5": EncoderDecoderConfig(**SIZES, intermediate_size=8),
}
RNG = np.random.default_rng(0)
MASK = np.arange(6) < np.array([6, 4, 5, 2])[:, None]
BATCH = {
    "token_ids": RNG.integers(1, 11, (4, 6)).astype("int32"),
    "segment_ids": np.zeros((4, 6), "int32"),
    "padding_mask": MASK,
    "example_weights": np.array([1, 1, 1, 0], "float64"),
    "label": np.array([2, 0, 1, 0], "int32"),
    "score": np.array([0.5, -1.5, 2.0, 9.0]),
}
CHOICES = {name: BATCH[name].reshape(2, 2, 6) for name in ("token_ids", "segment_ids")} | {
    "padding_mask": MASK.reshape(2, 2, 6),
    "text_mask": MASK.reshape(2, 2, 6),
    "answer": np.array([1, 0], "int32"),
    "example_weights": np.array([1, 0.5]),
}
WINDOWS = BATCH | {
    "context_start": np.array([2, 1, 1, 1], "int32"),
    "context_length": np.array([4, 3, 4, 1], "int32"),
    "window_start": np.zeros(4, "int32"),
    "own_start": np.zeros(4, "int32"),
    "own_end": np.full(4, 9, "int32"),
    "answer_start": np.array([1, -1, 0, 0], "int32"),
    "answer_end": np.array([2, -1, 3, 0], "int32"),
}
TAGS = BATCH | {
    "word_ids": np.where(MASK, np.arange(6), -1).astype("int32"),
    "tag_ids": np.where(MASK, np.arange(6) % 3, -1).astype("int32"),
}
TAGGER = TokenClassificationConfig(num_labels=3, mix=Mix())
HEADS = {
    "classification": (ClassificationConfig(num_labels=3, pooling="mean", mix=Mix()), BATCH),
    "regression": (RegressionConfig(pooling="mean", mix=Mix()), BATCH),
    "multiple_choice": (MultipleChoiceConfig(pooling="mean", mix=Mix()), CHOICES),
    "ranking": (RankingConfig(mix=Mix(), bilstm=3), CHOICES),
    "span_answer": (SpanAnswerConfig(mix=Mix()), WINDOWS),
    "token_classification": (TAGGER, TAGS),
    "tag_chains": (dataclasses.replace(TAGGER, crf=True, bilstm=4), TAGS),
    "conditional": (SpanAnswerConfig(mix=Mix(), bilstm=3, form="conditional"), WINDOWS),
}


def make(head, encoder=BERT):
    """Returns a model in float64 with random values in the mix."""
    config = configs.Config("mixed", encoder=encoder, objectives=(head,))
    model = Model(config, dtype="float64")
    mix = model.objectives[0].mix
    if mix is not None:
        mix.layer_weights.assign(np.linspace(-1, 1, mix.count))
        mix.gamma.assign(1.5)
    return model


def mixed_by_hand(states, gamma=1.5):
    """Returns the mix of the weights that `make` sets, without a norm."""
    weights = np.exp(np.linspace(-1, 1, len(states)))
    return gamma * sum(
        w * np.array(x) for w, x in zip(weights / weights.sum(), states, strict=True)
    )


@pytest.mark.parametrize("name", ENCODERS)
def test_head_reads_the_mix_of_every_encoder(name):
    head = ClassificationConfig(num_labels=3, pooling="mean", mix=Mix())
    model = make(head, ENCODERS[name])
    states = model.encode(BATCH, output_all=True)["hidden_states"]
    assert len(states) == {"albert": 5}.get(name, 3)
    objective = model.objectives[0]
    kernel, bias = (v.numpy() for v in objective.output_projection.variables)
    mixed = mixed_by_hand(states)
    pooled = np.stack([row[real].mean(axis=0) for row, real in zip(mixed, MASK, strict=True)])
    logits = pooled @ kernel + bias
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = model.predictions(BATCH)["probabilities"]
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def hidden_by_hand(x, objective, epsilon):
    """The hidden layer of a head: a linear layer, the erf form of GELU, and a layer norm."""
    variables = {v.path.split(f"{objective.name}/")[1]: v.numpy() for v in objective.variables}
    z = x @ variables["transform/kernel"] + variables.get("transform/bias", 0)
    z = z / 2 * (1 + np.vectorize(math.erf)(z / 2**0.5))
    z = z - z.mean(axis=-1, keepdims=True)
    z /= np.sqrt((z**2).mean(axis=-1, keepdims=True) + epsilon)
    return z * variables["norm/scale"] + variables.get("norm/offset", 0)


@pytest.mark.parametrize("pooling", ["mean", "first", None])
@pytest.mark.parametrize("bias", [True, False])
def test_a_hidden_layer_before_a_head(pooling, bias):
    if pooling is None:
        head = TokenClassificationConfig(num_labels=3, transform=True)
    else:
        head = ClassificationConfig(num_labels=3, pooling=pooling, transform=True)
    encoder = dataclasses.replace(
        BERT, activation="gelu", use_bias=bias, norm_bias=bias, norm_epsilon=1e-3
    )
    model = make(head, encoder)
    (objective,) = model.objectives
    rng = np.random.default_rng(4)
    for variable in objective.variables:
        variable.assign(rng.standard_normal(variable.shape))
    names = {v.path.split(f"{objective.name}/")[1] for v in objective.variables}
    assert ("transform/bias" in names) == ("norm/offset" in names) == bias
    states = np.array(model.encode(BATCH)["sequence_output"])
    if pooling == "mean":
        states = np.stack([x[real].mean(axis=0) for x, real in zip(states, MASK, strict=True)])
    elif pooling == "first":
        states = states[:, 0]
    kernel, offset = (v.numpy() for v in objective.output_projection.variables)
    logits = hidden_by_hand(states, objective, 1e-3) @ kernel + offset
    encoded = model.encode(BATCH)
    found = objective.outputs(encoded) if pooling else objective.logits(encoded)
    np.testing.assert_allclose(found, logits, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("head", [ClassificationConfig, MultiLabelConfig])
@pytest.mark.parametrize(
    "pooling, dense", [("first", "vector"), ("mean", "vector"), ("mean", "states")]
)
def test_a_dense_layer_before_or_after_the_mean(head, pooling, dense):
    model = make(head(num_labels=3, pooling=pooling, dense=dense))
    (objective,) = model.objectives
    rng = np.random.default_rng(4)
    for variable in objective.variables:
        variable.assign(rng.standard_normal(variable.shape))
    v = {x.path.split(f"{objective.name}/")[1]: x.numpy() for x in objective.variables}
    assert set(v) == {"dense/kernel", "dense/bias", "output/kernel", "output/bias"}

    def layer(x):
        z = x @ v["dense/kernel"] + v["dense/bias"]
        return z / 2 * (1 + np.vectorize(math.erf)(z / 2**0.5))

    encoded = model.encode(BATCH)
    found = objective.outputs(encoded)
    for states, real, logits in zip(np.array(encoded["sequence_output"]), MASK, found, strict=True):
        states = states[real] if pooling == "mean" else states[:1]
        if dense == "states":  # as transformers: the mean of the scores of the positions
            scores = [layer(x) @ v["output/kernel"] + v["output/bias"] for x in states]
            expected = np.mean(scores, axis=0)
        else:
            expected = layer(states.mean(axis=0)) @ v["output/kernel"] + v["output/bias"]
        np.testing.assert_allclose(logits, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"dense": "states", "pooling": "first"}, "states is for pooling: mean, not first"),
        ({"dense": "vector", "pooling": "mean", "transform": True}, "with transform: remove one"),
        ({"dense": "tokens", "pooling": "mean"}, "dense: 'tokens' is not one of vector, states"),
    ],
)
def test_dense_layers_that_there_are_not(options, message):
    with pytest.raises(ValueError, match=message):
        RegressionConfig(**options)


def test_a_span_answer_reads_a_hidden_layer():
    model = make(SpanAnswerConfig(transform=True), dataclasses.replace(BERT, activation="gelu"))
    (objective,), encoded = model.objectives, model.encode(BATCH)
    states = np.array(encoded["sequence_output"])
    expected = hidden_by_hand(states, objective, BERT.norm_epsilon)
    np.testing.assert_allclose(objective.states(encoded), expected, rtol=1e-6, atol=1e-9)


def test_a_hidden_layer_starts_from_that_of_a_masked_lm(tmp_path):
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    encoder = dataclasses.replace(BERT, vocab_size=tokenizer.vocab_size)
    told = configs.ResolvedConfig(name="m", encoder=encoder, objectives=(MaskedLMConfig(),))
    arrays = {
        path: variable.numpy() + 0.01 for path, variable in Model(told).variables_by_path().items()
    }
    model_folder.write_new(told, tokenizer, arrays, tmp_path / "told")
    heads = {
        True: ClassificationConfig(num_labels=3, pooling="mean", transform=True),
        False: ClassificationConfig(num_labels=3, pooling="mean"),
    }
    for transform, head in heads.items():
        config = configs.Config("tuned", encoder=encoder, objectives=(head,))
        model = Model(config)
        _, fresh = warm_start.start_from(model, str(tmp_path / "told"), "last", "encoder")
        assert fresh == (["classification/output"] if transform else ["classification"])
        known = model.variables_by_path()
        for name in ("transform/kernel", "transform/bias", "norm/scale", "norm/offset"):
            assert (f"classification/{name}" in known) == transform
            if transform:
                own, theirs = known[f"classification/{name}"], arrays[f"masked_lm/{name}"]
                np.testing.assert_array_equal(own, theirs)


@pytest.mark.parametrize("head", [TokenClassificationConfig, SpanAnswerConfig, MultiLabelConfig])
def test_the_last_layer_behind_a_hidden_layer_begins_larger(head):
    options = {} if head is SpanAnswerConfig else {"num_labels": 40}
    options |= {"pooling": "mean"} if head is MultiLabelConfig else {}
    encoder = dataclasses.replace(
        BERT, hidden_size=400, initializer="truncated_normal", initializer_range=0.02
    )
    for transform, scale in ((True, 1 / 20), (False, 0.02)):
        config = head(transform=transform, **options)
        objective = getattr(registry.module_of(config), config.layer)(config, encoder)
        objective.build()
        kernel = objective.output_projection.kernel.numpy()
        # The distribution is cut at two standard deviations, which leaves 0.8796 of one.
        assert kernel.std() == pytest.approx(0.8796 * scale, rel=0.06)
        assert 1.9 * scale < np.abs(kernel).max() <= 2 * scale
        if transform:
            hidden = objective.transform.kernel.numpy()
            assert hidden.std() == pytest.approx(0.8796 * 0.02, rel=0.01)


def test_an_elmo_has_no_such_hidden_layer():
    head = ClassificationConfig(num_labels=3, pooling="mean", transform=True)
    with pytest.raises(ValueError, match="transform: encoder.type: bilm has no such hidden"):
        head.check_encoder(BilmConfig())


@pytest.mark.parametrize("layers, chosen", [((0,), [0]), ((-1,), [2]), ((2, 0), [2, 0])])
def test_layers_that_are_named_are_mixed_alone(layers, chosen):
    model = make(ClassificationConfig(num_labels=3, pooling="mean", mix=Mix(layers=layers)))
    encoded = model.encode(BATCH, output_all=True)
    found = model.objectives[0].read(encoded)["sequence_output"]
    expected = mixed_by_hand([encoded["hidden_states"][i] for i in chosen])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize(
    "layers, message",
    [
        ((3,), r"^mix.layers: 3: this encoder has the layers 0 \(tokens\) to 2"),
        ((0, -3), r"^mix.layers: \[0, -3\] names a layer twice"),
    ],
)
def test_layers_that_cannot_be_mixed(layers, message):
    config = ClassificationConfig(num_labels=3, pooling="mean", mix=Mix(layers=layers))
    with pytest.raises(ValueError, match=message):
        config.check_encoder(BERT)


@pytest.mark.parametrize("name", HEADS)
def test_head_of_a_mix_is_the_head_of_its_states(name):
    """The values of a head with a mix are those of the same head over mixed vectors."""
    head, batch = HEADS[name]
    model, plain = make(head), make(dataclasses.replace(head, mix=None))
    own = plain.variables_by_path()
    for path, variable in model.variables_by_path().items():
        if "/mix/" not in path:
            own[path].assign(variable)
    assert len(own) == len(model.variables_by_path()) - 2
    batch = model.prepare({key: tf.constant(value) for key, value in batch.items()})
    encoded = model.encode(batch, output_all=True)
    mixed = {**encoded, "sequence_output": tf.constant(mixed_by_hand(encoded["hidden_states"]))}
    losses, metrics = model.terms(batch)
    expected, expected_metrics = plain.terms(batch, encoded=mixed)
    assert losses.keys() == expected.keys()
    for found, wanted in ((losses, expected), (metrics, expected_metrics)):
        for key in wanted:
            np.testing.assert_allclose(found[key], wanted[key], rtol=1e-9)
    predictions = model.predictions(batch)
    for key, value in plain.predictions(batch, mixed).items():
        np.testing.assert_allclose(predictions[key], value, rtol=1e-9)


@pytest.mark.parametrize("name", HEADS)
def test_penalty_is_a_term_of_its_own(name):
    head, batch = HEADS[name]
    model = make(dataclasses.replace(head, weight=3.0, mix=Mix(penalty=0.1)))
    batch = model.prepare({key: tf.constant(value) for key, value in batch.items()})
    losses, _ = model.terms(batch)
    sums = model.weight_sums(batch)
    term = f"{model.objectives[0].name}_mix"
    assert model.term_weights == {model.objectives[0].name: 3.0, term: 1.0}
    np.testing.assert_allclose(losses[term] / sums[term], 0.1 * 2, rtol=1e-12)  # w = -1, 0, 1


def test_tags_read_a_second_mix_beside_the_bilstm():
    """Peters et al., 2018, section 3.3: [h; ELMo], with a mix of its own."""
    head = dataclasses.replace(
        TAGGER, mix=None, bilstm=2, output_mix=Mix(penalty=0.1, layers=(2, 0))
    )
    model = make(head)
    (objective,) = model.objectives
    objective.output_mix.layer_weights.assign([-1.0, 1.0])
    objective.output_mix.gamma.assign(1.5)
    encoded = model.encode(TAGS, output_all=True)
    layers = encoded["hidden_states"]
    read = objective.bilstm(layers[-1], MASK)  # see `test_bilstm`
    kernel, bias = (v.numpy() for v in objective.output_projection.variables)
    both = np.concatenate([read, mixed_by_hand([layers[2], layers[0]])], axis=-1)
    assert both.shape == (4, 6, 2 * 2 + 8)
    np.testing.assert_allclose(objective.logits(encoded), both @ kernel + bias, rtol=1e-9)
    losses, _ = model.terms(TAGS)
    penalty = losses["token_classification_mix"] / model.weight_sums(TAGS)["token_classification"]
    np.testing.assert_allclose(penalty, 0.1 * 2, rtol=1e-12)
    with pytest.raises(ValueError, match="output_mix: not supported without bilstm"):
        dataclasses.replace(head, bilstm=None)


def bilstm_by_hand(objective, states, real):
    """Returns the outputs of each row, 0 at its padding."""
    outputs = np.zeros((*real.shape, 2 * objective.config.bilstm))
    weights = [[v.numpy() for v in lstm.variables] for lstm in objective.bilstm.directions]
    for row, own, found in zip(np.array(states), real, outputs, strict=True):
        ahead = one_direction(row[own], *weights[0])
        back = one_direction(row[own][::-1], *weights[1])[::-1]
        found[own] = np.concatenate([ahead, back], axis=1)
    return outputs


@pytest.mark.parametrize("name", ["gpt2", "xlnet"])
@pytest.mark.parametrize("pooling", ["pooled", "mean"])
def test_what_is_pooled_are_the_outputs_of_a_bilstm(name, pooling):
    """Two rows are padded on the left where the encoder has such texts."""
    real = MASK.copy()
    if name == "xlnet":
        real[1:3] = real[1:3, ::-1]
    batch = BATCH | {"padding_mask": real}
    head = ClassificationConfig(num_labels=3, pooling=pooling, bilstm=5)
    encoder = dataclasses.replace(ENCODERS[name], pooler=False)
    model = make(head, encoder)
    (objective,) = model.objectives
    outputs = bilstm_by_hand(objective, model.encode(batch)["sequence_output"], real)
    pooled = np.stack([row[own].mean(axis=0) for row, own in zip(outputs, real, strict=True)])
    if pooling == "pooled":
        ends = [np.flatnonzero(own)[[-1, 0]] for own in real]
        pooled = [np.r_[row[last, :5], row[first, 5:]]
                  for row, (last, first) in zip(outputs, ends, strict=True)]  # fmt: skip
    kernel, bias = (v.numpy() for v in objective.output_projection.variables)
    scores = np.exp(np.stack(pooled) @ kernel + bias)
    expected = scores / scores.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predictions(batch)["probabilities"], expected, rtol=1e-9)
    # Two LSTMs of 8 inputs and 5 cells, and the map of both to 3 classes.
    config = configs.ResolvedConfig("lstm", encoder=encoder, objectives=(head,))
    assert with_pooler(encoder, config) == encoder
    counts = weight_counts.count(config)
    assert counts.heads == {"classification": 2 * (8 + 5 + 1) * 4 * 5 + 10 * 3 + 3}


def test_answers_are_scored_by_the_outputs_of_a_bilstm():
    model = make(SpanAnswerConfig(bilstm=3))
    (objective,) = model.objectives
    encoded = model.encode(WINDOWS)
    outputs = bilstm_by_hand(objective, encoded["sequence_output"], MASK)
    kernel, bias = (v.numpy() for v in objective.output_projection.variables)
    found = np.stack(objective.boundary_logits(objective.states(encoded)), axis=-1)
    np.testing.assert_allclose(found, outputs @ kernel + bias, rtol=1e-9, atol=1e-12)


def test_norm_reads_no_padding():
    head = ClassificationConfig(num_labels=3, pooling="mean", mix=Mix(norm="layer"))
    model = make(head)
    other = BATCH | {"token_ids": np.where(MASK, BATCH["token_ids"], 7).astype("int32")}
    found, same = (model.predictions(batch)["probabilities"] for batch in (BATCH, other))
    np.testing.assert_allclose(found, same, rtol=1e-9)


def test_dropout_of_the_mix_is_of_single_elements():
    head = ClassificationConfig(num_labels=3, pooling="mean", mix=Mix(dropout=0.5))
    model = make(head)
    encoded = model.encode(BATCH, output_all=True)
    states = np.array(model.objectives[0].states(encoded, Draws((0, 1))))
    exact = mixed_by_hand(encoded["hidden_states"])
    kept = states != 0
    assert 0.3 < kept.mean() < 0.7
    np.testing.assert_allclose(states[kept], 2 * exact[kept], rtol=1e-9)


def test_without_a_mix_the_encoder_returns_the_last_layer_alone():
    plain = make(ClassificationConfig(num_labels=3, pooling="mean"))
    assert "hidden_states" not in plain.encode_as_read(BATCH)
    first = make(ClassificationConfig(num_labels=3, pooling="first", mix=Mix()))
    assert "hidden_states" in first.encode_as_read(BATCH)
    assert first.encode_as_read(BATCH)["sequence_output"].shape == (4, 6, 8)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mix": {}}, "objectives.0.pooling: pooled is an output of the last layer"),
        ({"mix": {"norm": "batch"}, "pooling": "mean"}, "objectives.0.mix.norm: 'batch' is not"),
        ({"mix": {"penalty": -1}, "pooling": "mean"}, "objectives.0.mix.penalty: -1.0 is negative"),
        ({"mix": {"weight": 1}, "pooling": "mean"}, "objectives.0.mix.weight: unknown key"),
        ({"bilstm": 0}, "objectives.0.bilstm: 0 is less than 1"),
        ({"bilstm": {"cells": 9}}, "objectives.0.bilstm: expected a whole number"),
        ({"type": "kernel_ranking", "bilstm": 9}, "objectives.0.bilstm: unknown key"),
        ({"type": "seq2seq_lm", "bilstm": 9}, "objectives.0.bilstm: unknown key"),
    ],
)
def test_bad_readers(values, message):
    raw = {"name": "bad", "objectives": [{"type": "regression", **values}], "recipe": {"steps": 1}}
    with pytest.raises(UserError, match=message):
        configs.from_dict(raw)


def test_config_without_a_mix_is_as_before():
    assert not {"mix", "bilstm"} & configs.to_dict(RegressionConfig()).keys()
    mixed = configs.to_dict(RegressionConfig(pooling="mean", mix=Mix(penalty=0.5)))
    assert mixed["mix"] == {"penalty": 0.5, "norm": "none", "dropout": 0.5}
