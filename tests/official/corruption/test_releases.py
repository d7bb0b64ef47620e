"""What is hidden how often, against the procedures of the releases, written again from their facts.

Each procedure hides tokens of thousands of rows, and so does ours of the same ones. Shares of
tokens at the same place differ by less than four standard deviations of two such samples.
"""

import math

import numpy as np
import pytest
import tensorflow as tf

from official.config.corruptions import TokenMasksConfig
from official.corruption import token_masks
from official.corruption.vocabulary import Vocabulary
from official.utils import seeding

PAD, UNK, CLS, SEP, MASK = range(5)
SPECIALS = (PAD, UNK, CLS, SEP, MASK)
V = 60
# Even ids begin words, odd ones go on with them.
STARTS = np.array([i < 5 or i % 2 == 0 for i in range(V)])
VOCABULARY = Vocabulary(V, MASK, SPECIALS, STARTS, np.ones(V, int), unk_id=UNK)
ROWS = 12_000


def make_texts(length, rows=ROWS, seed=0):
    """Texts of words of one to four pieces, with an unknown one now and then: [rows, length]."""
    rng = np.random.default_rng(seed)
    more = rng.choice([0, 0, 1, 2, 3], (rows, length))
    unknown = rng.random((rows, length)) < 0.1
    texts = []
    for i in range(rows):
        text = []
        for n, unk in zip(more[i], unknown[i], strict=True):
            text += [UNK] if unk else [6, *[7] * n]
        texts.append(text[:length])
    return np.array(texts, np.int32)


def framed(texts):
    """[CLS] text [SEP]."""
    return np.pad(texts, [(0, 0), (1, 1)], constant_values=[(0, 0), (CLS, SEP)])


def ours(config, texts, **flags):
    """What becomes of the texts [rows, T], and how often each token is predicted [rows, T]."""
    rows, after, weights = framed(texts), [], []
    for first in range(0, len(rows), 2000):
        some = slice(first, first + 2000)
        count, length = rows[some].shape
        seeds = seeding.row_seeds(3, 0, tf.range(first, first + count, dtype=tf.int64))
        batch = {"token_ids": rows[some], "padding_mask": np.ones((count, length), bool)}
        batch |= {name: framed(values[some] + CLS) > CLS for name, values in flags.items()}
        batch = {name: tf.constant(value) for name, value in batch.items()}
        corrupted = token_masks.corrupt(config, VOCABULARY, batch, seeds)
        corrupted = {name: value.numpy() for name, value in corrupted.items()}
        actual = np.zeros((count, length))
        np.add.at(
            actual,
            (np.arange(count)[:, None], corrupted["masked_positions"]),
            corrupted["masked_weights"],
        )
        assert not actual[:, [0, -1]].any()
        real = corrupted["masked_weights"] > 0
        originals = np.take_along_axis(rows[some], corrupted["masked_positions"], axis=1)
        np.testing.assert_array_equal(corrupted["masked_ids"], np.where(real, originals, 0))
        after.append(corrupted["token_ids"])
        weights.append(actual)
    return np.concatenate(after)[:, 1:-1], np.concatenate(weights)[:, 1:-1]


def assert_alike(actual, expected, deviations=4.0):
    """Compares the shares of flags [rows, n] and [other rows, n]."""
    counts = len(actual), len(expected)
    share = (actual.sum(axis=0) + expected.sum(axis=0)) / sum(counts)
    sigma = np.sqrt(share * (1 - share) * (1 / counts[0] + 1 / counts[1]))
    apart = np.abs(actual.mean(axis=0) - expected.mean(axis=0))
    assert (apart <= deviations * sigma).all(), np.round(apart / np.maximum(sigma, 1e-9), 1)


def stretches_of(hidden):
    """How often there are stretches of 1, 2, ... hidden tokens in flags [rows, T]."""
    edges = np.diff(np.pad(hidden, [(0, 0), (1, 1)]).astype(int), axis=1)
    lengths = np.nonzero(edges < 0)[1] - np.nonzero(edges > 0)[1]
    return np.bincount(lengths, minlength=30)[:30]


def assert_stretches_alike(hidden, expected):
    actual, wanted = stretches_of(hidden), stretches_of(expected)
    assert (np.abs(actual - wanted) < 4.5 * np.sqrt(actual + wanted + 1)).all(), (actual, wanted)


