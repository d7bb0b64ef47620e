"""The losses of rankings: worked values, and formulas in plain loops.

Shapes: B queries, C documents of a query.
"""

import math

import numpy as np
import pytest
import tensorflow as tf

from official.config.heads import LOSSES, KernelRankingConfig, RankingConfig
from official.modeling.objectives import ranking_losses

# A list of three documents and one of two, which a document without meaning fills.
SCORES = np.array([[0.5, 2.0, -1.0], [1.0, -0.5, 7.0]])
GRADES = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 5.0]])
MASK = np.array([[True, True, True], [True, True, False]])
AS_GIVEN = np.array([[3.0, 2.0, 1.0], [2.0, 1.0, 0.0]])  # grades in the order of the documents
# The scores of both losses of a teacher: three documents each.
MARGINS = np.array([[3.0, 1.0, 0.5], [1.0, 2.0, -1.0]])
FULL = np.ones((2, 3), bool)


def value(scores, labels, mask=MASK, **settings):
    """The mean of a loss over a batch, and its gradient."""
    config = RankingConfig(**settings)
    loss = ranking_losses.LOSSES[config.loss]
    scores, labels, mask = tf.constant(scores), tf.constant(labels), tf.constant(mask)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        counts = loss.counts(labels, mask, config)
        if config.k is not None:
            kept = ranking_losses.kept_pairs(scores, labels, mask, config)
            counts = tf.reduce_sum(tf.cast(kept, scores.dtype), axis=(1, 2))
        total = tf.reduce_sum(loss.of(scores, labels, mask, config))
        mean = tf.math.divide_no_nan(total, tf.reduce_sum(counts))
    return float(mean), tape.gradient(mean, scores).numpy()


LAMBDA = {"loss": "lambda"}
WORKED = [
    ({"loss": "list_net"}, GRADES, 1.4036330),
    ({"loss": "list_mle"}, AS_GIVEN, 0.9956560),
    ({"loss": "list_mle"}, GRADES, 1.7456560),
    ({"loss": "p_list_mle"}, AS_GIVEN, 0.7597718),
    ({"loss": "p_list_mle"}, GRADES, 1.5097718),
    ({"loss": "adr_mse"}, GRADES, 0.4981596),
    ({"loss": "adr_mse", "scale": 2.0}, GRADES, 0.6101365),
    ({"loss": "rank_net"}, GRADES, 1.3174789),
    (LAMBDA, GRADES, 4.1016779),
    (LAMBDA | {"scheme": "ndcg_loss1"}, GRADES, 0.3466712),
    (LAMBDA | {"scheme": "ndcg_loss2"}, GRADES, 0.3740173),
    (LAMBDA | {"scheme": "lambda_rank"}, GRADES, 0.3615050),
    (LAMBDA | {"k": 1}, GRADES, 5.5503144),
    (LAMBDA | {"scale": 2.0}, GRADES, 6.9785047),
]


@pytest.mark.parametrize("settings, labels, expected", WORKED)
def test_worked_values(settings, labels, expected):
    loss, gradient = value(SCORES, labels, **settings)
    assert loss == pytest.approx(expected, rel=2e-7)  # those of float32
    assert np.abs(gradient[MASK]).max() > 0.01 and gradient[1, 2] == 0
    # What fills a list has no effect, whatever its score and its grade are.
    for fill in (-100.0, 0.0, 30.0):
        scores, grades = SCORES.copy(), labels.copy()
        scores[1, 2], grades[1, 2] = fill, -fill
        other, slope = value(scores, grades, **settings)
        assert other == pytest.approx(loss, abs=1e-12)
        np.testing.assert_allclose(slope, gradient, atol=1e-12)


def test_worked_values_of_a_teacher():
    labels = np.array([[5.0, 1.0, 0.0], [1.0, 2.0, 0.0]])
    assert value(MARGINS, labels, FULL, loss="margin_mse")[0] == pytest.approx(2.8125, abs=1e-12)
    first = np.array([[True, True, False]] * 2)  # of one negative: the margins 4 and -1
    assert value(MARGINS, labels, first, loss="margin_mse")[0] == pytest.approx(2.0, abs=1e-12)
    three, grades = np.array([[2.0, -1.0, 0.5]]), np.array([[1.0, 0.0, 0.5]])
    mean, _ = value(three, grades, FULL[:1], loss="mse")
    assert mean == pytest.approx(0.6666667, abs=5e-8)
    mean, _ = value(three, np.array([[1.0, 0.0, 0.0]]), FULL[:1], loss="pointwise")
    assert mean == pytest.approx(0.4714222, abs=5e-8)


def test_positions_of_long_lists_have_the_weights_of_the_formula():
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 300):
        scores, labels = rng.normal(size=(1, n)), np.arange(n)[None, ::-1] * 1.0
        weights = [2 ** (n - i) - 1 for i in range(1, n + 1)]  # of 5: 15, 7, 3, 1, 0
        tails = np.logaddexp.accumulate(scores[0, ::-1])[::-1]
        terms = zip(weights, tails - scores[0], strict=True)
        expected = sum(weight / max(sum(weights), 1) * term for weight, term in terms)
        loss, gradient = value(scores, labels, np.ones((1, n), bool), loss="p_list_mle")
        assert loss == pytest.approx(float(expected), rel=1e-12, abs=1e-12)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["list_net", "rank_net", "lambda", "p_list_mle", "pairwise"])
