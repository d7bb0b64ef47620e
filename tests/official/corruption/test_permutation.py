"""T tokens with padding, V pieces, P predictions."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.corruptions import TARGET_UNITS, PermutationConfig
from official.corruption import permutation
from official.utils.errors import UserError
from tests.official.corruption.test_token_masks import (  # fmt: skip
    CLS,
    PAD,
    SEP,
    SPECIALS,
    VOCABULARY,
    make_rows,
    pad,
    seeds_of,
)


def corrupt(config, rows, seeds=None, places=None):
    seeds = seeds_of(len(rows)) if seeds is None else seeds
    corrupted = permutation.corrupt(config, VOCABULARY, pad(rows, places), seeds)
    return {name: value.numpy() for name, value in corrupted.items()}


def targets_of(result):
    """The targets of each row, as positions."""
    return [
        positions[weights > 0].tolist()
        for positions, weights in zip(
            result["masked_positions"], result["masked_weights"], strict=True
        )
    ]


def mask_slowly(order, ordered, size):
    """By the rule: blocks before, and within the block who is visible or earlier in the order."""
    length = len(order)
    mask = np.zeros((length, length), bool)
    for i, j in itertools.product(range(length), repeat=2):
        if j // size < i // size:
            mask[i, j] = True
        elif j // size == i // size:
            index_i = order[i] if ordered[i] else -1
            index_j = order[j] if ordered[j] else -1
            mask[i, j] = index_j < index_i or not ordered[j]
    return mask


@pytest.mark.parametrize("length", range(1, 13))
def test_masks_are_those_of_a_loop(length):
    rng = np.random.default_rng(length)
    order = np.array([rng.permutation(length) + 1 for _ in range(200)])
    ordered = rng.random((200, length)) < rng.random((200, 1))
    for size in [n for n in range(1, length + 1) if length % n == 0]:
        result = permutation.may_attend(tf.constant(order), tf.constant(ordered), size).numpy()
        for i in range(200):
            np.testing.assert_array_equal(result[i], mask_slowly(order[i], ordered[i], size))
    whole = permutation.may_attend(tf.constant(order), tf.constant(ordered)).numpy()
    np.testing.assert_array_equal(whole, result)  # the last size was the length


def test_the_papers_example():
    # New York is a city [SEP], in the order York, New, [SEP].
    result = permutation.may_attend(
        tf.constant([[2, 1, 6, 5, 4, 3]]), tf.constant([[True, True, False, False, False, True]])
    )
    new, york, visible, sep = [0, 1, 1, 1, 1, 0], [0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 1, 0], [1] * 5
    expected = [new, york, visible, visible, visible, [*sep, 0]]
    assert result[0].numpy().astype(int).tolist() == expected


def test_the_largest_orders_keep_blocks_apart():
    order = tf.constant([[1, 2**47, 2**47, 1]], tf.int64)
    result = permutation.may_attend(order, tf.ones([1, 4], tf.bool), 2)[0].numpy()
    expected = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 1], [1, 1, 0, 0]]
    assert result.astype(int).tolist() == expected


@pytest.mark.parametrize("unit", TARGET_UNITS)
@pytest.mark.parametrize("size", [None, 32])
def test_targets_and_masks_of_a_batch(unit, size):
    config = PermutationConfig(unit=unit, num_predict=10, k=6, perm_size=size)
    rows = make_rows([64, 40, 7, 64, 33])
    corrupted = corrupt(config, rows, places=64)
    orders = permutation.orders(seeds_of(5), 64).numpy()
    np.testing.assert_array_equal(corrupted["token_ids"], pad(rows, 64)["token_ids"])
    assert corrupted["permutation_mask"].shape == (5, 64, 64)
    for i, (row, targets) in enumerate(zip(rows, targets_of(corrupted), strict=True)):
        assert len(targets) == {64: 10, 40: 6, 7: 1, 33: 5}[len(row)]
        assert targets == sorted(set(targets)) and targets[-1] < len(row)
        assert not np.isin(row[targets], SPECIALS).any()
        assert corrupted["masked_ids"][i, : len(targets)].tolist() == row[targets].tolist()
        assert not corrupted["masked_ids"][i, len(targets) :].any()
        ordered = np.ones(64, bool)
        ordered[: len(row)] = np.isin(row, SPECIALS)
        ordered[targets] = True
        np.testing.assert_array_equal(
            corrupted["permutation_mask"][i], mask_slowly(orders[i], ordered, size or 64)
        )


@pytest.mark.parametrize("size, shares", [(256, [43, 42]), (128, [22, 21, 21, 21]), (None, [85])])
def test_targets_of_blocks_are_those_of_the_release(size, shares):
    corrupted = corrupt(PermutationConfig(perm_size=size), make_rows([512] * 20))
    for targets in targets_of(corrupted):
        actual = np.bincount(np.array(targets) // (size or 512), minlength=len(shares))
        assert actual.tolist() == shares


def test_k_says_how_many():
    for k, number in ((6, 85), (7, 73), (600, 1)):
        corrupted = corrupt(PermutationConfig(k=k, unit="token"), make_rows([512]))
        assert corrupted["masked_weights"].sum() == number
    # More than there is text: all of it.
    corrupted = corrupt(PermutationConfig(k=1, num_predict=512), make_rows([20]))
    assert targets_of(corrupted) == [[*range(1, 10), *range(11, 19)]]


@pytest.mark.parametrize("unit", TARGET_UNITS)
@pytest.mark.parametrize("size", [None, 32])
def test_a_row_does_not_depend_on_its_batch_or_padding(unit, size):
    config = PermutationConfig(unit=unit, num_predict=16, perm_size=size)
    rows = make_rows([96, 40, 77, 9, 96, 64])
    whole = corrupt(config, rows)
    for i, row in enumerate(rows):
        alone = corrupt(config, [row], seeds_of(6)[i : i + 1], places=len(row) + i)
        for name in ("masked_positions", "masked_ids", "masked_weights"):
            np.testing.assert_array_equal(alone[name][0], whole[name][i])
        real = slice(len(row))
        np.testing.assert_array_equal(
            alone["permutation_mask"][0, real, real], whole["permutation_mask"][i, real, real]
        )


@pytest.mark.slow
@pytest.mark.parametrize("unit", TARGET_UNITS)
@pytest.mark.parametrize("places", [60, None])
def test_the_same_eagerly_and_in_tf_data(unit, places):
    config = PermutationConfig(unit=unit, num_predict=10, perm_size=20)
    batch = pad(make_rows([60, 30, 45]))
    eager = permutation.corrupt(config, VOCABULARY, batch, seeds_of(3))

    def graph(batch):
        batch = {name: tf.ensure_shape(value, [3, places]) for name, value in batch.items()}
        return permutation.corrupt(config, VOCABULARY, batch, seeds_of(3))

    loose = {name: tf.TensorSpec([None, None], value.dtype) for name, value in batch.items()}
    data = tf.data.Dataset.from_generator(lambda: [batch], output_signature=loose).map(graph)
    (result,) = data
    assert result.keys() == eager.keys() == {*batch, *config.gives()}
    for name, value in eager.items():
        np.testing.assert_array_equal(result[name], value)
    shapes = data.element_spec
    assert shapes["permutation_mask"].shape.as_list() == [3, places, places]
    assert shapes["masked_positions"].shape == (3, 10)
    assert eager["permutation_mask"].dtype == tf.bool


def test_other_epochs_have_other_orders_and_targets():
    rows = make_rows([128] * 4)
    first, second = (
        corrupt(PermutationConfig(num_predict=20), rows, seeds_of(4, e)) for e in (0, 1)
    )
    for a, b in zip(targets_of(first), targets_of(second), strict=True):
        assert a != b
    assert (first["permutation_mask"] != second["permutation_mask"]).any(axis=(1, 2)).all()


def test_orders_are_even():
    """Of two targets each is the earlier one half of the time, specials among them."""
    row = np.array([CLS, 10, 11, 12, SEP])
    corrupted = corrupt(PermutationConfig(k=1, unit="token"), [row] * 8000)
    counts = corrupted["permutation_mask"].sum(axis=0)
    np.testing.assert_allclose(counts[~np.eye(5, dtype=bool)] / 8000, 0.5, atol=0.03)
    assert not counts[np.eye(5, dtype=bool)].any()


def test_spans_begin_with_words():
    rows = make_rows([126] * 400)
    corrupted = corrupt(PermutationConfig(unit="token_span", num_predict=21), rows)
    begins = total = 0
    for row, targets in zip(rows, targets_of(corrupted), strict=True):
        for before, target in zip([-9, *targets], targets, strict=False):
            if target != before + 1:
                total += 1
                begins += VOCABULARY.word_starts[row[target]] or row[target - 1] in SPECIALS
    # Single tokens fill up the number, and are in the middle of a word a third of the time.
    assert 0.85 < begins / total < 1


@pytest.mark.parametrize("unit", TARGET_UNITS)
def test_targets_of_reversed_rows_are_those_of_the_text(unit):
    """Spans begin where words begin as they are read, so the row's last tokens come first."""
    rows = make_rows([126] * 300)
    config = PermutationConfig(unit=unit, num_predict=21)
    forward = corrupt(config, rows)
    batch = pad([row[::-1] for row in rows])
    batch["backward"] = tf.ones([300], tf.bool)
    corrupted = permutation.corrupt(config, VOCABULARY, batch, seeds_of(300))
    corrupted = {name: value.numpy() for name, value in corrupted.items()}
    for targets, expected in zip(targets_of(corrupted), targets_of(forward), strict=True):
        assert targets == [125 - i for i in reversed(expected)]
    if unit == "token_span":
        begins = total = 0
        for row, targets in zip(rows, targets_of(corrupted), strict=True):
            chosen = {125 - i for i in targets}  # as it is read
            for i in chosen - {i + 1 for i in chosen}:
                total += 1
                begins += VOCABULARY.word_starts[row[i]] or row[i - 1] in SPECIALS
        assert begins / total > 0.85  # but for the single tokens that fill up the number


