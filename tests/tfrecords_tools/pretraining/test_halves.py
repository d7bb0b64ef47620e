"""Tests of tfrecords_tools.pretraining.halves."""

import dataclasses
import itertools

import numpy as np
import pytest

from official import config as configs
from official import data
from official.config import Segments
from tests import ROOT, small
from tests.tfrecords_tools.pretraining.test_pairs import Scripted, make_piece, random_piece
from tfrecords_tools.pretraining import halves, segments

GOLDEN = np.load(ROOT / "tests" / "golden" / "sentence_lengths.npz")
CLS, SEP = 2, 3


def settings(length, **options):
    return Segments(format="halves", max_length=length, **options)


def released(documents, length, uniform, short=0.05, single=0.1):
    """The release's `ExampleBuilder`, token by token: first and second segments of all examples.

    `documents` hold sentences, and these tokens. The target of an example is drawn before it.
    """
    result = []
    for document in documents:
        current, size = [], 0
        for number, sentence in enumerate(document):
            if not current:
                target = length
                if uniform() < short:
                    target = 5 + int(uniform() * (length - 4))  # 5 ... length
            current.append(sentence)
            size += len(sentence)
            if size < target and number < len(document) - 1:
                continue
            half = 100_000 if uniform() < single else (target - 3) // 2
            first, second = [], []
            for tokens in current:
                if (
                    len(first) == 0
                    or len(first) + len(tokens) < half
                    or (len(second) == 0 and len(first) < half and uniform() < 0.5)
                ):
                    first += tokens
                else:
                    second += tokens
            first = first[: length - 2]
            second = second[: max(0, length - len(first) - 3)]
            result.append((first, second))
            current, size = [], 0
    return result


def documents_of(piece):
    """Sentences of each document as lists of the places of their tokens."""
    sentences = [range(a, b) for a, b in itertools.pairwise(piece.sentences.tolist())]
    return [sentences[a:b] for a, b in itertools.pairwise(piece.documents.tolist())]


def cut(piece, how, rng, between=1):
    """First and second segments of the examples as lists of places, from the tokens themselves."""
    rows = halves.cut(piece, how, rng, between)
    ids = np.arange(10, 10 + len(piece.ids), dtype=np.int32)
    text = dataclasses.replace(piece, ids=ids)
    values, splits, (lengths, parts) = segments.assemble(text, rows, CLS, SEP, between)
    np.testing.assert_array_equal(np.diff(splits), rows.lengths(between))
    actual = []
    for i in range(len(rows)):
        row = values[splits[i] : splits[i + 1]].tolist()
        sizes = lengths[parts[i] : parts[i + 1]].tolist()
        assert row[0] == CLS and row[-1] == SEP and len(row) == sum(sizes) <= how.max_length
        first = row[1 : sizes[0]]
        second = row[sizes[0] : -1]
        if second:
            assert first[-between:] == [SEP] * between and len(sizes) == 2
        actual.append(tuple([i - 10 for i in s if i != SEP] for s in (first, second)))
        assert row.count(SEP) == (1 + between if second else 1)
    lost = [int(n) for n in rows.cut]
    assert sum(len(a) + len(b) for a, b in actual) + sum(lost) == len(piece.ids)
    assert not rows.labels.any()
    return actual


@pytest.mark.parametrize("length", [8, 16, 33, 128])
@pytest.mark.parametrize("seed", range(4))
def test_same_as_the_release(length, seed):
    piece = random_piece(np.random.default_rng(seed), documents=120)
    uniforms = np.random.default_rng(seed).random(100_000)
    how = settings(length, short_seq_prob=0.3, single_prob=0.2)
    expected = released(
        documents_of(piece), length, iter(uniforms.tolist()).__next__, short=0.3, single=0.2
    )
    rows = cut(piece, how, Scripted(uniforms))
    assert rows == [(list(a), list(b)) for a, b in expected]
    kinds = {(bool(b), a != sorted(a) or bool(b) and b[0] < a[-1]) for a, b in rows}
    assert kinds >= {(False, False), (True, False), (True, True)} or length < 33


def test_sentences_of_a_text():
    # Sentences of 3, 4 and 9 tokens for a target of 16, whose half is 6. 0.5: no short target.
    # 0.5: two segments. The second sentence reaches the half, and 0.4 lets it be in the first
    # segment. The third one is in the second segment, which has room for 6 tokens.
    rows = halves.cut(make_piece([3, 4, 9]), settings(16), Scripted([0.5, 0.5, 0.4]))
    assert rows.runs.tolist() == [[0, 7], [7, 13]] and rows.cut.tolist() == [3]
    assert rows.opens.tolist() == rows.closed.tolist() == [True, True]
    # 0.6 lets the second one be in the second segment; the last sentence still fits into the first.
    rows = halves.cut(make_piece([3, 4, 5, 2]), settings(16), Scripted([0.5, 0.5, 0.6]))
    assert rows.runs.tolist() == [[0, 3], [12, 14], [3, 11]]
    assert rows.opens.tolist() == [True, False, True]
    assert rows.closed.tolist() == [False, True, True]
    assert rows.splits.tolist() == [0, 3] and rows.lengths().tolist() == [16]
    # 0.05: a single segment by choice, that is cut at its end.
    rows = halves.cut(make_piece([3, 4, 9]), settings(16), Scripted([0.5, 0.05]))
    assert rows.runs.tolist() == [[0, 14]] and rows.cut.tolist() == [2]
    # 0.01: a short target, 5 + int(0.2 * 12) = 7: the first two sentences.
    draws = [0.01, 0.2, 0.5] + [0.5, 0.5]
    rows = halves.cut(make_piece([3, 4, 9]), settings(16, short_seq_prob=0.02), Scripted(draws))
    assert rows.runs.tolist() == [[0, 3], [3, 7], [7, 16]]
    assert rows.splits.tolist() == [0, 2, 3]


