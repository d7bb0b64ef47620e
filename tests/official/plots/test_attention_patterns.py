"""Shares and entropy of attention: closed forms, and a loop over the weights of a model."""

import math

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.modeling.model import Model
from official.plots import attention_patterns, text_means
from official.utils.errors import UserError
from tests import small
from tests.official.plots.test_layer_distances import BERT, TEXTS, XLNET, model_of

N, LENGTH = 5, 7  # tokens, and columns with padding


def sums(make, real):
    """The sums of one head, whose weights of two rows of padding masks `make` makes."""
    weights = np.zeros((2, 1, LENGTH, LENGTH), np.float32)
    special = np.zeros((2, LENGTH), bool)
    for row, mask in enumerate(real):
        columns = np.flatnonzero(mask)
        weights[row, 0][np.ix_(columns, columns)] = make(len(columns))
        weights[row, 0][~mask] = np.nan  # what padding attends to is of no matter
        special[row, columns[[0, -1]]] = True
    actual = attention_patterns.pattern_sums(
        tf.constant(weights), tf.constant(real), tf.constant(special), window=2
    ).numpy()
    return dict(zip(attention_patterns.PATTERNS, actual[0], strict=True))


@pytest.fixture
def real():
    """Padding on the right of one row, on the left of the other."""
    columns = np.arange(LENGTH)
    return np.stack([columns < N, columns >= LENGTH - 3])


def test_equal_attention(real):
    actual = sums(lambda n: np.full((n, n), 1 / n), real)
    near = {5: 3 + 4 + 5 + 4 + 3, 3: 9}  # keys at most two away, of all queries
    expected = {
        "itself": 1 + 1,
        "previous": 4 / 5 + 2 / 3,
        "next": 4 / 5 + 2 / 3,
        "near": near[5] / 5 + near[3] / 3,
        "earlier": 2 + 1,
        "later": 2 + 1,
        "first": 1 + 1,
        "special": 2 + 2,
        "entropy": 5 * math.log(5) + 3 * math.log(3),
    }
    assert actual == pytest.approx(expected, rel=1e-6)


def test_attention_to_one_token(real):
    none = dict.fromkeys(attention_patterns.PATTERNS, 0)
    ends = {"first": 2, "special": 4}
    itself = {"itself": 8, "near": 8}
    assert sums(np.eye, real) == pytest.approx({**none, **itself, **ends})
    before = {"previous": 6, "earlier": 6, "near": 8, "itself": 2}
    actual = sums(lambda n: np.eye(n)[[0, *range(n - 1)]], real)
    assert actual == pytest.approx({**none, **before, "first": 4, "special": 4})
    far = {"later": 2, "near": 2}  # the third token, two from the first of five tokens
    after = sums(lambda n: np.eye(n)[[2, *range(1, n)]], real)
    assert after == pytest.approx({**none, **far, "itself": 6, "near": 8, "first": 0, "special": 3})


@pytest.mark.parametrize("encoder", [BERT, pytest.param(XLNET, marks=pytest.mark.slow)])
def test_means_over_the_tokens_of_texts(tmp_path, encoder):
    """As a loop has it for one text after the other, for padding on either side."""
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path))
    model = model_of(**encoder)
    tokens, equal = [], []
    for text in (text for text in TEXTS if text.strip()):
        batch = text_means.packed([text], tokenizer, model, 9)
        layers = np.stack(model.encode(batch, output_all=True)["attentions"])[:, 0]
        special = np.isin(batch["token_ids"][0], [tokenizer.cls_id, tokenizer.sep_id])
        assert special.sum() == 2
        count = len(special)
        equal += [[1 / count, math.log(count)]] * count
        for query in range(count):
            rows = np.float64(layers[:, :, query])  # [L, N, T]
            distances = np.arange(count) - query
            keys = {
                "itself": distances == 0,
                "previous": distances == -1,
                "next": distances == 1,
                "near": abs(distances) <= 3,
                "earlier": distances < 0,
                "later": distances > 0,
                "first": np.arange(count) == 0,
                "special": special,
            }
            values = [rows[..., chosen].sum(-1) for chosen in keys.values()]
            tokens.append(np.stack([*values, -(rows * np.log(rows)).sum(-1)], axis=-1))
    rows = attention_patterns.measure(TEXTS, tokenizer, model, window=3, max_length=9, batch_size=2)
    names = [(row.pop("layer"), row.pop("head")) for row in rows]
    assert names == [("all", "equal"), (0, 0), (0, 1), (1, 0), (1, 1)]
    assert list(rows[0]) == [*keys, "entropy"]
    actual = np.reshape([list(row.values()) for row in rows[1:]], (2, 2, -1))
    np.testing.assert_allclose(actual, np.mean(tokens, axis=0), rtol=1e-4)
    assert [rows[0]["itself"], rows[0]["entropy"]] == pytest.approx(np.mean(equal, axis=0))


def test_an_encoder_without_attention_is_refused():
    config = small.config(
        encoder={
            "type": "bilm",
            "vocab_size": 8,
            "tokens": "words",
            "memory_length": 0,
            "projection_size": 4,
            "cell_size": 6,
        },
        objectives=[],
        corruption=None,
    )
    with pytest.raises(UserError, match="--model_dir: its encoder, bilm, has no attention"):
        text_means.attentions({}, Model(config))


def rows(layers, heads):
    names = [("all", "equal"), *((i, j) for i in range(layers) for j in range(heads))]
    return [
        {"layer": i, "head": j, **dict.fromkeys(attention_patterns.PATTERNS, k / 10)}
        for k, (i, j) in enumerate(names)
    ]


def test_a_panel_for_each_share_and_model():
    *panels, bar = attention_patterns.draw({"bert": rows(2, 3), "xlnet": rows(2, 3)}).axes
    assert len(panels) == 2 * len(attention_patterns.SHARES)
    assert [axes.get_title() for axes in panels[:8]] == list(attention_patterns.SHARES)
    for axes in panels:
        values = axes.images[0].get_array()
        np.testing.assert_allclose(values, [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    assert bar.get_ylabel() == "share of attention"
    with pytest.raises(UserError, match=r"--output: .* \(a has 2 × 3, b has 3 × 2\): name a \.tsv"):
        attention_patterns.draw({"a": rows(2, 3), "b": rows(3, 2)})