def test_word_spans_take_words_whole_but_for_the_last():
    rows = make_rows([126] * 400)
    corrupted = corrupt(PermutationConfig(unit="word_span", num_predict=21), rows)
    cut = 0
    for row, targets in zip(rows, targets_of(corrupted), strict=True):
        chosen = np.isin(np.arange(126), targets)
        inner = ~VOCABULARY.word_starts[row] & ~np.isin(row, SPECIALS)
        inner[1:] &= ~np.isin(row[:-1], SPECIALS)
        cut += (chosen[1:] != chosen[:-1])[inner[1:]].sum() > 0
        assert (chosen[1:] != chosen[:-1])[inner[1:]].sum() <= 1
    assert 0 < cut < 200


@pytest.mark.parametrize(
    "values, message",
    [
        (
            {"unit": "span"},
            "unit: 'span' is not one of token, token_span, word_span (did you mean 'word_span'?)",
        ),
        ({"word_starts": "a"}, "word_starts: 'a' is not one of xlnet, albert, blank"),
        ({"k": 0}, "k: 0 is less than 1"),
        ({"num_predict": 0}, "num_predict: 0 is less than 1"),
        ({"max_span": 0}, "max_span: 0 is less than 1"),
        ({"perm_size": 0}, "perm_size: 0 is less than 1"),
    ],
)
def test_bad_values_are_named(values, message):
    with pytest.raises(ValueError) as caught:
        PermutationConfig(**values)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "values, segments, message",
    [
        (
            {"num_predict": 86},
            {"max_length": 512},
            "num_predict: 86 targets with 6 tokens for each (k) need 86 × 6 = 516 tokens, and "
            "max_length is 512: predict at most 512 // 6 = 85, or lower k",
        ),
        (
            {"perm_size": 200},
            {"max_length": 512},
            "perm_size: blocks of 200 do not fill max_length 512: 512 = 2 × 200 + 112; take a "
            "divisor",
        ),
        (
            {"perm_size": 256},
            {"max_length": 512, "format": "stream", "rows": 2, "reuse_length": 384},
            "perm_size: blocks of 256 do not end where the next row continues, after reuse_length "
            "384 = 1 × 256 + 128: take a divisor of both reuse_length and max_length 512",
        ),
        (
            {},
            {"max_length": 512, "format": "stream", "rows": 2, "reuse_length": 256},
            "perm_size: blocks of 512 do not end where the next row continues, after reuse_length "
            "256 = 0 × 512 + 256: take a divisor of both reuse_length and max_length 512",
        ),
        (
            {"perm_size": 32},
            {"max_length": 512},
            "max_span: a span of 5 in its context needs 5 × (1 + 6) = 35 tokens, and a block has "
            "32: lower max_span to at most 4, or take unit: token",
        ),
    ],
)
def test_what_cannot_fit_is_refused_with_the_arithmetic(values, segments, message):
    with pytest.raises(ValueError) as caught:
        PermutationConfig(**values).check(configs.Segments(**segments))
    assert str(caught.value) == message
    PermutationConfig(perm_size=256).check(configs.Segments(max_length=512))
    stream = configs.Segments(format="stream", rows=2, max_length=512, reuse_length=256)
    PermutationConfig(perm_size=256).check(stream)
    PermutationConfig(unit="token", perm_size=32).check(configs.Segments(max_length=512))