def spanbert(text, rng):
    """The places that the release's `PairWithSpanMaskingScheme` hides."""
    starts = STARTS[text]
    number = math.ceil(len(text) * 0.15)
    shares = 0.2 * 0.8 ** np.arange(10)
    hidden = set()
    while len(hidden) < number:
        words = 1 + rng.choice(10, p=shares / shares.sum())
        anchor = rng.integers(len(text))
        if anchor in hidden:
            continue
        place = anchor
        while place > 0 and not starts[place]:
            place -= 1
        while words and place < len(text) and len(hidden) < number:
            hidden.add(place)
            place += 1
            words -= place == len(text) or starts[place]
    return list(hidden)


@pytest.mark.slow
def test_spans_are_spanberts():
    """By the distance from the end of the row; once its last ten tokens were hidden too rarely."""
    texts = make_texts(98)
    _, times = ours(TokenMasksConfig(unit="span", count="up", max_predictions=20), texts)
    rng = np.random.default_rng(0)
    expected = np.zeros(texts.shape, bool)
    for row, text in zip(expected, texts, strict=True):
        row[spanbert(text, rng)] = True
    assert (times.sum(axis=1) == 15).all() and (expected.sum(axis=1) == 15).all()
    assert_alike(times > 0, expected)
    assert_stretches_alike(times > 0, expected)
    last, others = times[:, -10:].mean(), times[:, :-10].mean()
    assert abs(last - 0.154) < 0.005 and abs(others - 0.153) < 0.005


def albert(text, rng):
    """The places that the release's `create_masked_lm_predictions` hides."""
    words = []
    for place, token in enumerate(text):
        if words and not STARTS[token]:
            words[-1].append(place)
        else:
            words.append([place])
    number = max(1, round((len(text) + 2) * 0.15))
    hidden = set()
    for first in rng.permutation(len(words)):
        if len(hidden) >= number:
            break
        n = 1 + rng.choice(3, p=[6 / 11, 3 / 11, 2 / 11])
        run = words[first : first + n]
        while run and len(hidden) + sum(map(len, run)) > number:
            run = run[:-1]
        places = {place for word in run for place in word}
        if not places & hidden:
            hidden |= places
    return list(hidden)


@pytest.mark.slow
def test_ngrams_are_alberts():
    texts = make_texts(62)
    _, times = ours(TokenMasksConfig(unit="ngram"), texts)
    rng = np.random.default_rng(0)
    expected = np.zeros(texts.shape, bool)
    for row, text in zip(expected, texts, strict=True):
        row[albert(text, rng)] = True
    assert_alike(times > 0, expected)
    assert_stretches_alike(times > 0, expected)
    numbers = np.arange(12)
    assert_alike(times.sum(axis=1)[:, None] == numbers, expected.sum(axis=1)[:, None] == numbers)


def ernie(text, inner, rng):
    """The places of the units that the release's `batching.mask` chooses, and their tokens."""
    after, chosen = list(text), []
    begins = [i for i in range(len(text)) if i == 0 or not inner[i]]
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        if rng.random() > 0.15:
            continue
        for place in range(begin, end):
            chosen.append(place)
            draw = rng.random()
            if draw > 0.2:
                after[place] = MASK
            elif draw > 0.1:
                after[place] = int(rng.integers(1, V))
    return chosen, after


def test_phrases_are_ernies():
    """Each by itself, however long; where none is chosen, one is all the same."""
    texts = make_texts(60)
    inner = np.random.default_rng(1).random(texts.shape) < 0.3
    inner |= ~STARTS[texts]  # phrases of one to about twenty tokens
    inner[:, 0] = False
    config = TokenMasksConfig(unit="phrase", count="each", max_predictions=60)
    after, times = ours(config, texts, phrase_inner=inner)
    hidden = times > 0
    phrases = np.cumsum(~inner, axis=1)  # number of each token's phrase
    rng = np.random.default_rng(0)
    expected, expected_after = np.zeros(texts.shape, bool), texts.copy()
    for i in range(len(texts)):
        places, expected_after[i] = ernie(texts[i], inner[i], rng)
        expected[i, places] = True
    for actual, flags in ((after, hidden), (expected_after, expected)):
        # 80% become [MASK], 10% another token, 10% stay.
        assert abs((actual == MASK)[flags].mean() - 0.8 - 0.1 / V) < 0.005
        assert abs((actual == texts)[flags].mean() - 0.1 - 0.1 / V) < 0.005
    # A row of u phrases has none with probability 0.85^u. Then it is that of a random token.
    none = ~expected.any(axis=1)
    chance = (0.85 ** phrases[:, -1]).mean()
    assert chance > 0.03 and abs(none.mean() - chance) < 4 * np.sqrt(chance / ROWS)
    one = phrases[np.arange(ROWS), rng.integers(60, size=ROWS)]
    expected |= none[:, None] & (phrases == one[:, None])
    assert hidden.any(axis=1).all()
    assert_alike(hidden, expected)
    # Phrases are hidden whole, and long ones as often as short ones.
    sizes = np.array([np.bincount(row, minlength=61)[row] for row in phrases])
    counts = np.array([np.bincount(r, h, 61)[r] for r, h in zip(phrases, hidden, strict=True)])
    assert (counts[hidden] == sizes[hidden]).all()
    for low, high in ((1, 1), (2, 3), (4, 6), (7, 60)):
        some = (sizes >= low) & (sizes <= high)
        assert abs(hidden[some].mean() - expected[some].mean()) < 0.01
        assert hidden[some].mean() > 0.15


