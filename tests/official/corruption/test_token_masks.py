"""T tokens with padding, V pieces, P predictions."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from official import seeding
from official.corruption import token_masks
from official.corruption.token_masks import Config
from official.corruption.vocabulary import Vocabulary
from official.seeding import Stream

V, PAD, CLS, SEP, MASK = 1000, 0, 2, 3, 4
SPECIALS = (PAD, CLS, SEP, MASK)
# A third of the pieces continues a word.
VOCABULARY = Vocabulary(V, MASK, SPECIALS, np.array([i < 10 or i % 3 > 0 for i in range(V)]))


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
    made = token_masks.corrupt(config, VOCABULARY, pad(rows, places), seeds)
    return {name: value.numpy() for name, value in made.items()}


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
    config = Config(unit=unit, mask_rate=rate, max_predictions=most)
    rows = make_rows([*range(4, 60), *[97] * 40])
    made = corrupt(config, rows)
    priorities = seeding.bits(seeds_of(len(rows)), Stream.MASK_ORDER, 97).numpy().astype(np.int64)
    for i, row in enumerate(rows):
        expected = masked_slowly(row.tolist(), config, priorities[i])
        found = made["masked_positions"][i][made["masked_weights"][i] > 0].tolist()
        assert found == expected
        assert made["masked_ids"][i, : len(expected)].tolist() == row[expected].tolist()


def test_long_words_are_skipped_not_cut():
    table = np.ones(V, bool)
    table[500:] = False
    vocabulary = Vocabulary(V, MASK, SPECIALS, table)
    # Words of 1, 5, 1, 5 and 1 pieces; 17 tokens and rate 0.2 give 3 predictions.
    row = np.array([CLS, 10, 11, *range(500, 504), SEP, 12, 13, *range(504, 508), 14, 15, SEP])
    config = Config(unit="word", mask_rate=0.2)
    assert number_to_predict(len(row), config) == 3
    made = token_masks.corrupt(config, vocabulary, pad([row] * 200), seeds_of(200))
    for positions, weights in zip(
        made["masked_positions"].numpy(), made["masked_weights"].numpy(), strict=True
    ):
        assert sorted(row[positions[weights > 0]]) in (
            [10, 12, 14],
            [10, 12, 15],
            [10, 14, 15],
            [12, 14, 15],
        )


def test_a_word_begins_anew_after_a_special_token():
    row = np.array([CLS, 12, 15, SEP, 18, 11, SEP])  # 12, 15 and 18 continue words
    batch = pad([row])
    units = token_masks.UNITS["word"](VOCABULARY, batch["token_ids"], batch["padding_mask"])
    assert units.numpy().tolist() == [[-1, 0, 0, -1, 1, 2, -1]]


@pytest.mark.parametrize(
    "length, number", [(4, 1), (10, 2), (30, 4), (50, 8), (128, 19), (512, 20)]
)
def test_number_to_predict(length, number):
    # 0.15 · 10 = 1.5, 0.15 · 30 = 4.5 and 0.15 · 50 = 7.5: halves go to the even number.
    made = corrupt(Config(), make_rows([length]))
    assert made["masked_weights"].sum() == number
    assert made["masked_positions"].shape == (1, 20)


def test_nothing_but_specials_and_padding():
    made = corrupt(Config(), [np.array([CLS, SEP, SEP]), np.array([CLS, 77, SEP, SEP])], places=6)
    assert made["token_ids"][0].tolist() == [CLS, SEP, SEP, PAD, PAD, PAD]
    assert made["masked_weights"].sum(axis=1).tolist() == [0, 1]
    assert made["masked_positions"][:, :2].tolist() == [[0, 0], [1, 0]]
    assert made["masked_ids"][:, :2].tolist() == [[0, 0], [77, 0]]


@pytest.mark.parametrize("unit", ["token", "word"])
def test_a_row_does_not_depend_on_its_batch_or_padding(unit):
    config = Config(unit=unit)
    rows = make_rows([128, 40, 77, 9, 128, 64])
    whole = corrupt(config, rows)
    for i, row in enumerate(rows):
        alone = corrupt(config, [row], seeds_of(6)[i : i + 1], places=len(row) + i)
        for name in token_masks.GIVES:
            np.testing.assert_array_equal(alone[name][0], whole[name][i])
        np.testing.assert_array_equal(
            alone["token_ids"][0, : len(row)], whole["token_ids"][i, : len(row)]
        )


def test_the_same_eagerly_and_in_tf_data():
    config = Config(unit="word")
    batch = pad(make_rows([60, 30, 45]))
    eager = token_masks.corrupt(config, VOCABULARY, batch, seeds_of(3))
    data = tf.data.Dataset.from_tensors(batch).map(
        lambda b: token_masks.corrupt(config, VOCABULARY, b, seeds_of(3))
    )
    (graph,) = data
    assert graph.keys() == eager.keys() == {"token_ids", "padding_mask", *token_masks.GIVES}
    for name, value in eager.items():
        np.testing.assert_array_equal(graph[name], value)
    assert data.element_spec["masked_positions"].shape == (3, 20)
    assert [eager[f"masked_{n}"].dtype for n in ("positions", "ids", "weights")] == [
        tf.int32, tf.int32, tf.float32,
    ]  # fmt: skip


def test_other_epochs_have_other_masks():
    rows = make_rows([128] * 4)
    first, second = (corrupt(Config(), rows, seeds_of(4, epoch)) for epoch in (0, 1))
    for i in range(4):
        assert set(first["masked_positions"][i]) != set(second["masked_positions"][i])


@pytest.mark.parametrize("unit", ["token", "word"])
def test_a_hundred_thousand_masked_tokens(unit):
    config = Config(unit=unit)
    rows = make_rows([128] * 5400)
    made = corrupt(config, rows)
    original = np.stack(rows)
    hidden = np.zeros(original.shape, bool)
    for i in range(len(rows)):
        hidden[i, made["masked_positions"][i][made["masked_weights"][i] > 0]] = True
    total = hidden.sum()
    assert total > 100_000

    # Counts: 19 of 128 each; words may leave the last places empty, tokens never.
    per_row = made["masked_weights"].sum(axis=1)
    assert per_row.max() == 19
    assert per_row.min() == 19 if unit == "token" else per_row.mean() > 18.9
    np.testing.assert_array_equal(hidden.sum(axis=1), per_row)

    # Never a special token, and nothing changes but what is hidden.
    assert not hidden[np.isin(original, SPECIALS)].any()
    np.testing.assert_array_equal(made["token_ids"][~hidden], original[~hidden])

    # 80/10/10. A random token is the original or [MASK] by chance once in V each.
    def near(count, share):
        assert abs(count - share * total) < 3 * np.sqrt(total * share * (1 - share))

    seen, was = made["token_ids"][hidden], original[hidden]
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
        for row, mask, after in zip(rows, hidden, made["token_ids"], strict=True):
            for word in words_of(row.tolist(), "word"):
                if len(word) == 2 and mask[word[0]]:
                    fates[int((after[word] == MASK).sum())] += 1
        pairs = sum(fates.values())
        assert abs(fates[2] - 0.64 * pairs) < 3 * np.sqrt(pairs * 0.64 * 0.36)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"unit": "line"}, "unit: 'line' is not one of token, word"),
        ({"mask_rate": 0.0}, "mask_rate: 0.0 is not above 0"),
        ({"mask_rate": 1.5}, "mask_rate: 1.5 is not above 0 and at most 1"),
        ({"max_predictions": 0}, "max_predictions: 0 is less than 1"),
        ({"mask_prob": -0.1}, "mask_prob: -0.1 is not between 0 and 1"),
        ({"mask_prob": 0.9, "random_prob": 0.2}, "mask_prob: 0.9 and random_prob 0.2 exceed 1"),
    ],
)
def test_bad_settings(values, message):
    with pytest.raises(ValueError, match=message):
        Config(**values)