def test_a_document_alone_teaches_nothing(name):
    loss, gradient = value([[1.5]], [[2.0]], [[True]], loss=name)
    assert loss == 0 and np.all(gradient == 0)


@pytest.mark.parametrize("name", ["rank_net", "lambda", "pairwise"])
def test_equal_grades_teach_nothing_of_pairs(name):
    loss, gradient = value(SCORES, np.ones_like(GRADES), loss=name)
    assert loss == 0 and np.all(gradient == 0)


def test_equal_scores_keep_the_order_of_the_documents():
    """As in a list of which the model knows nothing yet; the weights depend on the order."""
    labels, k = [[0.0, 2.0, 1.0]], 1
    loss, _ = value(np.zeros((1, 3)), labels, FULL[:1], loss="rank_net", k=k)
    assert loss == pytest.approx(1.0)  # log2 of 1 / sigmoid(0), of each of two pairs
    config = RankingConfig(loss="lambda", k=k)
    given = tf.zeros((1, 3)), tf.constant(labels), tf.constant(FULL[:1])
    kept = ranking_losses.kept_pairs(*given, config)
    # The first document is the first by rank: pairs with it count.
    assert np.argwhere(kept[0].numpy()).tolist() == [[1, 0], [2, 0]]


def test_negative_grades_have_no_gain_but_an_order():
    labels = np.array([[1.0, 0.0, -2.0]])
    rows = [value(SCORES[:1], labels, FULL[:1], loss="rank_net")[0]]
    rows.append(value(SCORES[:1], np.array([[2.0, 1.0, 0.0]]), FULL[:1], loss="rank_net")[0])
    assert rows[0] == rows[1] > 0
    with_it = value(SCORES[:1], labels, FULL[:1], loss="lambda")[0]
    pairs = ranking_losses.ordered(tf.constant(labels), tf.constant(FULL[:1]))
    assert int(tf.reduce_sum(tf.cast(pairs, tf.int32))) == 3
    without = value(SCORES[:1], np.maximum(labels, 0), FULL[:1], loss="lambda")[0]
    assert with_it * 3 == pytest.approx(without * 2)  # the third pair has weight 0


def test_the_losses_of_pairs_are_those_of_a_loop():
    def loop(row, grades, real):
        pairs = [(i, j) for i in range(3) for j in range(3) if real[i] and real[j]]
        pairs = [(i, j) for i, j in pairs if grades[i] > grades[j]]
        return sum(max(0.0, 0.7 - row[i] + row[j]) for i, j in pairs) / len(pairs)

    expected = sum(map(loop, SCORES, GRADES, MASK)) / 2
    assert value(SCORES, GRADES, loss="pairwise", margin=0.7)[0] == pytest.approx(expected)
    # The first document is the class; documents of its grade are none.
    labels = np.array([[2.0, 1.0, 2.0], [1.0, 0.0, 0.0]])
    expected = [math.log(1 + math.exp(2.0 - 0.5)), math.log(1 + math.exp(-0.5 - 1.0))]
    assert value(SCORES, labels, loss="softmax")[0] == pytest.approx(sum(expected) / 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_triples_have_the_losses_of_before_to_the_bit(dtype):
    """A relevant document and another one: the formulas that were there before lists."""
    scores = tf.constant(np.random.default_rng(0).normal(size=(64, 2)) * 3, dtype)

    def before(scores, name):
        if name == "pairwise":
            margins = scores[:, :1] - scores[:, 1:]
            return tf.reduce_mean(tf.nn.relu(1.0 - margins), axis=1)
        if name == "softmax":
            first = tf.zeros(64, "int32")
            return tf.nn.sparse_softmax_cross_entropy_with_logits(first, scores)
        return tf.reduce_mean(tf.nn.softplus(scores), axis=1) - scores[:, 0] / 2

    labels, mask = tf.constant([[1.0, 0.0]] * 64, dtype), tf.ones((64, 2), bool)
    for name in ("pairwise", "softmax", "pointwise"):
        config = RankingConfig(loss=name)
        results = []
        for of in (before, None):
            with tf.GradientTape() as tape:
                tape.watch(scores)
                loss = ranking_losses.LOSSES[name]
                losses = before(scores, name) if of else loss.of(scores, labels, mask, config)
            results.append((losses.numpy(), tape.gradient(losses, scores).numpy()))
        (old, old_slope), (new, new_slope) = results
        assert old.tobytes() == new.tobytes()
        np.testing.assert_array_equal(old_slope, new_slope)  # -0 and 0 are the same


def test_configs_name_the_losses_of_the_table():
    assert tuple(ranking_losses.LOSSES) == LOSSES


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"loss": "lambda", "k": 0}, "k: 0 is less than 1"),
        ({"loss": "list_net", "k": 3}, "k: loss: list_net has none: take rank_net or lambda"),
        ({"loss": "lambda", "scheme": "ndcg"}, "scheme: 'ndcg' is not one of ndcg_loss1, "),
        ({"loss": "adr_mse", "scale": 0.0}, "scale: 0.0 is not above 0"),
    ],
)
@pytest.mark.parametrize("config", [RankingConfig, KernelRankingConfig])
def test_settings_that_cannot_be(config, settings, message):
    with pytest.raises(ValueError) as error:
        config(**settings)
    assert str(error.value).startswith(message)
