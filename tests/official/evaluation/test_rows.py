import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from official.evaluation import rows
from official.tasks import Description
from official.utils.errors import UserError


def test_two_classes_by_hand():
    labels = np.array([1, 1, 1, 0, 0, 1])
    probabilities = np.array(
        [[0.1, 0.9], [0.4, 0.6], [0.8, 0.2], [0.3, 0.7], [0.9, 0.1], [0.2, 0.8]]
    )
    # 3 true positives, 1 false negative, 1 false positive, 1 true negative.
    computed = rows.compute(["accuracy", "f1", "matthews_correlation"], labels, probabilities)
    assert computed["accuracy"] == pytest.approx(4 / 6, abs=1e-12)
    assert computed["f1"] == pytest.approx(2 * 3 / (2 * 3 + 1 + 1), abs=1e-12)
    expected = (3 * 1 - 1 * 1) / np.sqrt((3 + 1) * (3 + 1) * (1 + 1) * (1 + 1))
    assert computed["matthews_correlation"] == pytest.approx(expected, abs=1e-12)
    assert all(type(value) is float for value in computed.values())


def test_probabilities_and_ids_give_the_same():
    rng = np.random.default_rng(0)
    labels, probabilities = rng.integers(0, 3, 200), rng.random((200, 3))
    names = ["accuracy", "f1", "matthews_correlation"]
    computed = rows.compute(names, labels, probabilities)
    assert computed == rows.compute(names, labels, probabilities.argmax(1))
    macro = metrics.f1_score(labels, probabilities.argmax(1), average="macro")
    assert computed["f1"] == pytest.approx(macro, abs=1e-12)


def test_what_is_none_of_the_classes_is_wrong_as_in_the_release_of_t5():
    """Worked by hand after its rules; every prediction below is a label or -1."""
    labels, classes = [0, 0, 0, 1, 1], [-1, -1, -1, 1, 1]
    names = ["accuracy", "f1", "matthews_correlation"]
    # The opposite of each label: 2 true and 3 false positives. A third class for Matthews: no
    # label has it, so the covariance is 2 * 5 - 2 * 2, and it separates the two perfectly.
    assert rows.compute(names, labels, classes, 2) == {
        "accuracy": pytest.approx(0.4),
        "f1": pytest.approx(2 * 2 / (2 * 2 + 3)),
        "matthews_correlation": pytest.approx((2 * 5 - 2 * 2) / (25 - 9 - 4)),
    }
    # One false negative.
    assert rows.compute(["f1"], [0, 1, 1], [0, 1, -1], 2)["f1"] == pytest.approx(2 / 3)
    assert rows.compute(["f1"], [0, 1, 1], [-1, -1, -1], 2)["f1"] == 0
    # Class 0: 1 of 1 predictions and of 2 labels; class 1: all; class 2 is not seen and has 0.
    mean = rows.compute(["f1"], [0, 0, 1], [0, -1, 1], 3)["f1"]
    assert mean == pytest.approx((2 / 3 + 1 + 0) / 3)


def test_f1_of_three_classes_is_a_mean_even_where_two_are_seen():
    labels, predictions = np.array([0, 1, 1]), np.eye(3)[[0, 1, 0]]
    both = metrics.f1_score(labels, [0, 1, 0], average="macro")
    assert rows.compute(["f1"], labels, predictions)["f1"] == pytest.approx(both)


def test_correlations_equal_scipy():
    rng = np.random.default_rng(1)
    labels = np.round(rng.random(300) * 5, 1)  # with ties
    scores = (labels + rng.normal(size=300)).astype(np.float32)
    computed = rows.compute(["pearson", "spearman"], labels, scores)
    assert computed["pearson"] == pytest.approx(stats.pearsonr(labels, scores)[0], abs=1e-9)
    assert computed["spearman"] == pytest.approx(stats.spearmanr(labels, scores)[0], abs=1e-9)


@pytest.mark.filterwarnings("error")
def test_constant_predictions():
    labels = np.array([0.0, 1.0, 2.0])
    computed = rows.compute(["pearson", "spearman"], labels, np.full(3, 0.5))
    assert computed == {"pearson": 0.0, "spearman": 0.0}
    names = ["accuracy", "f1", "matthews_correlation"]
    assert rows.compute(names, [0, 1, 1], [0, 0, 0]) == {
        "accuracy": pytest.approx(1 / 3),
        "f1": 0.0,
        "matthews_correlation": 0.0,
    }


def test_evaluate_leaves_filler_out():
    task = Description("mrpc", "classification", metrics=("accuracy", "f1"))
    outputs = {
        "example_weights": np.array([1.0, 1.0, 0.0]),
        "true_label": np.array([0, 1, 1]),
        "probabilities": np.array([[0.9, 0.1], [0.1, 0.9], [1.0, 0.0]]),
    }
    assert rows.evaluate(task, outputs) == {"accuracy": 1.0, "f1": 1.0}
    task = Description("stsb", "regression", metrics=("pearson",))
    outputs = {
        "example_weights": np.array([1.0, 1.0, 1.0, 0.0]),
        "true_score": np.array([1.0, 2.0, 3.0, 0.0]),
        "score": np.array([-1.0, -2.0, -3.0, 100.0]),
    }
    assert rows.evaluate(task, outputs)["pearson"] == pytest.approx(-1)


def test_errors():
    with pytest.raises(UserError, match=r"no metric 'acuracy' \(did you mean 'accuracy'\?\)"):
        rows.compute(["acuracy"], [0], [0])
    with pytest.raises(UserError, match="there are no examples to compute metrics on"):
        rows.compute(["accuracy"], [], [])
    with pytest.raises(UserError, match="2 labels and 3 predictions cannot be compared"):
        rows.compute(["accuracy"], [0, 1], [0, 1, 1])
    task = Description("sst2", "classification", metrics=("accuracy",))
    with pytest.raises(UserError, match="no labels of the task sst2 .* use --mode=predict"):
        rows.evaluate(task, {"example_weights": np.ones(1)})
