import numpy as np
import pytest

from official.conversion import converted_model, huggingface
from official.plots import attention
from official.saving import model_folder
from official.utils.errors import UserError
from tests import ROOT

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
