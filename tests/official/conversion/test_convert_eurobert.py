"""EuroBERT: the forms of config.json, what is not supported, and heads of others.

What all systems have is in `test_convert_systems.py`.
"""

import dataclasses

import pytest

from official import config as configs
from official.config.encoders import LocalAttention, TransformerConfig
from official.config.heads import ClassificationConfig, RegressionConfig, TokenClassificationConfig
from official.config.objectives import MaskedLMConfig
from official.conversion import eurobert, huggingface
from official.fine_tuning import settings
from official.utils.errors import UserError
from tests import CONFIGS

# As released.
LARGE = {
    "architectures": ["EuroBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token": "<|begin_of_text|>", "bos_token_id": 128000, "eos_token": "<|end_of_text|>",
    "eos_token_id": 128001, "hidden_act": "silu", "hidden_dropout": 0.0, "hidden_size": 2304,
    "initializer_range": 0.02, "intermediate_size": 6144, "is_decoder": False,
    "mask_token": "<|mask|>", "mask_token_id": 128002, "max_position_embeddings": 8192,
    "model_type": "eurobert", "num_attention_heads": 18, "num_hidden_layers": 32,
    "num_key_value_heads": 6, "pad_token": "<|end_of_text|>", "pad_token_id": 128001,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 250000,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 128256,
}  # fmt: skip
LABELS = {"id2label": {"0": "no", "1": "yes"}}


def encoder_of(config):
    return eurobert.SYSTEM.encoder_config(config, "config.json", pooler=False)


def newer(**changes):
    """As transformers 5 saves it."""
    kept = {key: value for key, value in LARGE.items() if not key.startswith("rope")}
    rule = {"rope_theta": 250000, "rope_type": "default"}
    return {**kept, "head_dim": 128, "mlp_bias": False, "rope_parameters": rule, **changes}


def test_the_released_config_is_the_published_size():
    encoder = encoder_of(LARGE)
    ours = configs.load(CONFIGS / "pretrain" / "eurobert_2_1b.yaml").encoder
    assert dataclasses.replace(ours, rotary_theta=250000.0, initializer="truncated_normal") == (
        encoder
    )
    keys = eurobert.SYSTEM.encoder.keys(encoder)
    known = {key: value for key, value in keys.items() if key != "mlp_bias"}
    assert {key: LARGE[key] for key in known} == known and len(known) == 14


def test_both_forms_of_a_config_describe_the_same_encoder():
    assert encoder_of(newer()) == encoder_of(LARGE)
    # Where no key says it, theta is that of transformers; as many heads as queries need no key.
    assert encoder_of(newer(rope_parameters=None)).rotary_theta == 10000.0
    for count in (None, 18):
        assert encoder_of({**LARGE, "num_key_value_heads": count}).num_key_value_heads is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_bias": True}, "attention_bias: True is not supported, only False"),
        ({"mlp_bias": True}, "mlp_bias: True is not supported"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings: True is not supported, only False"),
        ({"head_dim": 64}, "head_dim: 64 is not supported, only 128, hidden_size divided by"),
        ({"num_key_value_heads": 4}, "num_key_value_heads: 4 heads do not divide the 18 of"),
        ({"hidden_act": "mish"}, "hidden_act: 'mish' is not supported"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_parameters: rope_type: 'lin"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters: rope_type: 'yarn' is not"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5 is not supported, only 1.0"),
        ({"hidden_size": None}, "hidden_size is missing: is this the config of a EuroBERT model"),
    ],
)
def test_what_our_encoder_has_not_is_refused(changes, message):
    with pytest.raises(UserError, match=f"config.json: {message}"):
        encoder_of({**LARGE, **changes})


def test_heads_of_tasks():
    def objective(head, **changes):
        described = {**LARGE, **LABELS, **changes}
        (made,) = eurobert.SYSTEM.objectives((head,), described, "config.json")
        return made

    late = ClassificationConfig(labels=("no", "yes"), dropout=0.0, pooling="mean", dense="states")
    assert objective("classification") == objective("classification", clf_pooling="late") == late
    mean = dataclasses.replace(late, dense="vector")
    assert objective("classification", classifier_pooling="mean", clf_pooling="late") == mean
    assert objective("regression", classifier_pooling="bos") == RegressionConfig(
        dropout=0.0, pooling="first", dense="vector"
    )
    tags = TokenClassificationConfig(labels=("no", "yes"), dropout=0.0)
    assert objective("token_classification") == tags
    with pytest.raises(UserError, match="classifier_pooling: 'max' is not supported .known: bos,"):
        objective("classification", classifier_pooling="max")


@pytest.mark.parametrize(
    ("changes", "objective", "message"),
    [
        ({}, {"pooling": "mean"}, "dense: a EuroBERT of transformers has 'vector' or 'states', no"),
        ({}, {"pooling": "mean", "transform": True}, "transform: a EuroBERT of transformers has f"),
        ({"pooler": True}, {}, "encoder.pooler: a EuroBERT of transformers has none: train the"),
        ({"use_bias": True}, {}, "encoder.use_bias: a EuroBERT has False, not True"),
        ({"local_attention": LocalAttention()}, {}, "local_attention: a EuroBERT has None"),
        ({"norm": "post"}, {}, "encoder.norm: a EuroBERT has 'pre', not 'post'"),
        ({"segment_types": 2}, {}, "encoder.segment_types: a EuroBERT has 0, not 2"),
    ],
)
def test_what_transformers_has_not_is_refused(changes, objective, message):
    encoder = dataclasses.replace(encoder_of(LARGE), **changes)
    head = ClassificationConfig(labels=("no", "yes"), **objective)
    config = configs.Config(name="x", encoder=encoder, objectives=(head,))
    assert huggingface.system_of(config) is eurobert.SYSTEM
    with pytest.raises(UserError, match=message):
        eurobert.SYSTEM.huggingface_config(config, ["classification"], 0)


def test_other_heads_of_masked_lm_and_dense_layers_elsewhere_are_refused():
    config = configs.Config("x", encoder=encoder_of(LARGE), objectives=(MaskedLMConfig(),))
    with pytest.raises(UserError, match="no EuroBERT class of transformers has the heads masked"):
        eurobert.SYSTEM.huggingface_config(config, ["masked_lm"])
    head = ClassificationConfig(labels=("no", "yes"), dense="vector")
    bert = TransformerConfig(vocab_size=9)
    config = configs.Config("x", encoder=bert, objectives=(head,))
    with pytest.raises(UserError, match="dense: a BERT of transformers has None, not 'vector'"):
        huggingface.system_of(config).huggingface_config(config, ["classification"])


def test_systems_and_settings_of_models_of_ours():
    def loaded(name):
        return configs.load(CONFIGS / "pretrain" / f"{name}.yaml")

    euro, neo = loaded("eurobert_210m"), loaded("neobert")
    assert huggingface.system_of(euro) is eurobert.SYSTEM
    assert settings.family(euro) == "eurobert"
    described = eurobert.SYSTEM.huggingface_config(euro, ["kernel_masked_lm"], 7)
    assert described["architectures"] == ["EuroBertForMaskedLM"]
    assert (described["num_key_value_heads"], described["pad_token_id"]) == (12, 7)
    # The encoder of a NeoBERT has the same layers, and its head is another.
    assert huggingface.system_of(neo) is eurobert.SYSTEM
    alone = dataclasses.replace(neo, objectives=())
    assert eurobert.SYSTEM.huggingface_config(alone, [])["architectures"] == ["EuroBertModel"]
