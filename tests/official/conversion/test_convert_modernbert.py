"""ModernBERT: the forms of config.json, and what is not supported.

What all systems have is in `test_convert_systems.py`.
"""

import dataclasses

import numpy as np
import pytest

from official import config as configs
from official.config.encoders import LocalAttention
from official.config.heads import ClassificationConfig, TokenClassificationConfig
from official.conversion import huggingface, mapping, modernbert
from official.utils.errors import UserError
from tests.official.conversion import systems

# As released, with what transformers 4 has left in the files.
BASE = {
    "architectures": ["ModernBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 50281, "classifier_activation": "gelu", "classifier_bias": False,
    "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 50281,
    "decoder_bias": True, "deterministic_flash_attn": False, "embedding_dropout": 0.0,
    "eos_token_id": 50282, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
    "gradient_checkpointing": False, "hidden_activation": "gelu", "hidden_size": 768,
    "initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "intermediate_size": 1152,
    "layer_norm_eps": 1e-5, "local_attention": 128, "local_rope_theta": 10000.0,
    "max_position_embeddings": 8192, "mlp_bias": False, "mlp_dropout": 0.0,
    "model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-5, "num_attention_heads": 12,
    "num_hidden_layers": 22, "pad_token_id": 50283, "position_embedding_type": "absolute",
    "sep_token_id": 50282, "vocab_size": 50368,
}  # fmt: skip
KINDS = ["full_attention" if i % 3 == 0 else "sliding_attention" for i in range(22)]
RULES = {
    "full_attention": {"rope_theta": 160000.0, "rope_type": "default"},
    "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
}
OLDER = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")


def encoder_of(config):
    return modernbert.SYSTEM.encoder_config(config, "config.json", pooler=False)


def newer(**changes):
    """As transformers 5 saves it."""
    kept = {key: value for key, value in BASE.items() if key not in OLDER}
    return {**kept, "layer_types": KINDS, "rope_parameters": RULES, **changes}


def test_the_released_config():
    encoder = encoder_of(BASE)
    assert encoder.local_attention == LocalAttention(window=128, global_every=3, theta=10000.0)
    assert [i for i in range(22) if not encoder.is_local(i)] == list(range(0, 22, 3))
    assert (encoder.rotary_theta, encoder.norm_epsilon, encoder.activation) == (16e4, 1e-5, "gelu")
    assert (encoder.use_bias, encoder.norm_bias, encoder.first_norm) == (False, False, False)
    assert (encoder.norm, encoder.norm_embeddings, encoder.gated) == ("pre", True, True)
    assert (encoder.positions, encoder.segment_types, encoder.dropout) == ("rotary", 0, 0.0)
    assert (encoder.max_positions, encoder.scale_residual_init) == (8192, True)
    keys = modernbert.SYSTEM.encoder.keys(encoder)
    assert {key: BASE[key] for key in keys} == keys and len(keys) > 20


def test_a_rate_of_dropout_comes_in_and_goes_out():
    encoder = encoder_of({**BASE, "embedding_dropout": 0.1, "mlp_dropout": 0.1})
    assert encoder == dataclasses.replace(encoder_of(BASE), dropout=0.1)
    modernbert.SYSTEM.encoder.check(encoder, 0)
    keys = modernbert.SYSTEM.encoder.keys(encoder)
    assert (keys["embedding_dropout"], keys["mlp_dropout"]) == (0.1, 0.1)
    assert keys["attention_dropout"] == 0.0


def test_both_versions_of_transformers_describe_the_same_encoder():
    assert encoder_of(newer()) == encoder_of(BASE)
    # Of an Ettin, local layers have the theta of the others; null says the same.
    same = dataclasses.replace(
        encoder_of(BASE), local_attention=LocalAttention(128, 3, theta=160000.0)
    )
    for theta in (160000.0, None):
        assert encoder_of({**BASE, "local_rope_theta": theta}) == same
    rules = {**RULES, "sliding_attention": RULES["full_attention"]}
    assert encoder_of(newer(rope_parameters=rules)) == same
    # What is left of older files says nothing.
    left = {"layer_norm_eps": 1e-12, "position_embedding_type": "relative_key"}
    assert encoder_of({**BASE, **left}) == encoder_of(BASE)
    every_layer = {**BASE, "global_attn_every_n_layers": 1}
    listed = newer(layer_types=["full_attention"] * 22)
    assert encoder_of(every_layer) == encoder_of(listed)
    assert encoder_of(listed).local_attention is None
    first = newer(layer_types=["full_attention", *["sliding_attention"] * 21])
    found = [i for i in range(22) if not encoder_of(first).is_local(i)]
    assert found == [0]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (newer(layer_types=KINDS[1:] + KINDS[:1]), "layer_types: .* is not supported: layer 0 and"),
        (newer(layer_types=KINDS[:-1]), "layer_types: .* is not supported: layer 0 and"),
        (
            newer(rope_parameters={**RULES, "full_attention": {"rope_type": "yarn"}}),
            "rope_parameters: full_attention: rope_type: 'yarn' is not supported, only 'default'",
        ),
        ({**BASE, "norm_eps": None}, "norm_eps is missing: is this the config of a ModernBERT"),
        ({**BASE, "classifier_activation": "tanh"}, "classifier_activation: 'tanh' is not supp"),
        ({**BASE, "mlp_bias": True}, "attention_bias, mlp_bias, classifier_bias: not supported if"),
        (
            {**BASE, "embedding_dropout": 0.1},
            "embedding_dropout, mlp_dropout: not supported if they differ",
        ),
        ({**BASE, "decoder_bias": False}, "decoder_bias: False is not supported, only True"),
        ({**BASE, "tie_word_embeddings": False}, "tie_word_embeddings: False is not supported"),
    ],
)
def test_what_our_encoder_has_not_is_refused(config, message):
    with pytest.raises(UserError, match=f"config.json: {message}"):
        encoder_of(config)


