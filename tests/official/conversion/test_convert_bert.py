import dataclasses

import numpy as np
import pytest

from official import config as configs
from official.config.encoders import TransformerConfig
from official.config.heads import ClassificationConfig, RegressionConfig
from official.config.objectives import MaskedLMConfig, SentencePairConfig
from official.conversion import bert as bert_names
from official.conversion.mapping import bring_in, take_out
from official.modeling.model import Model
from official.utils.errors import UserError

HF = {
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.2,
    "initializer_range": 0.02,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}
bert = bert_names.BERT
release = bert.of_release()
SMALL = TransformerConfig(
    vocab_size=11, hidden_size=6, num_layers=2, num_heads=2, intermediate_size=10, max_positions=7
)
HEADS = {
    (): (),
    ("masked_lm", "next_sentence"): (MaskedLMConfig(), SentencePairConfig()),
    ("classification",): (ClassificationConfig(labels=("no", "yes", "maybe")),),
    ("regression",): (RegressionConfig(),),
}


def model(objectives=(), **sizes):
    encoder = dataclasses.replace(SMALL, **sizes)
    config = configs.Config(name="test", encoder=encoder, objectives=objectives)
    return config, Model(config, dtype="float32")


@pytest.mark.parametrize(
    ("system", "heads"),
    [
        *((bert, heads) for heads in HEADS),
        # The release has no names for the heads of tasks.
        (release, ()),
        (release, ("masked_lm", "next_sentence")),
    ],
)
def test_the_table_covers_every_variable_once_and_moves_are_exact(system, heads):
    config, network = model(HEADS[heads])
    variables = network.variables_by_path()
    rows = system.rows(config.encoder, heads)
    assert sorted(row.path for row in rows) == sorted(variables)
    rng = np.random.default_rng(0)
    ours = {path: rng.standard_normal(v.shape).astype(np.float32) for path, v in variables.items()}
    theirs = take_out(rows, ours)
    shapes = {path: array.shape for path, array in ours.items()}
    back, leftover = bring_in(rows, theirs, shapes, "file")
    assert not leftover
    assert {p: a.tobytes() for p, a in back.items()} == {p: a.tobytes() for p, a in ours.items()}


def test_names_and_shapes_are_those_of_transformers():
    rows = {row.path: row for row in bert.rows(SMALL, ["masked_lm", "next_sentence"])}
    fused = rows["encoder/layer_0/attention/query_key_value/kernel"]
    assert fused.names == tuple(
        f"bert.encoder.layer.0.attention.self.{part}.weight" for part in ("query", "key", "value")
    )
    assert fused.part_shape((6, 18)) == (6, 6)
    inner = rows["encoder/layer_0/feed_forward/inner/kernel"]
    assert inner.names == ("bert.encoder.layer.0.intermediate.dense.weight",)
    assert inner.part_shape((6, 10)) == (10, 6)
    table = rows["encoder/embeddings/token_embedding/table"]
    assert table.part_shape((11, 6)) == (11, 6)
    assert rows["next_sentence/kernel"].part_shape((6, 2)) == (2, 6)


def test_names_and_shapes_are_those_of_the_tf1_release():
    rows = {row.path: row for row in release.rows(SMALL, ["masked_lm", "next_sentence"])}
    names = {path: row.names for path, row in rows.items() if len(row.names) == 1}
    assert rows["encoder/layer_1/attention/query_key_value/bias"].names == tuple(
        f"bert/encoder/layer_1/attention/self/{part}/bias" for part in ("query", "key", "value")
    )
    for path, name in {
        "encoder/embeddings/token_embedding/table": "bert/embeddings/word_embeddings",
        "encoder/embeddings/segment_embedding/table": "bert/embeddings/token_type_embeddings",
        "encoder/embeddings/norm/scale": "bert/embeddings/LayerNorm/gamma",
        "encoder/layer_0/attention_norm/offset": (
            "bert/encoder/layer_0/attention/output/LayerNorm/beta"
        ),
        "encoder/layer_0/feed_forward/outer/kernel": "bert/encoder/layer_0/output/dense/kernel",
        "encoder/pooler/bias": "bert/pooler/dense/bias",
        "masked_lm/transform/kernel": "cls/predictions/transform/dense/kernel",
        "masked_lm/norm/scale": "cls/predictions/transform/LayerNorm/gamma",
        "masked_lm/output_bias": "cls/predictions/output_bias",
        "next_sentence/kernel": "cls/seq_relationship/output_weights",
        "next_sentence/bias": "cls/seq_relationship/output_bias",
    }.items():
        assert names[path] == (name,)
    assert rows["encoder/layer_0/feed_forward/inner/kernel"].part_shape((6, 10)) == (6, 10)
    assert rows["next_sentence/kernel"].part_shape((6, 2)) == (2, 6)


def test_config_comes_in():
    assert bert.encoder_config(HF, "config.json") == TransformerConfig(
        vocab_size=30522, activation="gelu", attention_dropout=0.2
    )
    settings = bert.encoder_config({**HF, "layer_norm_eps": 1e-5}, "config.json", pooler=False)
    assert settings.norm_epsilon == 1e-5
    assert not settings.pooler