def raw(objective, **segments):
    return {
        "name": "p",
        "segments": {"max_length": 32, **segments},
        "corruption": {"type": "permutation", "num_predict": 5, "max_span": 3},
        "objectives": [{"type": objective}],
        "recipe": {"steps": 1},
    }


@pytest.mark.parametrize("objective", ["masked_lm", "generator"])
def test_objectives_of_hidden_tokens_are_refused(objective):
    with pytest.raises(UserError) as caught:
        configs.from_dict(raw(objective))
    assert str(caught.value) == (
        f"config: objectives.0: {objective} predicts hidden tokens, and corruption.type: "
        "permutation does not hide any: take token_masks, or the objective permutation_lm"
    )


def test_static_masks_are_refused():
    with pytest.raises(UserError) as caught:
        configs.from_dict(raw("sentence_pair", static_masks=True))
    assert str(caught.value) == (
        "config: segments.static_masks: permutation is drawn whenever an example is read: "
        "take static_masks: false"
    )
    read = configs.from_dict(raw("sentence_pair"))
    assert configs.from_dict(configs.to_dict(read)) == read
    assert read.corruption.type == "permutation"


def test_no_padding_is_a_target():
    rows = [np.array([CLS, 10, SEP]), np.array([CLS, *range(10, 40), SEP])]
    corrupted = corrupt(PermutationConfig(k=2, num_predict=16), rows)
    assert targets_of(corrupted)[0] == [1]
    assert not (corrupted["masked_ids"] == PAD)[corrupted["masked_weights"] > 0].any()
