"""Inputs and targets of an encoder-decoder: worked rows, lengths, and the laws of the draws."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.corruptions import METHODS, DenoisingConfig, SentinelsConfig
from official.config.segments import Segments
from official.corruption import denoising, sentinels
from official.corruption.sentinels import compact
from official.corruption.vocabulary import Vocabulary
from official.utils import seeding

CONFIGS = Path(__file__).resolve().parents[3] / "configs" / "pretrain"
PAD, END, TOP = 0, 1, 99
VOCABULARY = Vocabulary(
    size=100,
    mask_id=-1,
    special_ids=(PAD, END),
    word_starts=np.ones(100, bool),
    pad_id=PAD,
    end_id=END,
    sentinel_ids=tuple(range(TOP, 79, -1)),
)
TOKENS = np.arange(10, 20, dtype=np.int32)


def row(noise, config):
    """Inputs and targets of the tokens 10 to 19 with some of them removed, without padding."""
    removed = tf.constant([[flag == "1" for flag in noise]])
    real = tf.ones_like(removed)
    parts = sentinels.split(config, VOCABULARY, tf.constant(TOKENS[None]), real, removed)
    rows = [compact(*part, 30, VOCABULARY) for part in parts]
    return [ids.numpy()[0][mask.numpy()[0]].tolist() for ids, mask in rows]


@pytest.mark.parametrize(
    "noise, inputs, released, intended",
    [
        ("0011000100", [10, 11, 99, 14, 15, 16, 98, 18, 19], [99, 12, 13, 98, 17, 97], None),
        ("0011000011", [10, 11, 99, 14, 15, 16, 17, 98], [99, 12, 13, 98, 18, 19], None),
        (
            "1100010000",
            [99, 12, 13, 14, 98, 16, 17, 18, 19],
            [10, 11, 99, 15, 98],
            [99, 10, 11, 98, 15, 97],
        ),
    ],
)
def test_worked_rows(noise, inputs, released, intended):
    got = row(noise, SentinelsConfig(sentinels=20))
    assert got == [[*inputs, END], [*released, END]]
    got = row(noise, SentinelsConfig(sentinels=20, targets="intended"))
    assert got == [[*inputs, END], [*(intended or released), END]]
    removed = [int(t) for t, flag in zip(TOKENS, noise, strict=True) if flag == "1"]
    kept = [int(t) for t, flag in zip(TOKENS, noise, strict=True) if flag == "0"]
    assert row(noise, SentinelsConfig(replace=False)) == [[*kept, END], [*removed, END]]


def test_padding_changes_nothing():
    config = SentinelsConfig(sentinels=20, targets="intended")
    ids = np.zeros((1, 14), np.int32)
    ids[0, :10] = TOKENS
    real = tf.constant(ids > 0)
    removed = tf.constant([[c == "1" for c in "10000110000000"]])
    parts = sentinels.split(config, VOCABULARY, tf.constant(ids), real, removed)
    rows = [compact(*part, 30, VOCABULARY) for part in parts]
    got = [x.numpy()[0][mask.numpy()[0]].tolist() for x, mask in rows]
    assert got == row("1000011000", config)


def test_rows_that_are_too_long_are_cut_before_the_end_token():
    ids, mask = compact(tf.constant(TOKENS[None]), tf.ones((1, 10), tf.bool), 4, VOCABULARY)
    assert ids.numpy().tolist() == [[10, 11, 12, END]] and mask.numpy().all()
    ids, mask = compact(tf.constant(TOKENS[None]), tf.ones((1, 10), tf.bool), 13, VOCABULARY)
    assert ids.numpy().tolist() == [[*TOKENS, END, PAD, PAD]]
    assert mask.numpy().sum() == 11


@pytest.mark.parametrize(
    "length, settings, raw, targets",
    [
        (64, {}, 70, 14),
        (128, {}, 141, 29),
        (256, {}, 284, 58),
        (512, {}, 568, 114),
        (1024, {}, 1137, 229),
        (512, {"mean_span_length": 2.0}, 552, 126),
        (512, {"mean_span_length": 5.0}, 581, 105),
        (512, {"mean_span_length": 10.0}, 591, 99),
        (512, {"mean_span_length": 1.0}, 511, 155),
        (64, {"mean_span_length": 1.0, "noise_density": 0.5}, 62, 63),
        (70, {"mean_span_length": 10.0, "noise_density": 0.3}, 94, 32),  # 0.3 * 95 < 28.5
        (512, {"noise_density": 0.1}, 548, 74),
        (512, {"noise_density": 0.25}, 614, 206),
        (512, {"noise_density": 0.5, "sentinels": 128}, 766, 512),
        (512, {"masks": "tokens", "replace": False}, 511, 104),
    ],
)
def test_lengths(length, settings, raw, targets):
    lengths = SentinelsConfig(**settings).lengths(length)
    assert (lengths.raw, lengths.targets) == (raw, targets)
    assert lengths.inputs <= length
    assert SentinelsConfig(**settings).lengths_of_row(raw) == lengths


def test_raw_lengths_are_those_of_the_release():
    """By its rule: the largest n, from one less than the inputs, in Python's float64."""

    def inputs(n, density, mean):
        removed = round(n * density)
        return n - removed + round(removed / mean) + 1

    for length, density, mean in itertools.product(
        range(40, 1100, 53), (0.1, 0.15, 0.3, 0.5), (1.0, 1.5, 2.0, 3.0, 5.0)
    ):
        config = SentinelsConfig(noise_density=density, mean_span_length=mean, sentinels=1000)
        n = length - 1
        while inputs(n + 1, density, mean) <= length:
            n += 1
        removed = round(n * density)
        if density == 0.5 and removed + round(removed / mean) + 1 > inputs(n, density, mean):
            n -= 1
        found = config.lengths(length)
        assert found.raw == n and found.inputs <= length, (length, density, mean)


