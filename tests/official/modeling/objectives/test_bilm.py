"""Bidirectional language modeling and its sampled words against loops by hand and TensorFlow."""

import math
import types

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.encoders import BilmConfig
from official.config.objectives import BidirectionalLMConfig, MaskedLMConfig, SpanBoundaryConfig
from official.modeling.layers.random import Draws
from official.modeling.objectives import bilm
from official.training import resolve
from official.training.optimizers import Adagrad
from official.utils.errors import UserError

V, P = 50, 4
ENCODER = BilmConfig(vocab_size=V, projection_size=P, initializer="normal")
RNG = np.random.default_rng(0)
BATCH = {
    "target_ids": RNG.integers(0, V, (3, 5)).astype(np.int32),
    "backward_target_ids": RNG.integers(0, V, (3, 5)).astype(np.int32),
    "padding_mask": np.ones((3, 5), bool),
    "example_weights": np.float32([1, 1, 0]),
}
STATES = RNG.standard_normal((3, 5, 2 * P))


def make(dtype="float64", **settings):
    objective = bilm.Objective(BidirectionalLMConfig(**settings), ENCODER, dtype=dtype)
    objective.build()
    rng = np.random.default_rng(1)
    for variable in objective.variables:
        variable.assign(rng.standard_normal(variable.shape))
    return objective


def by_hand(objective, hidden, targets):
    """Sums of the losses and of the right words over examples of weight 1."""
    kernel, bias = (variable.numpy() for variable in (objective.kernel, objective.bias))
    loss = hits = 0
    for b in range(2):
        for t in range(5):
            logits = kernel @ hidden[b, t] + bias
            loss += np.log(np.exp(logits).sum()) - logits[targets[b, t]]
            hits += logits.argmax() == targets[b, t]
    return loss, hits


@pytest.mark.parametrize("at_once", [1 << 24, 4 * V])
def test_full_losses_by_hand(monkeypatch, at_once):
    monkeypatch.setattr(bilm, "_LOGITS_AT_ONCE", at_once)
    objective = make(weight=20.0, samples=12)

    @tf.function
    def compute():
        terms = objective.terms(BATCH, {"sequence_output": tf.constant(STATES)}, None)
        return terms.losses, terms.metrics

    computed, metrics = compute()
    for i, direction in enumerate(("forward", "backward")):
        field = "target_ids" if direction == "forward" else "backward_target_ids"
        loss, hits = by_hand(objective, STATES[..., i * P : (i + 1) * P], BATCH[field])
        np.testing.assert_allclose(computed[f"bilm_{direction}"], loss, rtol=1e-10)
        assert [float(x) for x in metrics[f"bilm_{direction}_accuracy"]] == [hits, 10]
    assert objective.term_weights == {"bilm_forward": 10.0, "bilm_backward": 10.0}
    sums = {name: float(value) for name, value in objective.weight_sums(BATCH).items()}
    assert sums == {"bilm_forward": 10.0, "bilm_backward": 10.0}
    # Without samples, training has the same loss.
    trained = make(samples=0).terms(BATCH, {"sequence_output": STATES}, None, Draws((1, 2)))
    np.testing.assert_allclose(trained.losses["bilm_forward"], computed["bilm_forward"])


