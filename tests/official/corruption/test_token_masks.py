"""Token masks and their blocks: T tokens with padding, V pieces, P predictions."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official.config import Segments
from official.config.corruptions import RUNS, TokenMasksConfig
from official.config.corruptions import UNITS as ALL_UNITS
from official.corruption import token_masks, units
from official.corruption.vocabulary import Vocabulary
from official.data import ShardDataset
from official.modeling import masks
from official.utils import seeding
from official.utils.errors import UserError
from official.utils.seeding import Stream
from tests import small

V, PAD, CLS, SEP, MASK = 1000, 0, 2, 3, 4
SPECIALS = (PAD, CLS, SEP, MASK)
# A third of the pieces continues a word.
VOCABULARY = Vocabulary(V, MASK, SPECIALS, np.array([i < 10 or i % 3 > 0 for i in range(V)]))
UNITS = ("token", "word", "ngram", "span")


def make_rows(lengths, seed=0):
    """Rows [CLS] A [SEP] B [SEP] of these lengths, without padding."""
    rng = np.random.default_rng(seed)
    rows = []
    for length in lengths:
        row = rng.integers(5, V, length)
        row[[0, length // 2, -1]] = [CLS, SEP, SEP]
        rows.append(row)
    return rows


def pad(rows, places=None):
    places = places or max(map(len, rows))
    token_ids = np.full((len(rows), places), PAD, np.int32)
    for i, row in enumerate(rows):
        token_ids[i, : len(row)] = row
    lengths = np.array([len(row) for row in rows])
    return {
        "token_ids": tf.constant(token_ids),
        "padding_mask": tf.constant(np.arange(places) < lengths[:, None]),
    }


def seeds_of(count, epoch=0):
    return seeding.row_seeds(0, epoch, tf.range(count, dtype=tf.int64))


def corrupt(config, rows, seeds=None, places=None):
    seeds = seeds_of(len(rows)) if seeds is None else seeds
    corrupted = token_masks.corrupt(config, VOCABULARY, pad(rows, places), seeds)
    return {name: value.numpy() for name, value in corrupted.items()}


def number_to_predict(length, config):
    return min(config.max_predictions, max(1, round(length * config.mask_rate)))


def words_of(row, unit):
    """The release's grouping, with words that end at special tokens."""
    words = []
    for i, token in enumerate(row):
        if token in SPECIALS:
            continue
        goes_on = (
            unit == "word" and not VOCABULARY.word_starts[token] and row[i - 1] not in SPECIALS
        )
        if goes_on:
            words[-1].append(i)
        else:
            words.append([i])
    return words


def masked_slowly(row, config, priorities):
    """BERT's procedure, word by word."""
    words = words_of(row, config.unit)
    number = number_to_predict(len(row), config)
    taken = []
    for word in sorted(range(len(words)), key=lambda w: priorities[w]):
        if len(taken) + len(words[word]) <= number:
            taken += words[word]
    return sorted(taken)


@pytest.mark.parametrize("unit", ["token", "word"])
@pytest.mark.parametrize("rate, most", [(0.15, 20), (0.5, 9), (1.0, 200)])
def test_positions_are_those_of_the_slow_procedure(unit, rate, most):
    config = TokenMasksConfig(unit=unit, mask_rate=rate, max_predictions=most)
    rows = make_rows([*range(4, 60), *[97] * 40])
    corrupted = corrupt(config, rows)
    priorities = seeding.bits(seeds_of(len(rows)), Stream.MASK_ORDER, 97).numpy().astype(np.int64)
    for i, row in enumerate(rows):
        expected = masked_slowly(row.tolist(), config, priorities[i])
        actual = corrupted["masked_positions"][i][corrupted["masked_weights"][i] > 0].tolist()
        assert actual == expected
        assert corrupted["masked_ids"][i, : len(expected)].tolist() == row[expected].tolist()