@pytest.mark.parametrize("method", METHODS)
def test_a_raw_row_leaves_room_for_the_end_token(method):
    config = DenoisingConfig(method=method)
    lengths = config.lengths(512)
    assert lengths.raw == 511 and max(lengths.inputs, lengths.targets) <= 512


@pytest.mark.parametrize(
    "length, settings, message",
    [
        (512, {"noise_density": 0.5}, "766 tokens × noise_density 0.5 / mean_span_length 3 = 128 "),
        (1810, {}, "= 10. spans need 10. sentinels, but there are 100: lower segments.max_length"),
        (
            512,
            {"noise_density": 0.5, "masks": "tokens"},
            "511 tokens × 0.5 × 0.5 = 128 spans on av",
        ),
    ],
)
def test_sentinels_that_run_out(length, settings, message):
    segments = Segments(format="joined", max_length=length)
    with pytest.raises(ValueError, match=message):
        SentinelsConfig(**settings).check(segments)


def test_1809_tokens_have_enough_sentinels():
    SentinelsConfig().check(Segments(format="joined", max_length=1809))


def batch(ids, width):
    real = np.arange(width) < np.array([len(x) for x in ids])[:, None]
    rows = np.zeros((len(ids), width), np.int32)
    for i, x in enumerate(ids):
        rows[i, : len(x)] = x
    return {"token_ids": tf.constant(rows), "padding_mask": tf.constant(real)}


def test_all_masks_of_ten_tokens_are_equally_likely():
    config = SentinelsConfig(noise_density=0.3, mean_span_length=1.5)
    count = 24_000
    seeds = seeding.row_seeds(3, 0, tf.range(count))
    real = tf.ones((count, 10), tf.bool)
    masks = sentinels.noise(config, real, seeds).numpy()
    rows = ["".join("01"[flag] for flag in mask) for mask in masks.astype(int)]
    # Two spans of three tokens in all, the text first and a span last.
    wanted = set()
    for a, b in itertools.product((1, 2), range(1, 7)):
        wanted.add("0" * b + "1" * a + "0" * (7 - b) + "1" * (3 - a))
    assert set(rows) == wanted and len(wanted) == 12
    observed = np.array([rows.count(mask) for mask in sorted(wanted)])
    chi_squared = ((observed - count / 12) ** 2 / (count / 12)).sum()
    assert chi_squared < 31.3  # 99.9% of chi-squared with 11 degrees of freedom


