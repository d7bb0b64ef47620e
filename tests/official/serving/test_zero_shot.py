"""Classes by textual entailment: the numbers of transformers, and what is refused."""

import numpy as np
import pytest
import scipy.special

from official.serving.zero_shot import Entailment, hypotheses
from official.tokenizers.pair_packing import pack_texts
from official.utils.errors import UserError
from tests.official.serving.test_predictor import constants, load

NLI = ["contradiction", "neutral", "entailment"]
TEXTS = ["a cat sat", "", "dog dog bird", "bird"]
CLASSES = ["cat", "dog bird", "bird"]


def test_the_probabilities_of_transformers():
    # Three hypotheses; transformers 4.57.6 gives these for one label and for several.
    logits = np.array(
        [[[0.1606, -0.0470, 0.1138], [0.1607, -0.0472, 0.1139], [0.1607, -0.0469, 0.1139]]]
    )
    decide = Entailment.of(NLI)
    one = [[0.3333238, 0.3333417, 0.3333346]]
    np.testing.assert_allclose(decide.probabilities(logits, False), one, atol=2e-5)
    several = [[0.4883158, 0.4883076, 0.4882969]]
    np.testing.assert_allclose(decide.probabilities(logits, True), several, atol=2e-5)
    alone = decide.probabilities(logits[:, :1], False)
    assert alone == decide.probabilities(logits[:, :1], True) != 1
    large = np.array([[[-900.0, 0, 900], [900, 0, 0]]])  # their exponentials are infinite
    np.testing.assert_array_equal(decide.probabilities(large, False), [[1, 0]])
    np.testing.assert_array_equal(decide.probabilities(large, True), [[1, 0]])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (NLI, (2, 0)),
        (["Entailment", "neutral", "Contradiction"], (0, 2)),
        (["neutral", "CONTRADICTION", "ENTAILMENT"], (2, 1)),  # transformers takes neutral
        (["not_entailment", "entailment"], (1, 0)),
        (["entailed", "other"], (0, 1)),
    ],
)
def test_labels_are_found_by_their_names(labels, expected):
    assert Entailment.of(labels) == expected


@pytest.mark.parametrize(
    ("labels", "template", "message"),
    [
        ("cat, dog", "It is {}.", "labels: give a list"),
        ([], "It is {}.", "labels: there are none"),
        (["cat", " "], "It is {}.", "labels: label 1 is empty"),
        (["cat", None], "It is {}.", "labels"),
        (["cat", "dog", "cat"], "It is {}.", "labels: 'cat' is there twice"),
        (["cat"], "It is a cat.", "has the place of the label, {}, 0 times"),
        (["cat"], "{} is {}.", "has the place of the label, {}, 2 times"),
    ],
)
def test_labels_that_make_no_hypothesis_are_refused(labels, template, message):
    with pytest.raises(UserError, match=message):
        hypotheses(labels, template)


def test_names_may_have_braces():
    assert hypotheses(["{x}", "y"], "Of {}!") == ["Of {x}!", "Of y!"]


def logits_of(loaded, texts, classes):
    """The scores [N, K, C] of the head for each text and hypothesis."""
    first = [text for text in texts for _ in classes]
    second = [f"It is {name}" for name in classes] * len(texts)
    layout = loaded.config.encoder.layout
    batch = pack_texts(constants(first, second), loaded.tokenizer, loaded.max_length, layout)
    (head,) = loaded.model.objectives
    outputs = head.logits(loaded.model.encode(batch))
    return outputs.numpy().reshape(len(texts), len(classes), -1)


def test_classes_are_chosen_by_the_scores_of_their_hypotheses(tmp_path):
    loaded = load(tmp_path, {"type": "classification", "labels": NLI})
    logits = logits_of(loaded, TEXTS, CLASSES)
    found = loaded.classify(TEXTS, labels=CLASSES, hypothesis="It is {}", batch_size=5)
    expected = scipy.special.softmax(logits[:, :, 2], axis=1)
    for each, row in zip(found, expected, strict=True):
        assert list(each.probabilities) == CLASSES
        np.testing.assert_allclose(list(each.probabilities.values()), row, atol=1e-6)
        assert each.label == CLASSES[row.argmax()]
    assert np.ptp(expected, axis=0).min() > 1e-4
    found = loaded.classify(TEXTS, labels=CLASSES, hypothesis="It is {}", several=True)
    expected = scipy.special.expit(logits[:, :, 2] - logits[:, :, 0])
    for each, row in zip(found, expected, strict=True):
        np.testing.assert_allclose(list(each.probabilities.values()), row, atol=1e-6)
        assert each.labels == tuple(np.array(CLASSES)[row >= 0.5])
    assert loaded.classify([], labels=CLASSES) == []


def test_what_is_not_entailment_is_refused(tmp_path):
    loaded = load(tmp_path / "other", {"type": "classification", "labels": ["bad", "good"]})
    with pytest.raises(UserError, match="'entailment', but this one has 'bad', 'good'"):
        loaded.classify(TEXTS, labels=CLASSES)
    with pytest.raises(UserError, match=r"add labels=\[...\]"):
        loaded.classify(TEXTS, several=True)
    loaded = load(tmp_path / "nli", {"type": "classification", "labels": NLI})
    with pytest.raises(UserError, match="for single texts"):
        loaded.classify(TEXTS, TEXTS, labels=CLASSES)
    with pytest.raises(UserError, match="for single texts"):
        loaded.classify([("a", "b")], labels=CLASSES)