def test_sampled_losses_are_those_of_tensorflow():
    objective = make(samples=12)
    hidden, targets = STATES.reshape(-1, 2 * P)[:, :P], BATCH["target_ids"].reshape(-1)
    sampled, tries = bilm.sampled_classes(12, V, Draws((3, 4)))
    assert set(np.array(sampled)) & set(targets)  # accidental hits
    counts = -np.expm1(float(tries) * np.log1p(-law(V)))
    theirs = tf.nn.sampled_softmax_loss(
        objective.kernel.numpy(),
        objective.bias.numpy(),
        targets[:, None].astype(np.int64),
        hidden,
        12,
        V,
        sampled_values=(tf.cast(sampled, tf.int64), counts[targets][:, None], counts[sampled]),
    )
    ours = objective.sampled_losses(hidden, targets, Draws((3, 4)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def softmax_gradient(kernel, hidden, logits):
    """The gradient of log Z by a hidden state."""
    shares = np.exp(logits - logits.max())
    return shares @ kernel / shares.sum()


@pytest.mark.slow
def test_expectation_of_sampled_words_is_the_gradient_of_all_words():
    """100,000 draws: the sums that the softmax divides are those of all words, within 3 sigma."""
    objective, count, times = make(samples=10), 10, 100_000
    kernel, bias = objective.kernel.numpy(), objective.bias.numpy()
    hidden = STATES[0, 0, :P]
    logits = kernel @ hidden + bias
    words, tries = many(count, V, times)
    counts = -np.expm1(tries[:, None].astype(float) * np.log1p(-law(V)[words]))
    weights = np.exp(logits[words]) / counts  # [draws, count]
    totals = weights.sum(1)
    sums = (weights[..., None] * kernel[words]).sum(1)  # [draws, P]
    assert abs(totals.mean() - np.exp(logits).sum()) < 3 * totals.std() / math.sqrt(times)
    exact = softmax_gradient(kernel, hidden, logits)
    actual = sums.mean(0) / totals.mean()
    errors = ((sums - actual * totals[:, None]) / totals.mean()).std(0) / math.sqrt(times)
    assert (abs(actual - exact) < 3 * errors).all() and (errors < 0.02).all()


def test_more_samples_come_closer_to_all_words():
    """The mean gradient of the sampled softmax: its error falls, and is 0 with all words."""
    hidden, targets = STATES.reshape(-1, 2 * P)[:, :P], BATCH["target_ids"].reshape(-1)

    def gradient(losses):
        state = tf.constant(hidden)
        with tf.GradientTape() as tape:
            tape.watch(state)
            loss = tf.reduce_sum(losses(state))
        return tape.gradient(loss, state).numpy()

    exact = gradient(lambda x: make(samples=0).full_losses(x, targets)[0])
    errors = []
    for samples in (5, 40, V):
        objective = make(samples=samples)
        draw = tf.function(
            lambda i, objective=objective: gradient_of(objective, hidden, targets, i)
        )
        mean = np.mean([draw(tf.constant(i)).numpy() for i in range(200)], axis=0)
        errors.append(abs(mean - exact).max())
    assert errors[0] > 2 * errors[1] > 0.001 and errors[2] < 1e-12


def gradient_of(objective, hidden, targets, number):
    state = tf.constant(hidden)
    losses = objective.sampled_losses(state, targets, Draws((number, 1)))
    return tf.gradients(tf.reduce_sum(losses), state)[0]


def test_each_direction_draws_words_of_its_own_that_replicas_share():
    batch = {**BATCH, "backward_target_ids": BATCH["target_ids"]}
    states = np.concatenate([STATES[..., :P]] * 2, axis=-1)
    objective = make(samples=12)

    def losses(pair, first=0):
        rng = Draws(pair, first, len(states))
        return objective.terms(batch, {"sequence_output": states}, None, rng).losses

    first = losses((5, 0))
    assert float(first["bilm_forward"]) != float(first["bilm_backward"])
    replica, step = losses((5, 0), first=2), losses((6, 0))
    assert float(first["bilm_forward"]) == float(replica["bilm_forward"])
    assert float(first["bilm_forward"]) != float(step["bilm_forward"])


def test_gradients_are_sparse_and_right():
    objective = make(samples=6)
    short = {name: value[:, :2] if value.ndim > 1 else value for name, value in BATCH.items()}

    def loss():
        encoded = {"sequence_output": tf.constant(STATES[:, :2])}
        return sum(objective.terms(short, encoded, None, Draws((1, 2))).losses.values())

    optimizer = Adagrad(0.1)

    @tf.function(autograph=False)
    def gradients():
        values = [objective.kernel.value, objective.bias.value]
        found = tf.gradients(
            loss(), values, aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE
        )
        takes = [
            optimizer.takes_rows(grad, variable)
            for grad, variable in zip(found, (objective.kernel, objective.bias), strict=True)
        ]
        assert takes == [True, True]
        return [tf.convert_to_tensor(grad) for grad in found], [grad.indices for grad in found]

    (kernel, bias), rows = gradients()
    # Two directions of 6 words of 3 x 2 positions, and 6 samples.
    assert [len(index) for index in rows] == [24, 24]
    touched = np.flatnonzero(np.abs(kernel.numpy()).sum(1))
    assert set(touched) <= set(rows[0].numpy()) and len(touched) < 25
    for variable, gradient in ((objective.kernel, kernel), (objective.bias, bias)):
        for place in np.argwhere(np.abs(gradient.numpy()) > 0)[::5]:
            value = variable.numpy()
            ends = []
            for step in (1e-5, -1e-5):
                moved = value.copy()
                moved[tuple(place)] += step
                variable.assign(moved)
                ends.append(float(loss()))
            variable.assign(value)
            slope = (ends[0] - ends[1]) / 2e-5
            assert gradient.numpy()[tuple(place)] == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_initial_weights():
    objective = bilm.Objective(BidirectionalLMConfig(samples=1), ENCODER)
    objective.build()
    assert objective.kernel.numpy().std() == pytest.approx(P**-0.5, rel=0.2)
    assert (objective.bias.numpy() == 0).all()
    paths = {variable.path for variable in objective.variables}
    assert paths == {"bilm/kernel", "bilm/bias"}


def test_what_is_refused():
    with pytest.raises(ValueError, match="samples: 51 different words cannot be drawn from encode"):
        BidirectionalLMConfig(samples=51).check_encoder(ENCODER)
    # Without a size of the vocabulary in the config, its tokenizer decides.
    raw = {
        "name": "elmo", "recipe": {"steps": 1}, "encoder": {"type": "bilm"},
        "segments": {"format": "stream", "sentences": True, "rows": 8},
        "objectives": [{"type": "bilm", "samples": 51}],
    }  # fmt: skip
    config = configs.from_dict(raw)
    with pytest.raises(UserError, match="samples: 51 .* encoder.vocab_size: 50: lower it, or take"):
        resolve.fill_in(config, V)
    other = types.SimpleNamespace(type="transformer", vocab_size=V, initializer="normal",
                                  initializer_range=0.02)  # fmt: skip
    with pytest.raises(
        ValueError, match="encoder.type: transformer does not have two directions: "
    ):
        BidirectionalLMConfig().check_encoder(other)
    for objective in (MaskedLMConfig(), SpanBoundaryConfig()):
        with pytest.raises(ValueError, match="token table, but encoder.type: bilm has none: take"):
            objective.check_encoder(config.encoder)
    with pytest.raises(ValueError, match="samples"):
        BidirectionalLMConfig(samples=-1)
    assert math.isclose(BidirectionalLMConfig().weight, 1)


def law(size):
    k = np.arange(size)
    return np.log((k + 2) / (k + 1)) / math.log(size + 1)


def many(count, size, times):
    """The classes [times, count] and the tries [times] of some calls."""

    @tf.function
    def draw():
        one = lambda i: bilm.sampled_classes(count, size, Draws((7, i * 16)))  # noqa: E731
        return tf.vectorized_map(one, tf.range(times))

    classes, tries = draw()
    return classes.numpy(), tries.numpy()


def test_probabilities():
    p = np.array(bilm.log_uniform_probabilities(np.arange(1000), 1000))
    np.testing.assert_allclose(p, law(1000), rtol=2e-6)
    assert p.sum() == pytest.approx(1, abs=1e-6)
    counts = np.exp(bilm.log_expected_counts(np.arange(1000), 300.0, 1000))
    np.testing.assert_allclose(counts, 1 - (1 - law(1000)) ** 300, rtol=1e-5)


def test_classes_come_by_the_law():
    size, times = 6, 20_000
    classes, _ = many(3, size, times)
    assert all(len(set(row)) == 3 for row in classes[:1000].tolist())
    rates = -np.log1p(-law(size))
    # The first class, and the second one after each first one.
    first = np.bincount(classes[:, 0], minlength=size)
    share = rates / rates.sum()
    assert (abs(first - times * share) < 4 * np.sqrt(times * share)).all()
    for k in range(size):
        second = np.bincount(classes[classes[:, 0] == k, 1], minlength=size)
        expected = first[k] * np.delete(rates, k) / np.delete(rates, k).sum()
        assert second[k] == 0
        assert (abs(np.delete(second, k) - expected) < 4.5 * np.sqrt(expected)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [(3, 6), (10, 50)])
def test_weights_of_drawn_classes_have_the_expectation_one(count, size):
    times = 100_000
    classes, tries = many(count, size, times)
    counts = -np.expm1(tries[:, None].astype(float) * np.log1p(-law(size)[classes]))
    total = np.bincount(classes.ravel(), 1 / counts.ravel(), size) / times
    squares = np.bincount(classes.ravel(), 1 / counts.ravel() ** 2, size) / times
    errors = np.sqrt((squares - total**2) / times)
    z = (total - 1) / errors
    assert abs(z).max() < 3.5 and abs(z.mean()) < 3 / math.sqrt(size) * 1.5
    assert (errors < 0.02).all()


def test_tries_are_those_of_tensorflow():
    size, count = 20_000, 500
    _, tries = many(count, size, 30)
    # An expected count of a class of TensorFlow's sampler gives its number of tries.
    theirs = []
    for seed in range(30):
        ids, _, counts = tf.random.log_uniform_candidate_sampler(
            tf.zeros((1, 1), tf.int64), 1, count, unique=True, range_max=size, seed=seed + 1
        )
        p = law(size)[ids.numpy()]
        middle = np.argsort(p)[count // 2]
        theirs.append(math.log1p(-float(counts[middle])) / math.log1p(-p[middle]))
    error = 4 * math.hypot(tries.std(), np.std(theirs)) / math.sqrt(30)
    assert abs(tries.mean() - np.mean(theirs)) < error < 0.05 * np.mean(theirs)


def test_all_classes():
    classes, tries = bilm.sampled_classes(40, 40, Draws((1, 0)))
    assert sorted(np.array(classes).tolist()) == list(range(40))
    assert (np.array(bilm.log_expected_counts(classes, tries, 40)) == 0).all()
    again, _ = bilm.sampled_classes(40, 40, Draws((1, 0)))
    other, _ = bilm.sampled_classes(40, 40, Draws((2, 0)))
    np.testing.assert_array_equal(classes, again)
    assert (np.array(classes) != np.array(other)).any()
