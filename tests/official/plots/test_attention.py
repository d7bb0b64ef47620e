import numpy as np
import pytest

from official.conversion import converted_model, huggingface
from official.modeling.layers.disentangled import table_rows
from official.plots import attention
from official.saving import model_folder
from official.utils.errors import UserError
from tests import ROOT
from tests.official.serving.test_predictor import DEBERTA, MODERN, load

GOLDEN = ROOT / "tests" / "golden" / "hf_files"
T5 = ROOT / "tests" / "golden" / "t5" / "v1_0"


def test_attention_is_the_models_own(tmp_path):
    converted_model.write(huggingface.read(GOLDEN / "pretraining"), tmp_path / "model")
    config, tokenizer, model = model_folder.restore(tmp_path / "model")
    tokens, layers = attention.weights("the cat sat on a mat", tokenizer, model)
    assert tokens[0] == "[CLS]" and tokens[-1] == "[SEP]"
    encoder = config.encoder
    assert len(layers) == encoder.num_layers
    ids = np.array([[tokenizer.pieces.index(token) for token in tokens]], np.int32)
    expected = model.encode({"token_ids": ids}, output_all=True)["attentions"]
    for layer, values in zip(layers, expected, strict=True):
        assert layer.shape == (encoder.num_heads, len(tokens), len(tokens))
        np.testing.assert_allclose(layer, values[0], atol=1e-6)
        np.testing.assert_allclose(layer.sum(axis=-1), 1, atol=1e-5)
    assert attention.weights("the cat sat on a mat", tokenizer, model, 4)[0][-1] == "[SEP]"
    with pytest.raises(UserError, match="has no token"):
        attention.weights("", tokenizer, model)


def test_a_local_layer_has_weights_nearby_alone(tmp_path):
    loaded = load(tmp_path / "model", encoder=MODERN)
    text = "The cat sat on a mat, and the dog ran."
    tokens, layers = attention.weights(text, loaded.tokenizer, loaded.model)
    places = np.arange(len(tokens))
    near = np.abs(places[:, None] - places) <= 2
    assert len(tokens) > 10
    for layer, allowed in zip(layers, (np.ones_like(near), near), strict=True):
        assert layer.shape == (3, len(tokens), len(tokens))
        np.testing.assert_array_equal(layer > 0, np.broadcast_to(allowed, layer.shape))
        np.testing.assert_allclose(layer.sum(axis=-1), 1, atol=1e-5)


def test_the_weights_of_disentangled_attention_are_of_all_three_terms(tmp_path):
    loaded = load(tmp_path / "model", encoder=DEBERTA)
    tokens, layers = attention.weights("The cat sat on a mat.", loaded.tokenizer, loaded.model)
    v = {p: x.numpy() for p, x in loaded.model.variables_by_path().items()}
    name = "encoder/layer_0/attention/query_key_value"
    kernels, biases = (np.split(v[f"{name}/{part}"], 3, axis=-1) for part in ("kernel", "bias"))
    table = v["encoder/distance_table/table"]
    table = table - table.mean(axis=1, keepdims=True)
    table /= np.sqrt((table**2).mean(axis=1, keepdims=True) + 1e-12)  # with its first scale
    ids = np.array([[loaded.tokenizer.pieces.index(token) for token in tokens]], np.int32)
    x = loaded.model.encode({"token_ids": ids}, output_all=True)["hidden_states"][0][0].numpy()
    for head in range(3):
        own = slice(4 * head, 4 * head + 4)
        query, key, far_query, far_key = (
            (rows @ kernels[part] + biases[part])[:, own]
            for rows, part in ((x, 0), (x, 1), (table, 0), (table, 1))
        )
        for i in range(len(tokens)):
            rows = table_rows(i - np.arange(len(tokens)), buckets=4, max_distance=9)
            scores = [
                query[i] @ key[j] + query[i] @ far_key[r] + key[j] @ far_query[r]
                for j, r in enumerate(rows)
            ]
            chances = np.exp(np.array(scores) / np.sqrt(12))
            np.testing.assert_allclose(layers[0][head, i], chances / chances.sum(), atol=1e-5)


def test_the_encoder_of_an_encoder_decoder_reads_a_text_and_its_end(tmp_path):
    converted_model.write(huggingface.read(T5), tmp_path / "model")
    _, tokenizer, model = model_folder.restore(tmp_path / "model")
    tokens, layers = attention.weights("the cat", tokenizer, model)
    words = tokenizer.encode(["the cat"])[0].tolist()
    assert [tokenizer.pieces.index(token) for token in tokens] == [*words, tokenizer.sep_id]
    ids = np.array([[*words, tokenizer.sep_id]], np.int32)
    expected = model.encode({"token_ids": ids}, output_all=True)["attentions"]
    assert len(layers) == len(expected) == 2
    for layer, values in zip(layers, expected, strict=True):
        np.testing.assert_allclose(layer, values[0], atol=1e-6)
    cut = attention.weights("the cat", tokenizer, model, 3)[0]
    assert cut == [*tokens[:2], tokens[-1]]


def test_cross_attention_is_drawn_with_the_target_down_and_the_text_across():
    layers = list(np.random.default_rng(0).random((2, 3, 4, 5)))
    inputs, targets = ["a", "b", "c", "d", "</s>"], ["x", "y", "z", "</s>"]
    *panels, _ = attention.draw_cross(inputs, targets, layers).axes
    drawn = np.reshape([axes.images[0].get_array() for axes in panels], (2, 3, 4, 5))
    np.testing.assert_array_equal(drawn, layers)
    assert [label.get_text() for label in panels[0].get_yticklabels()] == targets
    assert [label.get_text() for label in panels[-1].get_xticklabels()] == inputs


def test_each_head_of_each_layer_is_drawn():
    layers = list(np.random.default_rng(0).random((2, 3, 4, 4)))
    tokens = ["[CLS]", "a", "b", "[SEP]"]
    *panels, bar = attention.draw(tokens, layers).axes
    assert [axes.get_title() for axes in panels] == [
        f"layer {i} head {j}" for i in range(2) for j in range(3)
    ]
    drawn = np.reshape([axes.images[0].get_array() for axes in panels], (2, 3, 4, 4))
    np.testing.assert_array_equal(drawn, layers)
    assert [label.get_text() for label in panels[0].get_yticklabels()] == tokens
    assert bar.get_ylabel() == "attention weight"