def test_windows_are_those_of_the_release():
    """One token of each six, from the left, until 15% of all tokens are hidden."""
    config = TokenMasksConfig(windows=True, max_predictions=77, mask_prob=1.0, random_prob=0.0)
    rows = make_rows([*[512] * 300, *[128] * 100, 20, 9, 5, 3])
    corrupted = corrupt(config, rows)
    seen = collections.Counter()
    listed = zip(*(corrupted[name] for name in units.TARGETS), strict=True)
    for row, found in zip(rows, listed, strict=True):
        positions, ids, weights = (each[found[2] > 0] for each in found)
        text = [i for i, token in enumerate(row) if token not in SPECIALS]
        windows = [text[i : i + 6] for i in range(0, len(text), 6)]
        number = min(max(1, round(0.15 * len(row))), len(windows))
        assert len(positions) == number and set(weights) <= {1.0}
        for position, window in zip(positions, windows[:number], strict=True):
            assert position in window
        assert ids.tolist() == row[positions].tolist()
        if len(row) == 512:
            seen.update(positions.tolist())
    # 77 windows of 6 tokens, with [CLS] and [SEP] in the middle among them.
    assert max(seen) < 1 + 77 * 6 + 1
    counts = np.array([seen[i] for i in range(1, 464) if i != 256])
    assert counts.sum() == 300 * 77
    # A token is hidden with probability 1 / 6; the deviation of a count is 6.5.
    assert abs(counts - 50).max() < 5 * 6.5 and abs(counts.std() - 6.45) < 1
    for changes in ({"unit": "word"}, {"count": "random"}, {"replacement": True}):
        with pytest.raises(ValueError, match="windows: only supported for unit: token or ngram"):
            TokenMasksConfig(windows=True, **changes)


def windows_slowly(words, length, config, lengths, draws):
    """The release's procedure, by given draws: the runs that it takes, as lists of positions."""
    width, offset, begins, marked = int(1 / config.mask_rate), 0, [], []
    for n, draw in zip(lengths, draws, strict=True):
        if offset < len(words):
            size = min(n * width, len(words) - offset)
            begin = offset + int(draw * size)
            begins.append(begin)
            marked.append(range(begin, min(begin + n, len(words))))
            offset = max(offset + size, begin + n)
    number, taken, runs = number_to_predict(length, config), 0, []
    for run in marked:
        runs.append([])
        for word in run:
            if taken < number and taken + len(words[word]) <= config.max_predictions:
                runs[-1] += words[word]
            taken += len(words[word])
    return [run for run in runs if run]


@pytest.mark.parametrize("most", [80, 9])
def test_ngrams_of_windows_are_those_of_the_release(most):
    config = TokenMasksConfig(unit="ngram", windows=True, max_predictions=most)
    rows = make_rows([*[512] * 60, *[128] * 20, 40, 20, 9, 5])
    seeds = seeds_of(len(rows))
    taken, times = (x.numpy() for x in token_masks.select(config, VOCABULARY, pad(rows), seeds))
    drawn = token_masks.run_lengths(config, seeds, 90).numpy()
    draws = seeding.uniforms(seeds, Stream.MASK_ORDER, 90).numpy()
    sizes, beyond = collections.Counter(), 0
    for i, row in enumerate(rows):
        words = words_of(row, "word")
        runs = windows_slowly(words, len(row), config, drawn[i], draws[i])
        if runs:
            found = [np.flatnonzero(taken[i] == k).tolist() for k in np.unique(taken[i])[1:]]
            assert found == runs
        assert np.array_equal(times[i], taken[i] >= 0)
        count, number = times[i].sum(), number_to_predict(len(row), config)
        assert 1 <= count <= most and (not runs or count >= min(number, sum(map(len, runs))))
        beyond += count > number
        whole = runs[:5] if len(row) == 512 and most == 80 else []  # the last one may be cut
        sizes.update(sum(position in run for position, *_ in words) for run in whole)
    if most == 9:
        return
    assert beyond > 20  # the last word is whole
    # n words with p(n) ~ 1 / n: 6, 3 and 2 of 11. The deviation of a count is at most 9.
    assert sorted(sizes) == [1, 2, 3]
    expected = 300 * np.array([6, 3, 2]) / 11
    assert abs(np.array([sizes[n] for n in (1, 2, 3)]) - expected).max() < 4 * 9
    corrupted = corrupt(config, rows)
    hidden = corrupted["masked_weights"] > 0
    rows_of, places = np.nonzero(hidden)
    new = corrupted["token_ids"][rows_of, corrupted["masked_positions"][rows_of, places]]
    shares = (new == MASK).mean(), (new == corrupted["masked_ids"][rows_of, places]).mean()
    np.testing.assert_allclose(shares, (0.8, 0.1), atol=0.02)  # 4 deviations of 5,000 draws


