"""The TF1 release of ALBERT: its names, and the answers that its weights give."""

import json

import numpy as np
import pytest

from official.convert import converted_model, tf1
from official.saving import model_folder
from official.tokenizers.text_rules import TextRules
from official.utils.errors import UserError
from tests.official.convert import systems
from tests.official.convert.test_convert_tf1 import save


def release_tensors(theirs):
    """The tensors of transformers under the names of the release, written out by hand."""
    tensors = {}

    def dense(name, source):
        tensors[f"{name}/kernel"] = theirs[f"{source}.weight"].T
        tensors[f"{name}/bias"] = theirs[f"{source}.bias"]

    def norm(name, source):
        tensors[f"{name}/gamma"] = theirs[f"{source}.weight"]
        tensors[f"{name}/beta"] = theirs[f"{source}.bias"]

    for table in ("word", "position", "token_type"):
        name = f"embeddings/{table}_embeddings"
        tensors[f"bert/{name}"] = theirs[f"albert.{name.replace('/', '.')}.weight"]
    norm("bert/embeddings/LayerNorm", "albert.embeddings.LayerNorm")
    dense("bert/encoder/embedding_hidden_mapping_in", "albert.encoder.embedding_hidden_mapping_in")
    for group in range(2):
        for layer in range(2):
            ours = f"bert/encoder/transformer/group_{group}/inner_group_{layer}"
            source = f"albert.encoder.albert_layer_groups.{group}.albert_layers.{layer}"
            for part in ("query", "key", "value"):
                dense(f"{ours}/attention_1/self/{part}", f"{source}.attention.{part}")
            dense(f"{ours}/attention_1/output/dense", f"{source}.attention.dense")
            norm(f"{ours}/LayerNorm", f"{source}.attention.LayerNorm")
            dense(f"{ours}/ffn_1/intermediate/dense", f"{source}.ffn")
            dense(f"{ours}/ffn_1/intermediate/output/dense", f"{source}.ffn_output")
            norm(f"{ours}/LayerNorm_1", f"{source}.full_layer_layer_norm")
    dense("bert/pooler/dense", "albert.pooler")
    dense("cls/predictions/transform/dense", "predictions.dense")
    norm("cls/predictions/transform/LayerNorm", "predictions.LayerNorm")
    tensors["cls/predictions/output_bias"] = theirs["predictions.bias"]
    tensors["cls/seq_relationship/output_weights"] = theirs["sop_classifier.classifier.weight"]
    tensors["cls/seq_relationship/output_bias"] = theirs["sop_classifier.classifier.bias"]
    return tensors


@pytest.fixture
def stored():
    return systems.load("albert_pretraining")


@pytest.fixture
def release(tmp_path, stored):
    config, parts, _ = stored
    folder = tmp_path / "albert_base"
    folder.mkdir()
    keys = """attention_probs_dropout_prob hidden_dropout_prob embedding_size hidden_size
        initializer_range intermediate_size max_position_embeddings num_attention_heads
        num_hidden_layers num_hidden_groups inner_group_num type_vocab_size vocab_size"""
    config = {key: config[key] for key in keys.split()}
    config |= {"hidden_act": "gelu", "net_structure_type": 0, "gap_size": 0}
    (folder / "albert_config.json").write_text(json.dumps(config))
    (folder / "30k-clean.model").write_bytes(systems.sentencepiece_model())
    (folder / "30k-clean.vocab").write_text("not read")
    save(folder, release_tensors(parts["weight"]), "model.ckpt-best")
    return folder


def test_outputs_are_those_of_the_weights(release, tmp_path, stored):
    converted = tf1.read(release)
    assert converted.leftover == []
    assert converted.config.encoder.activation == "gelu_tanh"
    converted_model.write(converted, tmp_path / "model")
    _, tokenizer, model = model_folder.restore(tmp_path / "model")
    _, parts, hidden_states = stored
    assert systems.compare(model, parts, hidden_states) == {}
    assert tokenizer.decode(tokenizer.encode(["the cat"])[0]) == "the cat"
    # Text is prepared as the release does.
    assert tokenizer.rules == TextRules(True, True, False, tokenizer.lower_case)
    assert tokenizer.split_digit_comma


def test_an_encoder_alone_comes_in(release, stored):
    tensors = release_tensors(stored[1]["weight"])
    save(
        release,
        {name: array for name, array in tensors.items() if not name.startswith("cls/")},
        "model.ckpt-best",
    )
    converted = tf1.read(release)
    assert converted.config.objectives == ()
    np.testing.assert_array_equal(
        converted.variables["encoder/group_1_layer_0/feed_forward/outer/kernel"],
        stored[1]["weight"][
            "albert.encoder.albert_layer_groups.1.albert_layers.0.ffn_output.weight"
        ].T,
    )


def test_missing_tensors_and_vocabularies_are_named(release, stored):
    (release / "30k-clean.model").rename(release / "vocabulary")
    with pytest.raises(UserError, match=r"spiece\.model is missing: put the model's vocabulary"):
        tf1.read(release)
    (release / "vocabulary").rename(release / "spiece.model")
    assert tf1.read(release).tokenizer.vocab_size == 40
    tensors = release_tensors(stored[1]["weight"])
    del tensors["bert/encoder/transformer/group_0/inner_group_1/LayerNorm_1/beta"]
    save(release, tensors, "model.ckpt-best")
    with pytest.raises(UserError, match=r"lacks the tensor bert/.*inner_group_1/LayerNorm_1/beta"):
        tf1.read(release)
