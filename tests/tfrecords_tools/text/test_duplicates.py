"""Tests of tfrecords_tools.text.duplicates."""

import numpy as np
import pytest

from tfrecords_tools.text import duplicates, words

MASK = 2**64 - 1


def rows_of(texts):
    """The rows of texts for the search for near-duplicates."""
    measured = words.measure(texts, hashed=True)
    numbers = np.arange((np.diff(measured.words) == 0).sum(), dtype=np.uint64)
    return duplicates.shortened(duplicates.least_hashes(measured.hashes, measured.words, numbers))


def mixed(value):
    """SplitMix64, in whole numbers of Python."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31


def shingles_of(text):
    found = text.lower().split()
    return {tuple(found[i : i + 3]) for i in range(max(1, len(found) - 2))}


def similarity(a, b):
    return len(a & b) / len(a | b)


def test_least_hashes_as_a_loop_has_them():
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**64, 40, np.uint64)
    counts = [3, 0, 1, 2, 11, 0, 23, 0]
    splits = np.concatenate([[0], np.cumsum(counts)])
    stand_ins = rng.integers(0, 2**64, 3, np.uint64)
    found = duplicates.least_hashes(hashes, splits, stand_ins)
    left = iter(stand_ins.tolist())
    factors = [int(f) for f in duplicates._WORD_FACTORS]
    for number, (begin, end) in enumerate(zip(splits[:-1], splits[1:], strict=True)):
        document = hashes[begin:end].tolist() or [next(left)]
        runs = [document[i : i + 3] for i in range(max(1, len(document) - 2))]
        shingles = [
            mixed(sum(word * f for word, f in zip(run, factors, strict=False)) & MASK)
            for run in runs
        ]
        expected = [
            min((shingle * int(a) + int(b) & MASK) >> 32 for shingle in shingles)
            for a, b in zip(duplicates._FACTORS, duplicates._SUMMANDS, strict=True)
        ]
        assert found[number].tolist() == expected


def test_rows_estimate_the_similarity():
    """The share of equal places has the mean and the variance of independent draws."""
    rng = np.random.default_rng(1)
    vocabulary = [f"w{i}" for i in range(5000)]
    errors = []
    for _ in range(200):
        text = rng.choice(vocabulary, 120)
        other = text.copy()
        other[rng.choice(120, rng.integers(0, 40), replace=False)] = "new"
        pair = [" ".join(text), " ".join(other)]
        expected = similarity(*map(shingles_of, pair))
        expected += (1 - expected) / 256
        a, b = rows_of(pair)
        scale = np.sqrt(expected * (1 - expected) / duplicates.HASHES)
        errors.append(((a == b).mean() - expected) / max(scale, 1e-9))
    errors = np.array(errors)
    assert abs(errors.mean()) < 4 / np.sqrt(len(errors))
    assert 0.7 < errors.std() < 1.3


def test_equal_rows_as_a_loop_finds_them():
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 2, (300, duplicates.DIGEST_BYTES), np.uint8)
    rows[:, :13] = 7
    seen, expected = set(), []
    for row in rows:
        expected.append(row.tobytes() in seen)
        seen.add(row.tobytes())
    assert duplicates.find_equal(rows).tolist() == expected
    assert 0 < sum(expected) < len(rows)


def test_alike_rows_as_a_loop_finds_them():
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 256, (20, duplicates.HASHES), np.uint8)[rng.integers(0, 20, 200)]
    changed = rng.random(rows.shape) < rng.uniform(0.1, 0.25, (200, 1))
    rows = np.where(changed, rng.integers(0, 256, rows.shape), rows).astype(np.uint8)
    expected = []
    for i in range(len(rows)):
        earlier = [
            j
            for j in range(i)
            if (rows[i] == rows[j]).sum() * 3 >= 2 * duplicates.HASHES
            and any((rows[i] == rows[j])[k : k + 5].all() for k in range(0, 125, 5))
        ]
        expected.append(bool(earlier))
    assert duplicates.find_alike(rows).tolist() == expected
    assert 60 < sum(expected) < 180


def test_a_document_without_three_words():
    texts = ["one two", "One, two!", "one", "", "!!!", "one two three", "two one"]
    found = duplicates.find_alike(rows_of(texts))
    assert found.tolist() == [False, True, False, False, False, False, False]
    assert duplicates.find_alike(np.zeros((0, duplicates.HASHES), np.uint8)).tolist() == []
    nothing = np.zeros((0, duplicates.DIGEST_BYTES), np.uint8)
    assert duplicates.find_equal(nothing).tolist() == []


def test_text_that_is_hashed_in_parts():
    whole = duplicates.TextHash().add(" a  b\nc d ").digest()
    assert whole == duplicates.TextHash().add("a b").add("").add("\nc d").digest()
    assert whole != duplicates.TextHash().add("ab c d").digest()
    assert len(whole) == duplicates.DIGEST_BYTES


def corpus(rng, originals, copies, boilerplate):
    """Texts and whether each has a near-duplicate before it.

    Unrelated documents share boilerplate, which is up to 60% of their words. Copies have one to
    five of 100 words changed, left out or added.
    """
    vocabulary = np.array([f"w{i}" for i in range(20_000)])
    weights = 1 / np.arange(1, len(vocabulary) + 1)
    weights /= weights.sum()
    shared = [rng.choice(vocabulary, 90, p=weights) for _ in range(boilerplate)]
    texts = []
    for _ in range(originals):
        own = rng.choice(vocabulary, rng.integers(60, 300), p=weights)
        used = shared[rng.integers(boilerplate)]
        texts.append(np.concatenate([used[:45], own, used[45:]]))
    truth = [False] * originals
    for i in rng.choice(originals, copies):
        text = list(texts[i])
        for _ in range(max(1, round(len(text) * rng.uniform(0.01, 0.05)))):
            place = rng.integers(len(text))
            change = rng.integers(3)
            text[place : place + (change != 1)] = rng.choice(vocabulary, int(change != 2))
        texts.append(np.array(text))
        truth.append(True)
    order = np.concatenate([np.arange(originals), originals + rng.permutation(copies)])
    return [" ".join(texts[i]) for i in order], np.array(truth)


@pytest.mark.parametrize("boilerplate", [1, 20])
def test_precision_and_recall(boilerplate):
    texts, truth = corpus(np.random.default_rng(4), 1500, 500, boilerplate)
    found = duplicates.find_alike(rows_of(texts))
    recall = (found & truth).sum() / truth.sum()
    precision = (found & truth).sum() / found.sum()
    assert recall > 0.95 and precision > 0.99, (recall, precision)