def test_long_words_are_skipped_not_cut():
    table = np.ones(V, bool)
    table[500:] = False
    vocabulary = Vocabulary(V, MASK, SPECIALS, table)
    # Words of 1, 5, 1, 5 and 1 pieces; 17 tokens and rate 0.2 give 3 predictions.
    row = np.array([CLS, 10, 11, *range(500, 504), SEP, 12, 13, *range(504, 508), 14, 15, SEP])
    config = TokenMasksConfig(unit="word", mask_rate=0.2)
    assert number_to_predict(len(row), config) == 3
    corrupted = token_masks.corrupt(config, vocabulary, pad([row] * 200), seeds_of(200))
    for positions, weights in zip(
        corrupted["masked_positions"].numpy(), corrupted["masked_weights"].numpy(), strict=True
    ):
        assert sorted(row[positions[weights > 0]]) in (
            [10, 12, 14],
            [10, 12, 15],
            [10, 14, 15],
            [12, 14, 15],
        )


@pytest.mark.parametrize(
    "length, number", [(4, 1), (10, 2), (30, 4), (50, 8), (128, 19), (512, 20)]
)
def test_number_to_predict(length, number):
    # 0.15 · 10 = 1.5, 0.15 · 30 = 4.5 and 0.15 · 50 = 7.5: halves go to the even number.
    corrupted = corrupt(TokenMasksConfig(), make_rows([length]))
    assert corrupted["masked_weights"].sum() == number
    assert corrupted["masked_positions"].shape == (1, 20)


def test_nothing_but_specials_and_padding():
    corrupted = corrupt(
        TokenMasksConfig(), [np.array([CLS, SEP, SEP]), np.array([CLS, 77, SEP, SEP])], places=6
    )
    assert corrupted["token_ids"][0].tolist() == [CLS, SEP, SEP, PAD, PAD, PAD]
    assert corrupted["masked_weights"].sum(axis=1).tolist() == [0, 1]
    assert corrupted["masked_positions"][:, :2].tolist() == [[0, 0], [1, 0]]
    assert corrupted["masked_ids"][:, :2].tolist() == [[0, 0], [77, 0]]


@pytest.mark.parametrize("unit", ALL_UNITS)
def test_special_tokens_are_never_hidden(unit):
    """Not even where everything is to be: neither what stands there nor what joins it."""
    config = TokenMasksConfig(
        unit=unit, mask_rate=1.0, max_predictions=70, mask_prob=1.0, random_prob=0.0
    )
    rows = make_rows([64, 40])
    rows[0][20] = MASK  # one that the text has
    batch = pad(rows)
    ones = tf.ones_like(batch["padding_mask"])
    batch |= {name: ones for name in config.needs()}
    corrupted = token_masks.corrupt(config, VOCABULARY, batch, seeds_of(2))
    text = ~np.isin(batch["token_ids"], SPECIALS)
    hidden = corrupted["token_ids"].numpy() != batch["token_ids"].numpy()
    assert not hidden[~text].any()
    # (Runs leave words free that the length drawn for them does not fit.)
    assert hidden[text].mean() > (0.6 if unit in RUNS else 1 - 1e-9)
    assert corrupted["masked_weights"].numpy().sum(axis=1).tolist() == hidden.sum(axis=1).tolist()


@pytest.mark.parametrize("unit", UNITS)
def test_a_row_does_not_depend_on_its_batch_or_padding(unit):
    config = TokenMasksConfig(unit=unit, count="random", action="unit", max_ngram=4)
    rows = make_rows([128, 40, 77, 9, 128, 64])
    whole = corrupt(config, rows)
    for i, row in enumerate(rows):
        alone = corrupt(config, [row], seeds_of(6)[i : i + 1], places=len(row) + i)
        for name in config.gives():
            np.testing.assert_array_equal(alone[name][0], whole[name][i])
        np.testing.assert_array_equal(
            alone["token_ids"][0, : len(row)], whole["token_ids"][i, : len(row)]
        )


