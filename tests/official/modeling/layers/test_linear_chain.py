"""The linear-chain CRF against the enumeration of all sequences of tags."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers.linear_chain import LinearChain

RNG = np.random.default_rng(0)
B, T, C = 5, 4, 3
SCORES = RNG.standard_normal((B, T, C)) * 2
TAGS = RNG.integers(0, C, (B, T)).astype("int32")
# A full chain, one with gaps, one that begins late, one position, and an empty chain.
MASK = np.array([[1, 1, 1, 1], [1, 0, 1, 1], [0, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]], bool)


@pytest.fixture(scope="module")
def chain():
    chain = LinearChain(C, dtype="float64")
    chain.build()
    for variable in chain.variables:
        variable.assign(RNG.standard_normal(variable.shape))
    return chain


def enumerated(chain, row):
    """All sequences of the positions of a row, and the score of each."""
    first, last, pairs = (v.numpy() for v in (chain.first, chain.last, chain.transitions))
    scores = SCORES[row][MASK[row]]
    sequences = list(itertools.product(range(C), repeat=len(scores)))
    totals = []
    for tags in sequences:
        total = (
            first[tags[0]] + last[tags[-1]] + sum(s[t] for s, t in zip(scores, tags, strict=True))
        )
        totals.append(total + sum(pairs[a, b] for a, b in itertools.pairwise(tags)))
    return np.array(sequences), np.array(totals)


def log_sum(values):
    return np.log(np.exp(values - values.max()).sum()) + values.max()


def test_likelihood_is_that_of_all_sequences(chain):
    likelihood = chain.log_likelihood(SCORES, TAGS, MASK).numpy()
    for row in range(B - 1):
        sequences, totals = enumerated(chain, row)
        mine = (sequences == TAGS[row][MASK[row]]).all(axis=1)
        expected = totals[mine][0] - log_sum(totals)
        np.testing.assert_allclose(likelihood[row], expected, rtol=1e-9)
    assert likelihood[B - 1] == 0


def test_the_values_outside_the_mask_do_not_count(chain):
    scores, tags = np.where(MASK[..., None], SCORES, 77.0), np.where(MASK, TAGS, -1)
    expected = chain.log_likelihood(SCORES, TAGS, MASK)
    np.testing.assert_array_equal(chain.log_likelihood(scores, tags, MASK), expected)


def test_decoded_tags_have_the_best_score(chain):
    decoded = chain.decode(SCORES, MASK).numpy()
    assert (decoded[~MASK] == 0).all()
    for row in range(B - 1):
        sequences, totals = enumerated(chain, row)
        np.testing.assert_array_equal(decoded[row][MASK[row]], sequences[totals.argmax()])


def test_marginals_are_sums_over_sequences(chain):
    marginals = chain.marginals(SCORES, MASK).numpy()
    for row in range(B - 1):
        sequences, totals = enumerated(chain, row)
        shares = np.exp(totals - log_sum(totals))
        for number, position in enumerate(np.flatnonzero(MASK[row])):
            expected = [shares[sequences[:, number] == tag].sum() for tag in range(C)]
            np.testing.assert_allclose(marginals[row, position], expected, rtol=1e-9)


def test_gradients_in_a_graph_are_the_differences_of_the_marginals(chain):
    @tf.function
    def gradient(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            total = tf.reduce_sum(chain.log_likelihood(scores, TAGS, MASK))
        return tape.gradient(total, scores)

    expected = np.eye(C)[TAGS] - chain.marginals(SCORES, MASK).numpy()
    expected = np.where(MASK[..., None], expected, 0)
    np.testing.assert_allclose(gradient(tf.constant(SCORES)), expected, atol=1e-9)


def test_gradients_of_the_variables_are_differences_of_counts(chain):
    """The tags and pairs of the given sequence, minus those expected over all sequences."""
    weights = np.array([1.0, -0.5, 2.0, 0.25, 3.0])
    variables = [chain.transitions, chain.first, chain.last]
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(weights * chain.log_likelihood(SCORES, TAGS, MASK))
    gradients = tape.gradient(total, [variable.value for variable in variables])
    expected = [np.zeros((C, C)), np.zeros(C), np.zeros(C)]
    for row in range(B - 1):
        sequences, totals = enumerated(chain, row)
        shares = -np.exp(totals - log_sum(totals))
        shares[(sequences == TAGS[row][MASK[row]]).all(axis=1)] += 1
        for tags, share in zip(sequences, weights[row] * shares, strict=True):
            for a, b in itertools.pairwise(tags):
                expected[0][a, b] += share
            expected[1][tags[0]] += share
            expected[2][tags[-1]] += share
    for gradient, value in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, value, atol=1e-9)


def test_xla_computes_the_same_in_float32(chain):
    """With static shapes, and variables in float32 whatever the policy is."""
    small = LinearChain(C, dtype="mixed_bfloat16")
    small.build()
    for variable, value in zip(small.variables, chain.variables, strict=True):
        assert variable.dtype == "float32"
        variable.assign(value)

    @tf.function(jit_compile=True, autograph=False)
    def compiled(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            likelihood = small.log_likelihood(scores, TAGS, MASK)
        marginals, decoded = small.marginals(scores, MASK), small.decode(scores, MASK)
        return likelihood, marginals, decoded, tape.gradient(likelihood, scores)

    likelihood, marginals, decoded, gradient = compiled(tf.constant(SCORES, tf.float32))
    assert likelihood.dtype == marginals.dtype == tf.float32
    expected = chain.log_likelihood(SCORES, TAGS, MASK)
    np.testing.assert_allclose(likelihood, expected, rtol=1e-5)
    np.testing.assert_array_equal(decoded, chain.decode(SCORES, MASK))
    expected = np.where(MASK[..., None], chain.marginals(SCORES, MASK), 0)
    np.testing.assert_allclose(np.where(MASK[..., None], marginals, 0), expected, atol=1e-5)
    expected = np.where(MASK[..., None], np.eye(C)[TAGS] - expected, 0)
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_extreme_scores_have_finite_gradients(chain):
    scores = tf.constant(1e4 * np.sign(SCORES))
    with tf.GradientTape() as tape:
        tape.watch(scores)
        likelihood = chain.log_likelihood(scores, TAGS, MASK)
    gradients = tape.gradient(likelihood, [scores, *(v.value for v in chain.variables)])
    assert np.isfinite(likelihood).all() and likelihood.numpy().min() < -1e3
    assert all(np.isfinite(gradient).all() for gradient in gradients)
