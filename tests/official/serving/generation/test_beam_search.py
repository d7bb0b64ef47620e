"""Beam search: against a search through all texts, and against a loop with lists."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from official.saving import LENGTH_RULES
from official.serving.generation import beam_search
from official.serving.generation.beam_search import Beams

START, END, PAD = 0, 1, 9
VOCAB, LENGTH = 4, 4


def tables(seed, rows=2, spread=2.0):
    """Log-probabilities of the next token after each pair of tokens: [rows, V, V, V]."""
    scores = np.random.default_rng(seed).normal(size=(rows, VOCAB, VOCAB, VOCAB)) * spread
    return np.log(np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)).astype(np.float32)


def step_of(table):
    """A step whose state is the token before the last one."""
    table = tf.constant(table)

    def step(tokens, i, state):
        row, before = state
        del i
        return tf.gather_nd(table, tf.stack([row, before, tokens], 1)), (row, tokens)

    return step


def searched(table, beams, **options):
    rows = len(table)

    @tf.function(autograph=False, **options)
    def run():
        first = tf.repeat(tf.range(rows), beams.count)
        return beam_search.search(step_of(table), (first, tf.zeros_like(first)), rows, beams)

    return [x.numpy() for x in run()]


def log_probability(table, text):
    read = [START, START, *text]
    return sum(table[read[i], read[i + 1], token] for i, token in enumerate(text))


def normalized(score, length, beams):
    return score / ((5 + length) / 6 if beams.rule == "t5" else length) ** beams.penalty


def all_texts(table, beams):
    """Scores of all texts that end within the maximum length, and of those that do not."""
    ended, cut = {}, {}
    others = [token for token in range(VOCAB) if token != END]
    for length in range(beams.max_length):
        for begin in itertools.product(others, repeat=length):
            text = (*begin, END)
            ended[text] = normalized(log_probability(table, text), len(text), beams)
    for text in itertools.product(others, repeat=beams.max_length):
        cut[text] = normalized(log_probability(table, text), len(text), beams)
    return ended, cut


def padded(text, length):
    return [*text, *[PAD] * (length - len(text))]


@pytest.mark.parametrize("rule", LENGTH_RULES)
@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
def test_with_enough_beams_the_best_of_all_texts_are_found(rule, penalty):
    # More beams than there are texts: nothing is ever dropped, and the search never ends early.
    beams = Beams(160, LENGTH, START, END, PAD, penalty, rule)
    table = tables(int(10 * penalty))
    texts, scores = searched(table, beams)
    for row in range(2):
        ended, cut = all_texts(table[row], beams)
        wanted = ended if rule == "t5" else ended | cut
        best = sorted(wanted.items(), key=lambda item: -item[1])[:10]
        np.testing.assert_array_equal(texts[row, :10], [padded(text, LENGTH) for text, _ in best])
        np.testing.assert_allclose(scores[row, :10], [score for _, score in best], rtol=1e-5)


def by_hand(table, beams):
    """The search of one row, with lists."""
    live, finished, k = [((), 0.0)], [], beams.count
    for length in range(1, beams.max_length + 1):
        read = {text: (START, START, *text)[-2:] for text, _ in live}
        candidates = [
            ((*text, token), score + table[*read[text], token])
            for text, score in live
            for token in range(VOCAB)
        ]
        candidates = sorted(candidates, key=lambda item: -item[1])[: 2 * k]
        last = beams.rule == "huggingface" and length == beams.max_length
        live = [(text, score) for text, score in candidates if text[-1] != END and not last][:k]
        counted = candidates[:k] if beams.rule == "huggingface" else candidates
        finished += [
            (text, normalized(score, length, beams))
            for text, score in counted
            if text[-1] == END or last
        ]
        finished = sorted(finished, key=lambda item: -item[1])[:k]
        bound = beams.max_length if beams.rule == "t5" else length
        full = len(finished) == k
        if not live or (full and normalized(live[0][1], bound, beams) <= finished[-1][1]):
            break
    if not finished:
        return [(text, normalized(score, beams.max_length, beams)) for text, score in live]
    return finished


@pytest.mark.parametrize("rule", LENGTH_RULES)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_beams_equal_a_loop_with_lists(rule, count):
    for seed in range(4):
        beams = Beams(count, 7, START, END, PAD, [0.0, 0.6, 1.0, 2.0][seed], rule)
        table = tables(seed + 20, rows=12, spread=1.0)
        texts, scores = searched(table, beams)
        for row in range(12):
            wanted = by_hand(table[row], beams)
            found = len(wanted)
            np.testing.assert_array_equal(
                texts[row, :found], [padded(text, 7) for text, _ in wanted]
            )
            np.testing.assert_allclose(scores[row, :found], [s for _, s in wanted], rtol=1e-5)
            assert (scores[row, found:] == -np.inf).all()


def test_the_two_rules_differ():
    table = tables(3, rows=40, spread=1.0)
    best = [
        searched(table, Beams(2, 7, START, END, PAD, 1.0, rule))[0][:, 0].tolist()
        for rule in LENGTH_RULES
    ]
    assert best[0] != best[1]


def test_a_text_without_an_end_is_returned_if_none_has_ended():
    table = tables(5, rows=1)
    table[..., END] = -np.inf
    texts, scores = searched(table, Beams(2, 5, START, END, PAD, 0.6))
    assert END not in texts and PAD not in texts
    score = log_probability(table[0], texts[0, 0]) / (10 / 6) ** 0.6
    np.testing.assert_allclose(scores[0, 0], score, rtol=1e-5)


def test_a_row_does_not_depend_on_the_others():
    table = tables(8, rows=6, spread=1.0)
    for rule in LENGTH_RULES:
        beams = Beams(2, 9, START, END, PAD, 1.0, rule)
        together, _ = searched(table, beams)
        alone = [searched(table[row : row + 1], beams)[0][0] for row in range(6)]
        np.testing.assert_array_equal(together, alone)


def test_xla_compiles_the_search():
    table = tables(9, rows=3)
    beams = Beams(3, 6, START, END, PAD, 0.6)
    plain, compiled = searched(table, beams), searched(table, beams, jit_compile=True)
    np.testing.assert_array_equal(plain[0], compiled[0])
    np.testing.assert_allclose(plain[1], compiled[1], rtol=1e-5)
