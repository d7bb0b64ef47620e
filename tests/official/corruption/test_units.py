"""Units of rows, and the units and runs of words that are chosen, against loops over one row."""

import numpy as np
import pytest
import tensorflow as tf

from official.corruption import units
from official.corruption.vocabulary import Vocabulary
from official.utils import seeding
from official.utils.seeding import Stream

PAD, CLS, SEP = 0, 1, 2
VOCABULARY = Vocabulary(20, 3, (0, 1, 2, 3), np.array([i < 15 for i in range(20)]))
BATCH = {
    # From 15 on, pieces continue words.
    "token_ids": tf.constant([[CLS, 5, 15, SEP, 16, 6, SEP], [CLS, 17, 18, 7, SEP, PAD, PAD]]),
    "padding_mask": tf.constant([[True] * 7, [True] * 5 + [False] * 2]),
}


def test_tokens():
    expected = [[-1, 0, 1, -1, 2, 3, -1], [-1, 0, 1, 2, -1, -1, -1]]
    assert units.tokens(VOCABULARY, BATCH).numpy().tolist() == expected


@pytest.mark.parametrize("specials", [0, 1, 8, 9, 40])
def test_tokens_with_any_number_of_special_tokens(specials):
    unknown = specials - 1  # It is in the text, so it is a token like others.
    rng = np.random.default_rng(specials)
    ids = rng.integers(0, 60, (3, 1500), np.int32)
    padding_mask = rng.random((3, 1500)) < 0.9
    vocabulary = Vocabulary(60, 3, tuple(range(specials)), np.ones(60, bool), unk_id=unknown)
    expected = []
    for row, real in zip(ids, padding_mask, strict=True):
        number = 0
        for token, is_real in zip(row, real, strict=True):
            text = is_real and (token >= specials or token == unknown)
            expected.append(number if text else -1)
            number += text
    batch = {"token_ids": tf.constant(ids), "padding_mask": tf.constant(padding_mask)}
    assert units.tokens(vocabulary, batch).numpy().ravel().tolist() == expected


def test_a_word_begins_anew_after_a_special_token():
    expected = [[-1, 0, 0, -1, 1, 2, -1], [-1, 0, 0, 1, -1, -1, -1]]
    assert units.words(VOCABULARY, BATCH).numpy().tolist() == expected


@pytest.mark.parametrize(
    "function, name", [(units.phrases, "phrase_inner"), (units.entities, "entity_inner")]
)
def test_phrases_and_entities(function, name):
    inner = np.zeros((2, 7), bool)
    inner[0, [2, 4]] = True  # the second goes on with nothing: it is after [SEP]
    inner[1, 2:4] = True
    batch = {**BATCH, name: tf.constant(inner)}
    expected = [[-1, 0, 0, -1, 1, 2, -1], [-1, 0, 0, 0, -1, -1, -1]]
    assert function(VOCABULARY, batch).numpy().tolist() == expected


def test_sequences():
    flags = tf.constant([[True, True, False, True], [False, True, True, False]])
    assert units.sequences(flags).numpy().tolist() == [[0, 0, -1, 1], [-1, 0, 0, -1]]


def test_sums_by_column():
    columns = tf.constant([[0, 0, 2], [-1, 1, 1]])
    assert units.sum_at(columns, tf.constant([[1, 2, 3], [4, 5, 6]])).numpy().tolist() == [
        [3, 0, 3],
        [0, 11, 0],
    ]


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


def seeds_of(count):
    return seeding.row_seeds(0, 0, tf.range(count, dtype=tf.int64))


def stretches_of(words):
    """The words of each stretch without a special token, and the tokens of each word."""
    stretches, tokens = [[]], {}
    for i, word in enumerate(words):
        if word < 0:
            stretches.append([])
            continue
        if word not in tokens:
            stretches[-1].append(word)
        tokens.setdefault(word, []).append(i)
    return stretches, tokens


def spans_slowly(words, number, lengths, priorities):
    """SpanBERT's procedure: anchors are tokens, tried in the order of their priorities."""
    stretches, tokens = stretches_of(words)
    taken, placed = {}, 0
    anchors = sorted((i for i, word in enumerate(words) if word >= 0), key=lambda i: priorities[i])
    for anchor, length in zip(anchors, lengths, strict=False):
        if len(taken) >= number:
            break
        if anchor in taken:
            continue
        (stretch,) = (s for s in stretches if words[anchor] in s)
        for word in stretch[stretch.index(words[anchor]) :][:length]:
            for i in tokens[word]:
                if len(taken) < number:
                    taken.setdefault(i, placed)
        placed += 1
    return [taken.get(i, -1) for i in range(len(words))]