def electra(text, rng):
    """The release's `pretrain_helpers.mask`: how often each place is drawn, and what is there."""
    number = max(1, round((len(text) + 2) * 0.15))
    draws = rng.integers(len(text), size=number)
    after = text.copy()
    after[draws[rng.random(number) < 0.85]] = MASK
    return np.bincount(draws, minlength=len(text)), after


def test_masks_are_electras():
    texts = make_texts(126)
    config = TokenMasksConfig(mask_prob=0.85, random_prob=0.0, max_predictions=19, replacement=True)
    after, times = ours(config, texts)
    rng = np.random.default_rng(0)
    expected = [electra(text, rng) for text in texts]
    wanted, wanted_after = (np.array(values) for values in zip(*expected, strict=True))
    assert (times.sum(axis=1) == 19).all() and (wanted.sum(axis=1) == 19).all()
    assert_alike(times > 0, wanted > 0)
    assert_alike(after == MASK, wanted_after == MASK)
    # 19 draws give 126 (1 - (125/126)^19) = 17.7 tokens. Their variance is below that of 19 draws
    # that are new or not by themselves: 1.23.
    distinct = 126 * (1 - (125 / 126) ** 19)
    assert abs(distinct - 17.70) < 0.01
    for counts in ((times > 0).sum(axis=1), (wanted > 0).sum(axis=1)):
        assert abs(counts.mean() - distinct) < 4 * np.sqrt(1.23 / ROWS)
    # What was drawn twice is [MASK] if one of the draws says so.
    for n, share in ((1, 0.85), (2, 1 - 0.15**2)):
        drawn = times == n
        sigma = np.sqrt(share * (1 - share) / drawn.sum())
        assert abs((after == MASK)[drawn].mean() - share) < 4 * sigma
    np.testing.assert_array_equal(after[times == 0], texts[times == 0])


@pytest.mark.slow
def test_unknown_tokens_are_predicted_as_others_are():
    texts = make_texts(62)
    for config in (
        TokenMasksConfig(),
        TokenMasksConfig(replacement=True),
        TokenMasksConfig(unit="word"),
        TokenMasksConfig(unit="ngram"),
        TokenMasksConfig(unit="span", count="up"),
        TokenMasksConfig(count="each"),
        TokenMasksConfig(unit="word", count="each"),
    ):
        _, times = ours(config, texts)
        # Beside words of one piece, the units of the same size.
        alone = STARTS[texts]
        alone[:, :-1] &= STARTS[texts[:, 1:]]
        alone[:, -1] = False
        shares = [
            (times > 0)[:, 5:-5][(alone & (texts == token))[:, 5:-5]].mean() for token in (UNK, 6)
        ]
        if config.unit == "token":
            assert abs(shares[0] - 0.15) < 0.015
        assert abs(shares[0] - shares[1]) < 0.012, (config, shares)


def test_random_tokens_are_no_special_ones():
    texts = make_texts(62)
    config = TokenMasksConfig(mask_prob=0.0, random_prob=1.0, random_tokens="non_special")
    after, times = ours(config, texts)
    drawn = np.bincount(after[times > 0], minlength=V)
    assert not drawn[list(SPECIALS)].any()
    expected = drawn.sum() / (V - len(SPECIALS))
    text = drawn[len(SPECIALS) :]
    degrees = len(text) - 1
    assert abs(((text - expected) ** 2 / expected).sum() - degrees) < 4 * np.sqrt(2 * degrees)
    # BERT's are any pieces.
    after, times = ours(TokenMasksConfig(mask_prob=0.0, random_prob=1.0), texts)
    assert np.bincount(after[times > 0], minlength=V)[list(SPECIALS)].all()