@pytest.mark.parametrize("length", [2, 3, 17, 70])
def test_spans_have_their_numbers(length):
    config = SentinelsConfig()
    seeds = seeding.row_seeds(5, 0, tf.range(50))
    real = tf.range(70) < tf.fill([50, 1], length)
    masks = sentinels.noise(config, real, seeds).numpy()
    noise = min(max(round(length * 0.15), 1), length - 1)
    spans = max(1, round(noise / 3))
    assert (masks.sum(1) == noise).all()
    starts = masks & ~np.pad(masks, [(0, 0), (1, 0)])[:, :-1]
    assert (starts.sum(1) == spans).all()
    assert not masks[:, 0].any() and masks[:, length - 1].all() and not masks[:, length:].any()
    alone = sentinels.noise(config, real[:1], seeds[:1]).numpy()
    np.testing.assert_array_equal(alone, masks[:1])


@pytest.mark.parametrize(
    "settings",
    [{}, {"mean_span_length": 2.0}, {"mean_span_length": 10.0}, {"mean_span_length": 1.5},
     {"noise_density": 0.1}, {"noise_density": 0.25}, {"noise_density": 0.5}],
)  # fmt: skip
def test_numbers_of_a_graph_are_those_of_the_config(settings):
    """So inputs and targets of every short row fit into the lengths of a full one."""
    config = SentinelsConfig(**settings)
    lengths = np.arange(2, 200)
    real = tf.range(200) < lengths[:, None]
    draw = tf.function(lambda seeds: sentinels.noise(config, real, seeds))
    masks = draw(seeding.row_seeds(8, 0, tf.range(len(lengths)))).numpy()
    starts = masks & ~np.pad(masks, [(0, 0), (1, 0)])[:, :-1]
    counts = np.array([config.counts(int(n)) for n in lengths])
    np.testing.assert_array_equal(masks.sum(1), counts[:, 0])
    np.testing.assert_array_equal(starts.sum(1), counts[:, 1])


def test_independent_tokens():
    config = SentinelsConfig(masks="tokens", sentinels=20, noise_density=0.2)
    real = tf.range(60) < tf.fill([2000, 1], 50)
    masks = sentinels.noise(config, real, seeding.row_seeds(6, 0, tf.range(2000))).numpy()
    assert not masks[:, 50:].any()
    rates = masks[:, :50].mean(0)
    assert np.abs(rates - 0.2).max() < 5 * math.sqrt(0.2 * 0.8 / 2000)
    together = (masks[:, :49] & masks[:, 1:50]).mean()
    assert together == pytest.approx(0.04, abs=0.003)


def test_a_batch_can_be_read_back():
    """What inputs and targets say together is the text."""
    config = SentinelsConfig(sentinels=20)
    rng = np.random.default_rng(0)
    texts = [rng.integers(2, 79, size) for size in (70, 70, 41, 5)]
    seeds = seeding.row_seeds(7, 0, tf.range(4))
    corrupt = tf.function(lambda b: sentinels.corrupt(config, VOCABULARY, b, seeds))
    out = corrupt(batch(texts, 70))
    assert out["token_ids"].shape == (4, 64) and out["target_ids"].shape == (4, 14)
    for i, text in enumerate(texts):
        inputs = out["token_ids"].numpy()[i][out["padding_mask"].numpy()[i]]
        targets = out["target_ids"].numpy()[i][out["target_mask"].numpy()[i]]
        assert inputs[-1] == targets[-1] == END
        spans, last = {}, None
        for token in targets[:-1]:
            if token > 79:
                last = token
                spans[last] = []
            else:
                spans[last].append(token)
        read = [t for token in inputs[:-1] for t in (spans[token] if token > 79 else [token])]
        np.testing.assert_array_equal(read, text)
        assert (out["token_ids"].numpy()[i][len(inputs) :] == PAD).all()