@pytest.mark.parametrize(
    ("theirs", "ours", "back"),
    [
        ("gelu", "gelu", "gelu"),
        ("gelu_new", "gelu_tanh", "gelu_new"),
        ("gelu_pytorch_tanh", "gelu_tanh", "gelu_new"),
        ("relu", "relu", "relu"),
    ],
)
def test_activations_both_ways(theirs, ours, back):
    encoder = bert.encoder_config({**HF, "hidden_act": theirs}, "config.json")
    assert encoder.activation == ours
    config = configs.Config(name="x", encoder=encoder)
    assert bert.huggingface_config(config, [])["hidden_act"] == back


def test_gelu_of_the_tf1_release_is_the_tanh_form():
    assert release.encoder_config(HF, "bert_config.json").activation == "gelu_tanh"
    relu = release.encoder_config({**HF, "hidden_act": "relu"}, "bert_config.json")
    assert relu.activation == "relu"


def test_config_out_and_in_again_is_the_same():
    config, _ = model(HEADS[("classification",)], activation="relu", norm_epsilon=1e-6)
    written = bert.huggingface_config(config, ["classification"])
    assert written["architectures"] == ["BertForSequenceClassification"]
    assert written["id2label"] == {"0": "no", "1": "yes", "2": "maybe"}
    assert bert.encoder_config(written, "config.json") == config.encoder
    heads = bert.heads_of(["classifier.weight", "classifier.bias"], written)
    assert bert.objectives(heads, written, "config.json") == config.objectives


def test_regression_is_known_by_its_one_output():
    config, _ = model(HEADS[("regression",)])
    written = bert.huggingface_config(config, ["regression"])
    assert written["problem_type"] == "regression"
    heads = bert.heads_of(["classifier.weight"], written)
    assert heads == ("regression",)
    assert bert.objectives(heads, written, "config.json") == config.objectives


def test_a_classifier_of_tokens_is_not_taken_for_one_of_texts():
    config = {"architectures": ["BertForTokenClassification"]}
    assert bert.heads_of(["classifier.weight"], config) == ("token_classification",)


def test_two_labels_without_names_get_those_of_transformers():
    (objective,) = bert.objectives(["classification"], {"hidden_dropout_prob": 0.3}, "config.json")
    assert objective == ClassificationConfig(labels=("LABEL_0", "LABEL_1"), dropout=0.3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"position_embedding_type": "relative"},
            "position_embedding_type: 'relative' is not supported \\(known: absolute, relative_key",
        ),
        ({"is_decoder": True}, "is_decoder: True is not supported, only False"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings: False is not supported"),
        ({"hidden_act": "mish"}, "hidden_act: 'mish' is not supported .known: gelu, gelu_python"),
        ({"num_attention_heads": 5}, "num_heads: 5 heads do not divide hidden_size 768"),
        ({"hidden_size": "768"}, "config.json: "),
    ],
)
def test_what_the_encoder_has_not_is_refused_by_name(change, message):
    with pytest.raises(UserError, match=rf"^config\.json: .*{message}|^{message}"):
        bert.encoder_config({**HF, **change}, "config.json")


def test_a_key_that_is_missing_is_named():
    lacking = {key: value for key, value in HF.items() if key != "type_vocab_size"}
    with pytest.raises(UserError, match=r"config\.json: type_vocab_size is missing"):
        bert.encoder_config(lacking, "config.json")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"id2label": {"0": "a", "2": "b"}}, "keys of the label names must be 0, 1, 2"),
        ({"id2label": {"0": "a", "x": "b"}}, "keys of the label names must be 0, 1, 2"),
        ({"id2label": ["a", "b"]}, "keys of the label names must be 0, 1, 2"),
        ({"id2label": {"0": "a", "1": "a"}}, "a label name occurs twice: a, a"),
        (
            {"problem_type": "multi_label_classification"},
            "problem_type: 'multi_label_classification' with 2 labels is not supported",
        ),
        (
            {"problem_type": "regression", "id2label": {"0": "a", "1": "b"}},
            "problem_type: 'regression' with 2 labels is not supported",
        ),
    ],
)
def test_labels_that_cannot_be_are_refused(config, message):
    with pytest.raises(UserError, match=rf"config\.json: .*{message}"):
        bert.objectives(["classification"], config, "config.json")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"norm": "pre"}, "encoder.norm: a BERT has 'post', not 'pre'"),
        ({"causal": True, "pooled_position": "last"}, "encoder.causal: a BERT has False, not True"),
        ({"embedding_size": 4}, "encoder.embedding_size: a BERT has None, not 4"),
        ({"layer_groups": 1}, "encoder.layer_groups: a BERT has None, not 1"),
        ({"position_offset": 2}, "encoder.position_offset: a BERT has 0, not 2"),
        ({"segment_types": 0}, "encoder.segment_types: a BERT has 1 or more, not 0"),
    ],
)
def test_an_encoder_that_is_no_bert_is_refused_by_name(sizes, message):
    config = configs.Config(name="x", encoder=dataclasses.replace(SMALL, **sizes))
    with pytest.raises(UserError, match=message):
        bert.huggingface_config(config, [])


def test_an_embedding_size_equal_to_the_hidden_size_is_a_bert():
    config = configs.Config(name="x", encoder=dataclasses.replace(SMALL, embedding_size=6))
    assert bert.huggingface_config(config, [])["hidden_size"] == 6


def test_heads_that_no_class_has_are_named():
    config = configs.Config(name="x", encoder=SMALL)
    with pytest.raises(UserError, match="has the heads classification, masked_lm"):
        bert.huggingface_config(config, ["masked_lm", "classification"])