@pytest.mark.parametrize("unit", UNITS)
def test_the_same_eagerly_and_in_tf_data(unit):
    config = TokenMasksConfig(unit=unit)
    batch = pad(make_rows([60, 30, 45]))
    eager = token_masks.corrupt(config, VOCABULARY, batch, seeds_of(3))
    data = tf.data.Dataset.from_tensors(batch).map(
        lambda b: token_masks.corrupt(config, VOCABULARY, b, seeds_of(3))
    )
    (graph,) = data
    assert graph.keys() == eager.keys() == {"token_ids", "padding_mask", *config.gives()}
    for name, value in eager.items():
        np.testing.assert_array_equal(graph[name], value)
    assert data.element_spec["masked_positions"].shape == (3, 20)
    assert [eager[f"masked_{n}"].dtype for n in ("positions", "ids", "weights")] == [
        tf.int32, tf.int32, tf.float32,
    ]  # fmt: skip


def test_other_epochs_have_other_masks():
    rows = make_rows([128] * 4)
    first, second = (corrupt(TokenMasksConfig(), rows, seeds_of(4, epoch)) for epoch in (0, 1))
    for i in range(4):
        assert set(first["masked_positions"][i]) != set(second["masked_positions"][i])


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["token", "word"])
def test_a_hundred_thousand_masked_tokens(unit):
    config = TokenMasksConfig(unit=unit)
    rows = make_rows([128] * 5400)
    corrupted = corrupt(config, rows)
    original = np.stack(rows)
    hidden = np.zeros(original.shape, bool)
    for i in range(len(rows)):
        hidden[i, corrupted["masked_positions"][i][corrupted["masked_weights"][i] > 0]] = True
    total = hidden.sum()
    assert total > 100_000

    # Counts: 19 of 128 each; words may leave the last places empty, tokens never.
    per_row = corrupted["masked_weights"].sum(axis=1)
    assert per_row.max() == 19
    assert per_row.min() == 19 if unit == "token" else per_row.mean() > 18.9
    np.testing.assert_array_equal(hidden.sum(axis=1), per_row)

    # Never a special token, and nothing changes but what is hidden.
    assert not hidden[np.isin(original, SPECIALS)].any()
    np.testing.assert_array_equal(corrupted["token_ids"][~hidden], original[~hidden])

    # 80/10/10. A random token is the original or [MASK] by chance once in V each.
    def near(count, share):
        assert abs(count - share * total) < 3 * np.sqrt(total * share * (1 - share))

    seen, was = corrupted["token_ids"][hidden], original[hidden]
    near((seen == MASK).sum(), 0.8 + 0.1 / V)
    near((seen == was).sum(), 0.1 + 0.1 / V)
    near(((seen != MASK) & (seen != was)).sum(), 0.1 * (1 - 2 / V))

    # Random tokens come evenly from the whole vocabulary, specials included.
    random = np.bincount(seen[(seen != was) & (seen != MASK)], minlength=V)
    expected = random.sum() / (V - 1)
    assert abs(((random - expected) ** 2 / expected).sum() - V) < 4 * np.sqrt(2 * V)
    assert random[list(SPECIALS)].sum() > 0

    # Positions are even over the row, but for the specials.
    share = hidden.sum(axis=0)[~np.isin(np.arange(128), [0, 64, 127])]
    mean = share.mean()
    assert abs(((share - mean) ** 2 / mean).sum() / 0.85 - 124) < 4 * np.sqrt(2 * 124)

    if unit == "word":
        for row, mask in zip(rows, hidden, strict=True):
            for word in words_of(row.tolist(), "word"):
                assert mask[word].all() or not mask[word].any()
        # The parts of a word meet their fates one by one: 64% of pairs are both [MASK].
        fates = collections.Counter()
        for row, mask, after in zip(rows, hidden, corrupted["token_ids"], strict=True):
            for word in words_of(row.tolist(), "word"):
                if len(word) == 2 and mask[word[0]]:
                    fates[int((after[word] == MASK).sum())] += 1
        pairs = sum(fates.values())
        assert abs(fates[2] - 0.64 * pairs) < 3 * np.sqrt(pairs * 0.64 * 0.36)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"unit": "line"}, "unit: 'line' is not one of token, word, phrase, entity, ngram, span"),
        ({"random_tokens": "all"}, "random_tokens: 'all' is not one of uniform, non_special, un"),
        ({"count": "down"}, "count: 'down' is not one of nearest, up, random, each"),
        ({"word_starts": "bert"}, "word_starts: 'bert' is not one of xlnet, albert, blank"),
        (
            {"count": "each", "unit": "span"},
            "count: each is not supported for unit: span, a run of several words: set count to "
            "nearest, up, random, or unit to token, word, phrase, entity",
        ),
        (
            {"replacement": True, "unit": "word"},
            "replacement: not supported for unit: word with count: nearest: set unit to token",
        ),
        ({"replacement": True, "count": "each"}, "not supported for unit: token with count: each"),
        ({"action": "word"}, "action: 'word' is not one of token, unit"),
        ({"max_ngram": 0}, "max_ngram: 0 is less than 1"),
        ({"span_prob": 0.0}, "span_prob: 0.0 is not above 0 and at most 1"),
        ({"mask_rate": 0.0}, "mask_rate: 0.0 is not above 0"),
        ({"mask_rate": 1.5}, "mask_rate: 1.5 is not above 0 and at most 1"),
        ({"max_predictions": 0}, "max_predictions: 0 is less than 1"),
        ({"mask_prob": -0.1}, "mask_prob: -0.1 is not between 0 and 1"),
        ({"mask_prob": 0.9, "random_prob": 0.2}, "mask_prob: 0.9 and random_prob 0.2 exceed 1"),
    ],
)
def test_bad_settings(values, message):
    with pytest.raises(ValueError, match=message):
        TokenMasksConfig(**values)