def test_heads_of_tasks():
    labels = {"id2label": {"0": "no", "1": "yes"}}

    def objective(head, **changes):
        described = {**BASE, **labels, **changes}
        (made,) = modernbert.SYSTEM.objectives((head,), described, "config.json")
        return made

    expected = ClassificationConfig(
        labels=("no", "yes"), dropout=0.0, pooling="mean", transform=True
    )
    assert objective("classification") == expected
    first = dataclasses.replace(expected, pooling="first", dropout=0.3)
    assert objective("classification", classifier_pooling="cls", classifier_dropout=0.3) == first
    tokens = TokenClassificationConfig(labels=("no", "yes"), dropout=0.0, transform=True)
    assert objective("token_classification") == tokens
    with pytest.raises(UserError, match="classifier_pooling: 'max' is not supported"):
        objective("classification", classifier_pooling="max")


@pytest.mark.parametrize(
    ("pooler", "head", "message"),
    [
        (
            True,
            {},
            "encoder.pooler: a ModernBERT of transformers has none: train the head with obj",
        ),
        (False, {"pooling": "mean"}, "transform: a ModernBERT of transformers has true"),
    ],
)
def test_what_the_head_of_transformers_has_not_is_refused(pooler, head, message):
    encoder = dataclasses.replace(encoder_of(BASE), pooler=pooler)
    objective = ClassificationConfig(labels=("no", "yes"), **head)
    config = configs.Config(name="x", encoder=encoder, objectives=(objective,))
    with pytest.raises(UserError, match=message):
        modernbert.SYSTEM.huggingface_config(config, ["classification"], 0)


def test_an_output_layer_may_be_there_as_a_copy_and_not_as_another(tmp_path):
    config, parts, _ = systems.load("modernbert_masked_lm")
    table = parts["weight"]["model.embeddings.tok_embeddings.weight"]
    weights = {**parts["weight"], "decoder.weight": table.copy()}
    read = huggingface.read(systems.write(tmp_path / "copy", config, weights))
    assert read.leftover == []
    weights["decoder.weight"] = table + 1
    with pytest.raises(UserError, match=r"decoder.weight differs from model.embeddings.tok_emb"):
        huggingface.read(systems.write(tmp_path / "other", config, weights))


def test_halves_of_the_inner_matrix():
    """The first half is activated: it is the gate."""
    encoder = dataclasses.replace(encoder_of(BASE), hidden_size=12, num_heads=2, num_layers=1)
    rows = {row.path: row for row in modernbert.SYSTEM.rows(encoder, ())}
    wi = np.arange(8 * 12, dtype="float32").reshape(8, 12)
    for number, name in enumerate(("gate", "inner")):
        row = rows[f"encoder/layer_0/feed_forward/{name}/kernel"]
        found, _ = mapping.bring_in([row], {row.names[0]: wi}, {row.path: (12, 4)}, "file")
        np.testing.assert_array_equal(found[row.path].T, wi[4 * number : 4 * number + 4])
    assert "encoder/layer_0/attention_norm/scale" not in rows
    assert not [path for path in rows if path.endswith(("bias", "offset"))]