def test_masks_are_new_each_time():
    config = SentinelsConfig(sentinels=20)
    texts = [np.arange(2, 72)]
    rows = {
        tuple(
            sentinels.corrupt(
                config, VOCABULARY, batch(texts, 70), seeding.row_seeds(1, epoch, tf.range(1))
            )["token_ids"].numpy()[0]
        )
        for epoch in range(5)
    }
    assert len(rows) == 5


def denoised(method, texts, width, **settings):
    config = DenoisingConfig(method=method, **settings)
    seeds = seeding.row_seeds(2, 0, tf.range(len(texts)))
    out = denoising.corrupt(config, VOCABULARY, batch(texts, width), seeds)
    rows = []
    for i in range(len(texts)):
        rows.append(
            [
                out[name].numpy()[i][out[mask].numpy()[i]].tolist()
                for name, mask in (("token_ids", "padding_mask"), ("target_ids", "target_mask"))
            ]
        )
    return rows


@pytest.mark.parametrize("method", ["bert_style", "mass_style"])
def test_masked_text_has_the_whole_text_as_target(method):
    rng = np.random.default_rng(1)
    texts = [rng.integers(2, 79, 60) for _ in range(400)]
    kinds = {"mask": 0, "random": 0, "kept": 0}
    for text, (inputs, targets) in zip(texts, denoised(method, texts, 63), strict=True):
        assert targets == [*text, END] and inputs[-1] == END and len(inputs) == 61
        for token, seen in zip(text, inputs[:-1], strict=True):
            kinds["mask" if seen == TOP else "kept" if seen == token else "random"] += 1
    total = 400 * 60
    assert kinds["kept"] / total == pytest.approx(0.85, abs=0.01)
    wanted = 0.015 if method == "bert_style" else 0
    assert kinds["random"] / total == pytest.approx(wanted, abs=0.003)


def test_random_tokens_are_all_but_the_special_ones():
    texts = [np.full(500, 2)] * 100
    settings = {"noise_density": 0.9, "random_prob": 0.9}
    rows = denoised("bert_style", texts, 500, **settings)
    counts = np.bincount(np.concatenate([inputs[:-1] for inputs, _ in rows]), minlength=100)
    mean = 100 * 500 * 0.9 * 0.9 / 98  # 413, with a standard deviation of 20
    assert not counts[[PAD, END]].any()
    assert np.abs(counts[3:TOP] - mean).max() < 5 * 20.3


@pytest.mark.parametrize("name, format", [
    ("prefix_lm", "documents"), ("deshuffle", "documents"), ("lm", "joined"),
    ("bert_style", "joined"), ("mass_style", "joined"),
])  # fmt: skip
def test_the_study_joins_documents_where_the_release_does(name, format):
    assert configs.load(CONFIGS / f"t5_study_{name}.yaml").segments.format == format


def test_deshuffled_text():
    texts = [np.arange(2, 60), np.arange(5, 9)]
    for text, (inputs, targets) in zip(texts, denoised("deshuffle", texts, 58), strict=True):
        assert targets == [*text, END]
        assert sorted(inputs[:-1]) == text.tolist() and inputs[-1] == END
    assert denoised("deshuffle", texts, 58)[0][0][:-1] != texts[0].tolist()


def test_a_prefix_ends_anywhere():
    texts = [np.arange(2, 12)] * 3000
    cuts = []
    for inputs, targets in denoised("prefix_lm", texts, 12):
        assert inputs[:-1] + targets[:-1] == texts[0].tolist()
        cuts.append(len(inputs) - 1)
    counts = np.bincount(cuts, minlength=10)[1:]
    assert len(counts) == 9 and np.abs(counts / 3000 - 1 / 9).max() < 0.03


def test_a_language_model_reads_nothing():
    assert denoised("lm", [np.arange(2, 7)], 8) == [[[END], [2, 3, 4, 5, 6, END]]]