def test_two_separators_leave_less_room():
    piece = random_piece(np.random.default_rng(0), documents=60)
    rows = cut(piece, settings(16), np.random.default_rng(0), between=2)
    assert max(len(a) + len(b) for a, b in rows if b) == 12


def test_nothing_to_cut():
    rows = halves.cut(make_piece([0]), settings(16), np.random.default_rng(0))
    assert len(rows) == 0 and rows.runs.shape == (0, 2) and rows.splits.tolist() == [0]


def wikipedia(lines):
    """288 articles, a line being a sentence or a paragraph."""
    sentences = GOLDEN["sentences"].astype(int)
    if lines == "sentences":
        counts = np.add.reduceat(GOLDEN["paragraphs"].astype(int), starts(GOLDEN["documents"]))
        return np.split(sentences, np.cumsum(counts)[:-1])
    paragraphs = np.add.reduceat(sentences, starts(GOLDEN["paragraphs"]))
    return np.split(paragraphs, np.cumsum(GOLDEN["documents"].astype(int))[:-1])


def starts(counts):
    return np.cumsum(counts.astype(int)) - counts


@pytest.mark.parametrize(
    "lines, length, single", [("sentences", 128, 0.179), ("sentences", 512, 0.283),
                              ("paragraphs", 128, 0.461)],
)  # fmt: skip
def test_shares_of_single_segments_and_the_cut(lines, length, single):
    """One text in ten by choice, and what one line fills or leaves over."""
    documents = [d.tolist() for d in wikipedia(lines)]
    piece = make_piece(*documents)
    passes = 8
    rng = np.random.default_rng(7)
    actual, expected = [], []
    for seed in range(passes):
        how = settings(length, short_seq_prob=0.05)
        actual += cut(piece, how, np.random.default_rng(seed))
        expected += released(documents_of(piece), length, rng.random)
    singles = [np.array([not b for _, b in result]) for result in (actual, expected)]
    sigma = np.sqrt(single * (1 - single) / len(actual))
    assert len(actual) > 3000
    for result in singles:
        assert abs(result.mean() - single) < 4 * sigma
    assert abs(len(actual) - len(expected)) < 0.02 * len(expected)
    # Two segments are cut near the half: as near as the release's.
    firsts = [np.array([len(a) for a, b in result if b]) for result in (actual, expected)]
    error = np.sqrt(sum(result.var() / len(result) for result in firsts))
    assert abs(firsts[0].mean() - firsts[1].mean()) < 4 * error
    assert abs(firsts[0].std() / firsts[1].std() - 1) < 0.05
    if lines == "sentences":
        assert abs(firsts[0].mean() / ((length - 3) / 2) - 1) < 0.04


def test_from_shards_to_batches(tmp_path):
    model_config = small.config(
        segments={"format": "halves", "max_length": 32, "short_seq_prob": 0.05},
        corruption__mask_prob=0.85,
        corruption__random_prob=0.0,
        corruption__replacement=True,
        encoder__pooler=False,
        objectives=[{"type": "generator", "size": 0.5}, {"type": "replaced_tokens"}],
    )
    assert model_config.segments.relation == "none" and model_config.segments.label is None
    source = data.ShardDataset(small.shard_folder(tmp_path / "shards", model_config), model_config)
    sep, cls = source.tokenizer.sep_id, source.tokenizer.cls_id
    singles = rows = 0
    for batch in source.dataset(8).as_numpy_iterator():
        for row in np.flatnonzero(batch["example_weights"]):
            size = batch["padding_mask"][row].sum()
            ids = batch["token_ids"][row][:size]
            assert ids[0] == cls and ids[-1] == sep
            second = batch["segment_ids"][row][:size]
            (seps,) = np.nonzero(ids == sep)
            assert len(seps) == 1 + second[-1] and second.sum() == size - 1 - seps[0]
            singles += len(seps) == 1
            rows += 1
            assert batch["masked_weights"][row].sum() == min(5, max(1, round(0.15 * size)))
    assert 0 < singles < rows > 50


@pytest.mark.parametrize(
    "values, message",
    [
        ({"format": "halves", "relation": "next_sentence"},
         "relation: next_sentence needs two segments, and the format halves has two that belong"),
        ({"single_prob": 0.2}, "single_prob: not supported for the format pairs, only for halves"),
        ({"format": "halves", "single_prob": 2.0}, "single_prob: 2.0 is not between"),
    ],
)  # fmt: skip
def test_bad_settings(values, message):
    with pytest.raises(ValueError, match=message):
        configs.Segments(**values)