@pytest.mark.parametrize(
    "values, max_length, message",
    [
        (
            {"unit": "ngram", "mask_rate": 0.1},
            16,
            "max_ngram: 3 words have at least 3 tokens, and at most 2 are predicted in a sequence "
            "(0.1 × 16 tokens = 1.6): lower max_ngram to 2, or raise mask_rate or max_length",
        ),
        (
            {"unit": "span", "count": "up", "max_predictions": 9},
            128,
            "max_span: 10 words have at least 10 tokens, and at most 9 are predicted in a sequence "
            "(max_predictions = 9): lower max_span to 9, or raise max_predictions",
        ),
    ],
)
def test_runs_without_room(values, max_length, message):
    with pytest.raises(ValueError) as caught:
        TokenMasksConfig(**values).check(Segments(max_length=max_length))
    assert str(caught.value) == message


def test_runs_with_just_enough_room():
    TokenMasksConfig(unit="ngram").check(Segments(max_length=20))
    spans = TokenMasksConfig(unit="span", count="up")
    spans.check(Segments(max_length=63))  # 0.15 · 61 = 9.15, so 10
    TokenMasksConfig(mask_rate=0.01).check(Segments(max_length=16))


@pytest.mark.parametrize("length, number", [(20, 3), (103, 15), (104, 16), (513, 77)])
def test_number_rounded_up_leaves_specials_out(length, number):
    # 17 tokens of text come to 2.55, 100 to 15 sharp, 101 to 15.15, 510 to 76.5.
    corrupted = corrupt(TokenMasksConfig(count="up", max_predictions=80), make_rows([length]))
    assert corrupted["masked_weights"].sum() == number


@pytest.mark.parametrize("rate, most", [(0.15, 20), (0.3, 9)])
def test_random_number_is_that_of_robertas_release(rate, most):
    """int(p n + u), n counting the specials."""
    lengths = [*range(8, 60), 128]
    config = TokenMasksConfig(count="random", mask_rate=rate, max_predictions=most)
    actual = corrupt(config, make_rows(lengths))["masked_weights"].sum(axis=1)
    draws = seeding.uniforms(seeds_of(len(lengths)), Stream.MASK_NUMBER, 1).numpy()[:, 0]
    expected = [int(rate * n + float(u)) for n, u in zip(lengths, draws, strict=True)]
    expected = [min(most, max(1, number)) for number in expected]
    assert actual.tolist() == expected
    assert len({int(rate * n + 1) - m for n, m in zip(lengths, expected, strict=True)}) > 1


def test_electra_masks_or_keeps():
    config = TokenMasksConfig(mask_prob=0.85, random_prob=0.0)
    rows = make_rows([128] * 2000)
    corrupted = corrupt(config, rows)
    hidden = np.take_along_axis(corrupted["token_ids"], corrupted["masked_positions"], 1)
    real = corrupted["masked_weights"] > 0
    masked = (hidden == MASK)[real]
    kept = (hidden == corrupted["masked_ids"])[real]
    assert (masked ^ kept).all()  # nothing else
    assert abs(masked.mean() - 0.85) < 3 * np.sqrt(0.85 * 0.15 / real.sum())


