"""Filled masks against the pipeline of transformers, computed anew, for all tokens."""

from tests import fill_masks


def test_all_words_and_probabilities_are_those_of_transformers(hf, tmp_path):
    for name, rows in fill_masks.expected(hf, tmp_path).items():
        model, texts = fill_masks.loaded(tmp_path / "hf" / name, tmp_path / name)
        fill_masks.compare(model.fill_mask(texts, top_k=1000), rows)