def ngrams_slowly(words, number, lengths, priorities):
    """ALBERT's procedure: n-grams begin at words, tried in the order of their priorities."""
    stretches, tokens = stretches_of(words)
    taken, placed = {}, 0
    for word, length in zip(sorted(tokens, key=lambda w: priorities[w]), lengths, strict=False):
        if len(taken) >= number:
            break
        (stretch,) = (s for s in stretches if word in s)
        run = stretch[stretch.index(word) :][:length]
        while len(taken) + sum(len(tokens[w]) for w in run) > number:
            run.pop()
        actual = [i for w in run for i in tokens[w]]
        if not actual or any(i in taken for i in actual):
            continue
        taken |= dict.fromkeys(actual, placed)
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
    seeds = seeds_of(150)
    result = units.runs(words, tf.constant(number), tf.constant(lengths), cut, seeds).numpy()
    priorities = seeding.bits(seeds, Stream.MASK_ORDER, 64).numpy().astype(np.int64)
    slowly = spans_slowly if cut else ngrams_slowly
    for i in range(150):
        expected = slowly(words[i].tolist(), number[i], lengths[i], priorities[i])
        assert result[i].tolist() == expected, i
    text = (words >= 0).sum(axis=1)
    counts = (result >= 0).sum(axis=1)
    assert (counts <= number).all()
    if cut:
        assert (counts == np.minimum(number, text)).all()


def test_rows_without_words():
    words = np.array([[-1, -1, -1], [-1, 0, -1]], np.int32)
    lengths = tf.fill([2, 3], 2)
    for cut in (False, True):
        result = units.runs(words, tf.constant([1, 1]), lengths, cut, seeds_of(2))
        assert result.numpy().tolist() == [[-1, -1, -1], [-1, 0, -1]]


def test_each_unit_is_kept_by_itself():
    words = np.repeat(np.arange(20), 3)[None].repeat(20_000, 0).astype(np.int32)
    words[:, :3] = -1
    kept = units.each_unit(words, 0.15, seeds_of(20_000)).numpy()
    assert ((kept == words) | (kept == -1)).all()
    whole = (kept.reshape(-1, 20, 3) >= 0)[:, 1:]
    assert (whole.all(axis=2) == whole.any(axis=2)).all()
    kept = whole[:, :, 0]
    sigma = np.sqrt(0.15 * 0.85 / 20_000)
    assert np.abs(kept.mean(axis=0) - 0.15).max() < 4 * sigma
    # The numbers of rows are binomial, and no unit depends on another.
    assert abs(kept.sum(axis=1).var() / (19 * 0.15 * 0.85) - 1) < 4 * np.sqrt(2 / 20_000)
    correlations = np.corrcoef(kept.T) - np.eye(19)
    assert np.abs(correlations).max() < 4.5 / np.sqrt(20_000)


def test_draws_with_replacement():
    tokens = np.array([[-1, 0, 1, 2, -1, 3, 4, 5, 6, 7, 8, 9, -1, -1]] * 20_000, np.int32)
    times = units.with_replacement(tokens, tf.fill([20_000], 6), seeds_of(20_000)).numpy()
    assert (times.sum(axis=1) == 6).all() and not times[tokens < 0].any()
    drawn = times[:, tokens[0] >= 0]
    # Each token is drawn Binomial(6, 1/10) times.
    assert np.abs(drawn.mean(axis=0) - 0.6).max() < 4 * np.sqrt(0.54 / 20_000)
    distinct = 10 * (1 - 0.9**6)
    assert abs((drawn > 0).sum(axis=1).mean() - distinct) < 4 * 0.9 / np.sqrt(20_000)
    # Rows without tokens, and with fewer than there are draws.
    tokens = np.array([[-1, -1, -1], [-1, 0, -1]], np.int32)
    times = units.with_replacement(tokens, tf.constant([1, 3]), seeds_of(2)).numpy()
    assert times.tolist() == [[0, 0, 0], [0, 3, 0]]


def test_a_part_of_one_unit_where_nothing_was_taken():
    numbered = np.array([[-1, 0, 0, 1, 1, 1, 1, 1, 1, -1]] * 30_000, np.int32)
    none = np.full_like(numbered, -1)
    result = units.or_part_of_one(none, numbered, tf.fill([30_000], 2), seeds_of(30_000)).numpy()
    assert ((result >= 0).sum(axis=1) == 2).all()
    begins = (result >= 0).argmax(axis=1)
    # Two tokens of a unit that stand together: the first unit whole, or five places in the second.
    shares = np.bincount(begins, minlength=10) / 30_000
    expected = np.array([0, 2 / 8, 0, *[6 / 8 / 5] * 5, 0, 0])
    np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.25 * 0.75 / 30_000))
    assert (np.diff(np.argwhere(result >= 0)[:, 1].reshape(-1, 2), axis=1) == 1).all()
    # What was taken stays, and rows without units have nothing.
    taken = numbered.copy()
    taken[:, 3:] = -1
    again = units.or_part_of_one(taken, numbered, tf.fill([30_000], 2), seeds_of(30_000))
    np.testing.assert_array_equal(again, taken)
    nothing = units.or_part_of_one(none, none, tf.fill([30_000], 2), seeds_of(30_000))
    np.testing.assert_array_equal(nothing, none)