def test_random_number_has_the_exact_mean():
    config = TokenMasksConfig(count="random")
    numbers = corrupt(config, make_rows([50] * 20_000))["masked_weights"].sum(axis=1)
    # 7.5 and u: 7 or 8, each half of the time.
    assert set(numbers) == {7, 8}
    assert abs((numbers == 8).mean() - 0.5) < 3 * 0.5 / np.sqrt(20_000)
    # A short row has one, though 0.75 of a token would leave a quarter of such rows without.
    numbers = corrupt(config, make_rows([5] * 1000))["masked_weights"].sum(axis=1)
    assert set(numbers) == {1}
    numbers = corrupt(config, make_rows([3] * 1000))["masked_weights"].sum(axis=1)
    assert set(numbers) == {0}  # there is no token to predict


def test_lengths_of_spans():
    config = TokenMasksConfig(unit="span", count="up")
    lengths = token_masks.run_lengths(config, seeds_of(5000), 20).numpy()
    assert lengths.shape == (5000, 20) and lengths.min() == 1 and lengths.max() == 10
    shares = 0.2 * 0.8 ** np.arange(10)
    shares /= shares.sum()
    assert (shares * np.arange(1, 11)).sum() == pytest.approx(3.797, abs=5e-4)
    assert lengths.mean() == pytest.approx(3.797, abs=0.02)
    np.testing.assert_allclose(
        np.bincount(lengths.ravel(), minlength=11)[1:] / 1e5, shares, atol=0.005
    )


def test_lengths_of_ngrams():
    lengths = token_masks.run_lengths(TokenMasksConfig(unit="ngram"), seeds_of(5000), 20).numpy()
    np.testing.assert_allclose(
        np.bincount(lengths.ravel()) / 1e5, [0, 6 / 11, 3 / 11, 2 / 11], atol=0.005
    )


def taken_of(config, rows):
    """The unit of each hidden token and the words, [B, T] each."""
    batch, seeds = pad(rows), seeds_of(len(rows))
    taken, times = token_masks.select(config, VOCABULARY, batch, seeds)
    np.testing.assert_array_equal(times, taken >= 0)
    return taken.numpy(), units.words(VOCABULARY, batch).numpy()


def test_ngrams_as_they_stand_in_the_text():
    rows = make_rows([128] * 3000)
    taken, words = taken_of(TokenMasksConfig(unit="ngram"), rows)
    counts = np.zeros(4)
    filled = 0
    for i in range(len(rows)):
        actual = [set(words[i][taken[i] == n]) for n in range(taken[i].max() + 1)]
        # Whole words, side by side, of which no two n-grams share one.
        assert sum(map(len, actual)) == len(set().union(*actual))
        for ngram in actual:
            assert len(ngram) == max(ngram) - min(ngram) + 1
        assert np.isin(words[i], list(set().union(*actual))).sum() == (taken[i] >= 0).sum() <= 19
        filled += (taken[i] >= 0).sum() == 19
        last_words = {words[i][62], words[i][126]}
        if not {w + k for w in actual[0] for k in (0, 1)} & last_words:
            counts[len(actual[0])] += 1  # the first one: no other was in its way, nor the end
    assert filled > 0.98 * len(rows)
    shares = np.array([0, 6 / 11, 3 / 11, 2 / 11])
    sigma = np.sqrt(shares * (1 - shares) / counts.sum())
    assert counts.sum() > 0.9 * len(rows)
    # (Longer ones reach the last words more often, by less than a hundredth.)
    assert (np.abs(counts / counts.sum() - shares) < 4 * sigma + 0.01).all()


def test_spans_as_they_stand_in_the_text():
    rows = make_rows([128] * 2000)
    taken, words = taken_of(TokenMasksConfig(unit="span", count="up"), rows)
    number = (taken >= 0).sum(axis=1)
    assert (number == 19).all()  # 125 tokens of text, 18.75
    cut = 0
    for i in range(len(rows)):
        for n in range(taken[i].max() + 1):
            (places,) = np.nonzero(taken[i] == n)
            assert (np.diff(places) == 1).all()  # touching spans are one
            assert words[i][places[0] - 1] != words[i][places[0]]  # begins with a word
            if places[-1] + 1 < 128:
                cut += words[i][places[-1] + 1] == words[i][places[-1]]
                assert taken[i][places[-1] + 1] < 0
    assert 0.1 * len(rows) < cut <= len(rows)  # at most the last span ends within a word


