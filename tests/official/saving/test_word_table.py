"""An ELMo with a table of words in the place of its character network."""

import numpy as np
import pytest

import official
from official.saving import derived_models, model_folder
from official.utils.errors import UserError
from tests import commands, sentences
from tests.official.serving.test_words_in_context import HEAD, write


@pytest.mark.slow
def test_words_of_the_vocabulary_have_the_vectors_of_their_characters(tmp_path):
    folder = write(tmp_path / "model")
    commands.run(
        "official.students", f"--teacher={folder}", "--word_table",
        f"--output={tmp_path}/faster", status=0,
    )  # fmt: skip
    whole, faster = official.load(folder), official.load(tmp_path / "faster")
    assert faster.config.encoder.tokens == "words"
    texts = ["w1 né  w2", "", "東京 w39"]
    np.testing.assert_allclose(
        faster.encode(texts, layer="all"), whole.encode(texts, layer="all"), atol=1e-6
    )
    # Other words have the vector of the text "<UNK>".
    found = faster.tokens(["w1 other"], layer=0)[0].vectors
    np.testing.assert_allclose(found, whole.tokens(["w1 <UNK>"], layer=0)[0].vectors, atol=1e-6)
    assert np.abs(found - whole.tokens(["w1 other"], layer=0)[0].vectors).max() > 0.01


def test_weights_of_heads_and_layers_stay(tmp_path):
    larger = {"vocab_size": len(sentences.VOCABULARY) + 3}
    config, tokenizer, model = model_folder.restore(write(tmp_path / "model", HEAD, **larger))
    changed, arrays = derived_models.with_word_table(config, tokenizer, model, "model")
    assert changed.objectives == config.objectives
    for path, variable in model.variables_by_path().items():
        if not path.startswith("encoder/words/"):
            np.testing.assert_array_equal(arrays[path], variable)
    made = model_folder.build(changed).variables_by_path()
    assert {path: v.shape for path, v in made.items()} == {p: a.shape for p, a in arrays.items()}
    with pytest.raises(UserError, match="encoder.type: bilm: this encoder does not read the char"):
        derived_models.with_word_table(changed, tokenizer, model, "model")
