"""A model that reads texts in windows says of a text what a loop over its windows says."""

import numpy as np
import pytest
import tensorflow as tf

from official.utils.errors import UserError
from tests.official.serving.test_predictor import BERT, XLNET, load, server

READING = {"windows": 3, "window_overlap": 2}
# Their words are their tokens; a window has six of them.
TEXTS = ["the cat sat on a mat", "a", "the cat " * 4 + "sat on a mat", "mat a on " * 30, ""]
TEXTS.append("cat on mat a dog sat the")


def windows_of(text):
    words = text.split()
    starts = [s for s in (0, 4, 8) if s == 0 or len(words) > s + 2]
    return [" ".join(words[s : s + 6]) for s in starts]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("encoder", [BERT, XLNET], ids=["bert", "xlnet"])
def test_outputs_are_joined_over_windows(tmp_path, encoder):
    """The sigmoid of a mean or a maximum of logits; the softmax of their mean; a mean of scores."""
    heads = {
        "mean": {"type": "multi_label", "labels": ["a", "b"]},
        "max": {"type": "multi_label", "labels": ["a", "b"], "join": "max"},
        "class": {"type": "classification", "labels": ["a", "b", "c"]},
        "score": {"type": "regression"},
    }
    for name, head in heads.items():
        options = {"encoder": encoder, "max_length": 8}
        ask = "score" if name == "score" else "classify"
        whole = getattr(load(tmp_path / name, head, **options, **READING), ask)(TEXTS, batch_size=2)
        single = load(tmp_path / f"{name}-single", head, **options)
        for text, found in zip(TEXTS, whole, strict=True):
            parts = getattr(single, ask)(windows_of(text))
            if name == "score":
                expected = np.mean(parts)
            else:
                found = list(found.probabilities.values())
                each = np.array([list(part.probabilities.values()) for part in parts], "float64")
                if name == "class":
                    odds = np.exp(np.mean(np.log(each), axis=0))
                    expected = odds / odds.sum()
                else:
                    logits = np.log(each / (1 - each))
                    joined = logits.max(0) if name == "max" else logits.mean(0)
                    expected = 1 / (1 + np.exp(-joined))
            np.testing.assert_allclose(found, expected, atol=1e-5)
        # A text of one window has the answer of a model that cuts, and a longer one another.
        assert len(windows_of(TEXTS[2])) == 3
        cut = getattr(single, ask)([TEXTS[0], TEXTS[2]])
        numbers = [
            [*each.probabilities.values()] if name != "score" else each
            for each in (cut[0], whole[0], cut[1], whole[2])
        ]
        np.testing.assert_allclose(numbers[0], numbers[1], atol=1e-6)
        assert np.abs(np.subtract(numbers[2], numbers[3])).max() > 1e-3


@pytest.mark.slow
def test_signatures_of_texts_join_and_those_of_ids_do_not(tmp_path):
    model = load(tmp_path, {"type": "regression", "join": "max"}, max_length=8, **READING)
    signatures = server(model, **READING)
    scores = model.score([TEXTS[2]])
    example = tf.train.Example()
    example.features.feature["text"].bytes_list.value.append(TEXTS[2].encode())
    served = signatures["serve_text_examples"](tf.constant([example.SerializeToString()]))
    np.testing.assert_allclose(served["outputs"][:, 0], scores, atol=1e-6)
    ids = model.tokenizer.encode([windows_of(TEXTS[2])[1]])[0]
    row = tf.constant([[model.tokenizer.cls_id, *ids, model.tokenizer.sep_id]])
    (alone,) = signatures["tokens"](row, tf.ones_like(row), tf.zeros_like(row))["score"]
    parts = model.score(windows_of(TEXTS[2]))
    assert float(alone) == pytest.approx(parts[1], abs=1e-6)
    assert scores[0] == pytest.approx(parts.max(), abs=1e-6)


def test_a_window_without_room_for_the_overlap_is_refused(tmp_path):
    reading = {"windows": 3, "window_overlap": 6}
    model = load(tmp_path, {"type": "regression"}, max_length=8, **reading)
    with pytest.raises(UserError, match="window_overlap: 6: a window of 8 tokens has room for 6"):
        model.score(["a"])