def test_one_action_for_a_unit():
    rows = make_rows([128] * 1500)
    for config in (
        TokenMasksConfig(unit="span", count="up", action="unit"),
        TokenMasksConfig(unit="word", action="unit"),
    ):
        taken, _ = taken_of(config, rows)
        corrupted = corrupt(config, rows)
        fates = collections.Counter()
        for row, unit, after in zip(rows, taken, corrupted["token_ids"], strict=True):
            for n in range(unit.max() + 1):
                was, seen = row[unit == n], after[unit == n]
                if (seen == MASK).all():
                    fates["mask"] += len(was) > 0
                elif (seen == was).all():
                    fates["keep"] += 1
                else:
                    assert (seen != was).mean() > 0.3 and (seen == MASK).sum() < 2
                    fates["random"] += 1
        total = sum(fates.values())
        for fate, share in (("mask", 0.8), ("keep", 0.1), ("random", 0.1)):
            assert abs(fates[fate] / total - share) < 4 * np.sqrt(share * (1 - share) / total)


def test_spans_have_their_boundaries():
    rows = make_rows([64, 40])
    config = TokenMasksConfig(unit="span", count="up")
    corrupted = corrupt(config, rows)
    assert config.gives() == set(corrupted) - {"token_ids", "padding_mask"}
    follows = token_masks.follows(
        config, VOCABULARY, {k: tf.constant(v) for k, v in corrupted.items()}
    )
    for name, value in follows.items():  # the same from static masks
        np.testing.assert_array_equal(corrupted[name], value)
    for name, value in token_masks.boundaries(
        VOCABULARY,
        {**pad(rows), **{k: corrupted[k] for k in ("masked_positions", "masked_weights")}},
    ).items():
        np.testing.assert_array_equal(corrupted[name], value)


def test_phrases_are_hidden_as_a_whole():
    row = np.array([CLS, *range(10, 28), SEP])
    inner = np.zeros((400, 20), bool)
    inner[:, [2, 3, 8, 9]] = True  # tokens 1-3 and 7-9, and the words around them
    config = TokenMasksConfig(unit="phrase", max_predictions=4, mask_rate=0.2)
    batch = {**pad([row] * 400), "phrase_inner": tf.constant(inner)}
    taken = token_masks.select(config, VOCABULARY, batch, seeds_of(400))[0].numpy() >= 0
    assert taken.sum(axis=1).max() == 4
    first, second = taken[:, 1:4], taken[:, 7:10]
    for phrase in (first, second):
        assert (phrase.all(axis=1) == phrase.any(axis=1)).all()
        assert 0.05 < phrase.all(axis=1).mean() < 0.5
    assert not (first.all(axis=1) & second.all(axis=1)).any()  # six tokens would be too many
    assert config.needs() == {"phrase_inner"}
    assert TokenMasksConfig(unit="entity").needs() == {"entity_inner"}
    assert TokenMasksConfig(unit="span").needs() == set()


def test_random_tokens_as_often_as_in_the_corpus():
    counts = np.zeros(V, np.int64)
    counts[[20, 30, 40]] = [1, 2, 7]
    vocabulary = dataclasses.replace(VOCABULARY, counts=counts)
    config = TokenMasksConfig(mask_prob=0.0, random_prob=1.0, random_tokens="unigram")
    corrupted = token_masks.corrupt(
        config, vocabulary, pad(make_rows([128] * 1000)), seeds_of(1000)
    )
    hidden = tf.gather(corrupted["token_ids"], corrupted["masked_positions"], batch_dims=1).numpy()
    drawn = hidden[corrupted["masked_weights"].numpy() > 0]
    assert set(drawn) == {20, 30, 40}
    np.testing.assert_allclose(
        np.bincount(drawn)[[20, 30, 40]] / len(drawn), [0.1, 0.2, 0.7], atol=0.015
    )
    with pytest.raises(UserError, match="corruption.random_tokens: unigram draws tokens as often"):
        token_masks.corrupt(config, VOCABULARY, pad(make_rows([9])), seeds_of(1))


