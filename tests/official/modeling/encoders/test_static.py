"""Static vectors against a loop over the tokens of each row.

Shapes: B rows, T tokens, V pieces, D size of a vector.
"""

import numpy as np
import pytest

from official.config.encoders import StaticConfig
from official.modeling import masks
from official.modeling.encoders.inputs import encode
from official.modeling.encoders.static import Encoder
from official.modeling.layers import pooling
from official.modeling.layers.random import Draws

V, D, SKIPPED = 11, 6, (0, 1, 2, 3)
PLAIN = StaticConfig(vocab_size=V, hidden_size=D, skipped_ids=SKIPPED)
# [CLS] 2, [SEP] 3, [UNK] 1; the last row has no token that counts.
IDS = np.array([[2, 5, 7, 5, 1, 10, 3], [2, 4, 3, 0, 0, 0, 0], [2, 1, 1, 3, 0, 0, 0]], np.int32)
REAL = np.array([[1] * 7, [1] * 3 + [0] * 4, [1] * 4 + [0] * 3], bool)


def make(config=PLAIN, dtype="float64"):
    encoder = Encoder(config, dtype=dtype)
    encoder.build()
    rng = np.random.default_rng(0)
    for variable in encoder.weights:
        if variable.dtype != "int32":
            variable.assign(rng.normal(size=variable.shape))
    return encoder, {v.path.removeprefix("encoder/"): v.numpy() for v in encoder.weights}


def means(vectors, skipped=SKIPPED):
    """The mean of the vectors [V, D] of the tokens of each row that count, 0 without any."""
    rows = []
    for ids, real in zip(IDS, REAL, strict=True):
        counted = [vectors[i] for i, r in zip(ids, real, strict=True) if r and i not in skipped]
        rows.append(np.mean(counted, axis=0) if counted else np.zeros(D))
    return np.array(rows)


def test_a_text_has_the_mean_of_its_tokens():
    encoder, weights = make()
    table = weights["token_embedding/table"]
    encoded = encode(encoder, {"token_ids": IDS, "padding_mask": REAL}, output_all=True)
    np.testing.assert_array_equal(encoded["sequence_output"], table[IDS])
    np.testing.assert_array_equal(encoded["hidden_states"][0], table[IDS])
    np.testing.assert_allclose(encoded["pooled_output"], means(table), atol=1e-12)
    assert not np.any(encoded["pooled_output"][2])
    # The unknown token counts if it is not among the skipped ones, and so does padding.
    encoder, _ = make(StaticConfig(vocab_size=V, hidden_size=D, skipped_ids=(2, 3)))
    found = encode(encoder, {"token_ids": IDS, "padding_mask": REAL})["pooled_output"]
    np.testing.assert_allclose(found, means(table, (2, 3)), atol=1e-12)
    assert np.abs(found[2]).max() > 0.1
    unmasked = np.mean(table[[4, 0, 0, 0, 0]], axis=0)
    np.testing.assert_allclose(encoder(IDS)["pooled_output"][1], unmasked, atol=1e-12)


def test_pieces_share_rows_and_have_weights():
    config = StaticConfig(vocab_size=V, hidden_size=D, num_rows=4, skipped_ids=SKIPPED)
    encoder, weights = make(config)
    assert {path: x.shape for path, x in weights.items()} == {
        "token_embedding/table": (4, D), "rows": (V,), "weights": (V, 1),
    }  # fmt: skip
    assert weights["rows"].tolist() == [i % 4 for i in range(V)]
    encoder.piece_rows.assign(rows := np.array([0, 3, 2, 1, 1, 0, 3, 2, 0, 1, 2], np.int32))
    vectors = weights["token_embedding/table"][rows] * weights["weights"]
    encoded = encode(encoder, {"token_ids": IDS, "padding_mask": REAL})
    np.testing.assert_allclose(encoded["sequence_output"], vectors[IDS], atol=1e-12)
    np.testing.assert_allclose(encoded["pooled_output"], means(vectors), atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_empty_text_is_zero_in_half_precision(dtype):
    encoder, _ = make(dtype=dtype)
    encoded = encode(encoder, {"token_ids": IDS, "padding_mask": REAL})
    real = np.ones((3, 1), bool)
    vectors = pooling.pooled(
        encoded["sequence_output"], real, ("pooled",), pooler=encoded["pooled_output"]
    )
    found = np.asarray(pooling.normalized(vectors))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1, 0], atol=1e-3)


def test_parts_of_a_row_have_means_of_their_own():
    encoder, weights = make()
    table = weights["token_embedding/table"]
    starts = np.array([[0, 4], [0, 0], [0, 2]], np.int32)
    parts = np.array([[0] * 4 + [1] * 3, [0] * 7, [0, 0, 1, 1, 0, 0, 0]], np.int32)
    batch = {"token_ids": IDS, "padding_mask": REAL, "part_ids": parts, "part_starts": starts}
    found = encode(encoder, batch)["pooled_output"]
    np.testing.assert_allclose(found[0], [table[[5, 7, 5]].mean(0), table[10]], atol=1e-12)
    np.testing.assert_allclose(found[1:], [[table[4]] * 2, np.zeros((2, D))], atol=1e-12)
    mask = masks.padding(REAL)
    chosen = encoder(IDS, attention_mask=mask, pooled_positions=starts)["pooled_output"]
    np.testing.assert_allclose(chosen, np.stack([means(table)] * 2, axis=1), atol=1e-12)


def test_dropout_is_drawn_in_training():
    config = StaticConfig(vocab_size=V, hidden_size=D, skipped_ids=SKIPPED, dropout=0.5)
    encoder, weights = make(config)
    batch = {"token_ids": IDS, "padding_mask": REAL}
    dropped = np.asarray(encode(encoder, batch, Draws.of_name(1, "x"))["sequence_output"])
    kept = dropped != 0
    np.testing.assert_allclose(dropped[kept], 2 * weights["token_embedding/table"][IDS][kept])
    assert 0.3 < kept.mean() < 0.7


def test_the_tokenizer_says_what_is_skipped():
    config = StaticConfig(hidden_size=D)
    filled = config.of_vocabulary(V, (0, 3))
    assert (filled.vocab_size, filled.skipped_ids) == (V, (0, 3))
    kept = StaticConfig(vocab_size=20, hidden_size=D, skipped_ids=()).of_vocabulary(V, (0, 3))
    assert (kept.vocab_size, kept.skipped_ids) == (20, ())
    with pytest.raises(ValueError, match="skipped_ids: .-1.: ids begin at 0"):
        StaticConfig(skipped_ids=(-1,))
