"""The runs of words that are chosen, against a loop over one row."""

import numpy as np
import pytest
import tensorflow as tf

from official import seeding
from official.corruption import choice
from official.seeding import Stream


def make_words(rng, length, places):
    """Numbers of words of 1 to 3 tokens, with specials at the ends and within."""
    words, number = [-1], 0
    while len(words) < length - 1:
        if rng.random() < 0.05:
            words.append(-1)
        else:
            words += [number] * rng.integers(1, 4)
            number += 1
    return [*words[: length - 1], -1, *[-1] * (places - length)]


def runs_slowly(words, number, lengths, priorities, cut):
    taken = {}
    stretches, first = [], {}
    for i, word in enumerate(words):
        if word < 0:
            stretches.append([])
        elif words[i - 1] != word:
            stretches[-1].append(word)
            first[word] = i
    placed = 0
    for word in sorted(first, key=lambda w: priorities[w]):
        if len(taken) >= number:
            break
        (stretch,) = (s for s in stretches if word in s)
        run = stretch[stretch.index(word) :][: lengths[placed]]
        if len(run) < lengths[placed] and word != stretch[0]:
            continue
        while run:
            tokens = [i for i, w in enumerate(words) if w in run]
            if cut or len(taken) + len(tokens) <= number:
                break
            run = run[:-1]
        if not run:
            continue
        if first[word] in taken if cut else set(tokens) & set(taken):
            continue
        fresh = [i for i in tokens if i not in taken][: number - len(taken)]
        taken |= dict.fromkeys(fresh, placed)
        placed += 1
    return [taken.get(i, -1) for i in range(len(words))]


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("share", [0.15, 0.5, 1.0])
def test_runs_are_those_of_the_slow_procedure(cut, share):
    rng = np.random.default_rng(1)
    sizes = rng.integers(3, 64, 150)
    words = np.array([make_words(rng, size, 64) for size in sizes], np.int32)
    number = (sizes * share).astype(np.int32)
    lengths = rng.integers(1, 7, (150, 64)).astype(np.int32)
    seeds = seeding.row_seeds(0, 0, tf.range(150, dtype=tf.int64))
    made = choice.runs(words, tf.constant(number), tf.constant(lengths), cut, seeds).numpy()
    priorities = seeding.bits(seeds, Stream.MASK_ORDER, 64).numpy().astype(np.int64)
    for i in range(150):
        expected = runs_slowly(words[i].tolist(), number[i], lengths[i], priorities[i], cut)
        assert made[i].tolist() == expected, i
    assert ((made >= 0).sum(axis=1) <= number).all()


def test_rows_without_words():
    words = np.array([[-1, -1, -1], [-1, 0, -1]], np.int32)
    seeds = seeding.row_seeds(0, 0, tf.range(2, dtype=tf.int64))
    lengths = tf.constant([[2], [2]])
    for cut in (False, True):
        made = choice.runs(words, tf.constant([1, 1]), lengths, cut, seeds)
        assert made.numpy().tolist() == [[-1, -1, -1], [-1, 0, -1]]