@pytest.mark.parametrize("length", [6, 12])
def test_masks_are_those_of_a_loop(length):
    batch = pad(make_rows([length, 5]), length)
    for size in [n for n in range(1, length + 1) if length % n == 0]:
        config = TokenMasksConfig(block_size=size)
        corrupted = token_masks.corrupt(config, VOCABULARY, batch, seeds_of(2))
        assert corrupted.keys() == batch.keys() | config.gives()
        seen = np.array(masks.combine(masks.blocks(corrupted["block_ids"]), None))
        for b in range(2):
            for i in range(length):
                for j in range(length):
                    assert seen[b, 0, i, j] == (j // size <= i // size), (size, i, j)


def test_blocks_change_nothing_else():
    batch = pad(make_rows([64, 40]))
    plain = token_masks.corrupt(TokenMasksConfig(), VOCABULARY, batch, seeds_of(2))
    corrupted = token_masks.corrupt(TokenMasksConfig(block_size=16), VOCABULARY, batch, seeds_of(2))
    assert "block_ids" in TokenMasksConfig(block_size=16).gives() - TokenMasksConfig().gives()
    assert corrupted.keys() - plain.keys() == {"block_ids"} and corrupted["block_ids"].shape == (
        2,
        64,
    )
    for name, value in plain.items():
        np.testing.assert_array_equal(corrupted[name], value)


@pytest.mark.slow
@pytest.mark.parametrize("static", [False, True])
def test_batches_have_blocks(static, tmp_path):
    config = small.config(segments__static_masks=static, corruption__block_size=8)
    batch = next(
        iter(ShardDataset(small.shard_folder(tmp_path / "shards", config), config).dataset(4))
    )
    np.testing.assert_array_equal(batch["block_ids"], [np.arange(32) // 8] * 4)
    assert batch["block_ids"].dtype == tf.int32


STREAM = {
    "segments": {"format": "stream", "max_length": 32, "rows": 8, "reuse_length": 12},
    "encoder": {"type": "transformer_xl", "memory_length": 9, "reuse_length": 12},
    "objectives": [{"type": "masked_lm"}],
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corruption__block_size": 0}, "corruption.block_size: 0 is less than 1"),
        ({"corruption__block_size": 5},
         r"corruption.block_size: blocks of 5 do not fill max_length 32: 32 = 6 × 5 \+ 2; take a"),
        ({**STREAM, "corruption__block_size": 8},
         r"block_size: blocks of 8 do not end where the next row continues, after reuse_length 12 "
         r"= 1 × 8 \+ 4: take a divisor of both reuse_length and max_length 32"),
        ({"segments__packing": 2, "corruption__block_size": 8},
         "corruption.block_size: 8 is not supported for rows that several sequences share: set "
         "segments.packing to 1"),
        (STREAM,
         r"config: corruption.block_size: missing: the next row predicts the text after the first "
         r"12 tokens \(segments.reuse_length\), which these see before the memory keeps them "
         r"\(encoder.attention: bi\): set it to a divisor of them and of max_length 32, such as 4, "
         r"or take encoder.attention: uni, or encoder.memory_length: 0 and encoder.reuse_length"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        small.config(**changes)


def test_what_the_refusal_says_to_do_works():
    assert small.config(**STREAM, corruption__block_size=4).corruption.block_size == 4
    for changes in ({"attention": "uni"}, {"memory_length": 0, "reuse_length": 0}):
        small.config(**{**STREAM, "encoder": {**STREAM["encoder"], **changes}})
    # Rows without a reused part are remembered whole, and followed by other text.
    segments = {**STREAM["segments"], "reuse_length": 0}
    encoder = {**STREAM["encoder"], "reuse_length": 0}
    small.config(**{**STREAM, "segments": segments, "encoder": encoder})
    # What hides nothing has nothing to see.
    permuted = {
        **STREAM, "objectives": [{"type": "permutation_lm"}],
        "corruption": {"type": "permutation", "unit": "token", "num_predict": 5, "perm_size": 4},
    }  # fmt: skip
    assert small.config(**permuted).corruption.type == "permutation"


def test_a_corruption_that_nobody_asks_about_needs_no_blocks():
    pairs = {
        **STREAM,
        "segments": {**STREAM["segments"], "relation": "next_sentence"},
        "encoder": {**STREAM["encoder"], "pooler": True},
        "objectives": [{"type": "sentence_pair"}],
    }
    assert small.config(**pairs).corruption.block_size is None
