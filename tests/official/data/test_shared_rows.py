"""Rows of several parts, from shards to loss."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official import data
from official.config import segments
from official.config.corruptions import COUNTS, TokenMasksConfig
from official.corruption import token_masks
from official.corruption.vocabulary import Vocabulary
from official.data import shared_rows
from official.modeling.model import Model
from official.utils import seeding
from official.utils.errors import UserError
from tests import small

LONGEST, T, K = 40, 96, 5  # of a sequence, of a row, parts of a row


def make_config(**changes):
    changes = {
        "segments__format": "sentence_pairs",
        "segments__max_length": LONGEST,
        "segments__packing": K,
        "segments__row_length": T,
        "corruption__unit": "span",
        "corruption__max_span": 4,
        "corruption__max_predictions": 10,
        "objectives": [{"type": name} for name in ("masked_lm", "sentence_pair", "span_boundary")],
        "encoder__max_positions": LONGEST,  # no more than a part needs
        **changes,
    }
    return small.config(**changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.shard_folder(tmp_path_factory.mktemp("packed") / "shards", make_config())


def test_fields():
    parsed = {
        "part_lengths": tf.ragged.constant([[5, 3], [8]], dtype=tf.int32),
        "next_sentence_label": tf.ragged.constant([[0, 1], [1]], dtype=tf.int32),
    }
    numbers = tf.constant([[0, 0, 0, 1, 1, 2, 2, 2, 3], [0, 0, 0, 0, 1, 1, 1, 1, 2]])
    result = shared_rows.fields(parsed, numbers, tf.constant([1.0, 0.0]), 3)
    assert {name: value.numpy().tolist() for name, value in result.items()} == {
        "part_ids": [[0, 0, 0, 0, 0, 1, 1, 1, 3], [0, 0, 0, 0, 0, 0, 0, 0, 3]],
        "positions": [[0, 1, 2, 3, 4, 0, 1, 2, 0], [0, 1, 2, 3, 4, 5, 6, 7, 0]],
        "segment_ids": [[0, 0, 0, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1, 0]],
        "part_starts": [[0, 5, 0], [0, 0, 0]],
        "part_weights": [[1, 1, 0], [0, 0, 0]],
        "next_sentence_label": [[0, 1, 0], [1, 0, 0]],
    }


def test_a_batch(folder):
    source = data.ShardDataset(folder, make_config())
    dataset = source.dataset(8)
    shapes = {name: tuple(spec.shape) for name, spec in dataset.element_spec.items()}
    assert shapes.keys() == source.fields >= make_config().segments.fields
    for name in ("part_ids", "positions", "segment_ids", "token_ids"):
        assert shapes[name] == (8, T)
    for name in ("part_starts", "part_weights", "next_sentence_label"):
        assert shapes[name] == (8, K)
    for batch in dataset.as_numpy_iterator():
        counts = batch["part_weights"].sum(axis=1)
        assert (counts > 0).tolist() == (batch["example_weights"] > 0).tolist()
        for row in np.flatnonzero(counts):
            starts = batch["part_starts"][row, : int(counts[row])]
            assert (batch["token_ids"][row, starts] == source.tokenizer.cls_id).all()
            assert (batch["positions"][row, starts] == 0).all()
            assert batch["part_ids"][row, starts].tolist() == list(range(len(starts)))
            real = batch["padding_mask"][row]
            assert (batch["part_ids"][row, ~real] == K).all()
            # Two segments in each part.
            assert np.count_nonzero(np.diff(batch["segment_ids"][row, real]) == 1) == len(starts)
    assert LONGEST < batch["padding_mask"].sum(axis=1).max() <= T


def parsed_rows():
    """Two rows of three and of two parts, the last of other lengths."""
    words = [f"{a}{b}" for a in "bdfgk" for b in "aeiou"]
    pieces = [*small.SPECIALS, *words, *(f"##{word}" for word in words)]
    rng = np.random.default_rng(0)
    parts = [
        [[2, *rng.integers(5, len(pieces), size).tolist(), 3] for size in sizes]
        for sizes in ((7, 23, 12), (38, 5))
    ]
    starts = np.array([not piece.startswith("##") for piece in pieces])
    counts = np.r_[[0] * 5, np.ones(len(pieces) - 5, int)]
    vocabulary = Vocabulary(len(pieces), 4, (0, 1, 2, 3, 4), starts, counts)
    parsed = {
        "token_ids": tf.ragged.constant([sum(row, []) for row in parts], dtype=tf.int32),
        "part_lengths": tf.ragged.constant([[len(p) for p in row] for row in parts], tf.int32),
    }
    return parts, vocabulary, parsed


def inner(ids):
    """Which tokens go on with the phrase before them, in these tests."""
    return (ids > 4) & (ids % 3 == 0)


MASKS = [
    {"unit": "token"},
    {"unit": "word", "count": "random"},
    {"unit": "phrase", "mask_rate": 0.4},
    {"unit": "entity"},
    {"unit": "ngram", "mask_rate": 0.3},
    {"unit": "ngram", "mask_rate": 0.3, "windows": True},
    {"unit": "span", "count": "up", "action": "unit", "random_tokens": "unigram"},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", MASKS, ids=lambda options: options["unit"])
def test_masks_are_those_of_the_parts_alone(options):
    parts, vocabulary, parsed = parsed_rows()
    config = TokenMasksConfig(max_predictions=4, **options)
    flags = {name: tf.ragged.map_flat_values(inner, parsed["token_ids"]) for name in config.needs()}
    budgets, most = [], config.row_predictions(60, K)
    for number in range(5):
        seeds = seeding.row_seeds(number, 0, tf.constant([0, 1]))
        corrupted = shared_rows.corrupted(config, vocabulary, parsed, flags, seeds, K)
        if number == 0:  # how many parts there might be changes nothing
            again = shared_rows.corrupted(config, vocabulary, parsed, flags, seeds, K + 3)
            for name in corrupted:
                assert corrupted[name].to_list() == again[name].to_list()
        own = seeding.bits(seeds, seeding.Stream.PARTS, K)
        for row, alone in enumerate(parts):
            ids, positions, originals, start = [], [], [], 0
            for part, tokens in enumerate(alone):
                batch = {
                    "token_ids": tf.constant([tokens + [0] * 3]),
                    "padding_mask": tf.constant([[True] * len(tokens) + [False] * 3]),
                }
                batch |= {name: inner(batch["token_ids"]) for name in flags}
                batch = token_masks.corrupt(config, vocabulary, batch, own[row, part : part + 1])
                count = int(tf.reduce_sum(batch["masked_weights"]))
                budgets.append((len(tokens), count))
                ids += batch["token_ids"][0, : len(tokens)].numpy().tolist()
                positions += (batch["masked_positions"][0, :count] + start).numpy().tolist()
                originals += batch["masked_ids"][0, :count].numpy().tolist()
                start += len(tokens)
            assert corrupted["token_ids"][row].numpy().tolist() == ids
            assert corrupted["masked_positions"][row].numpy().tolist() == positions
            assert corrupted["masked_ids"][row].numpy().tolist() == originals
            assert 0 < len(positions) <= most
    numbers = {n: {count for size, count in budgets if size == n} for n, _ in budgets}
    if config.unit == "token":
        assert numbers == {9: {1}, 25: {4}, 14: {2}, 40: {4}, 7: {1}}
    assert all(max(actual) <= 4 for actual in numbers.values())


@pytest.mark.slow
def test_no_hidden_run_reaches_into_another_part(folder):
    options = {"corruption__count": "up", "corruption__mask_rate": 0.5, "corruption__max_span": 10}
    for unit in ("span", "ngram"):
        config = make_config(corruption__unit=unit, objectives=[{"type": "masked_lm"}], **options)
        touching = 0
        source = data.ShardDataset(folder, config)
        specials = np.isin(np.arange(source.tokenizer.vocab_size), source.tokenizer.special_ids)
        for batch in source.dataset(8).as_numpy_iterator():
            for row in range(8):
                hidden = np.zeros(T, bool)
                weights = batch["masked_weights"][row] > 0
                hidden[batch["masked_positions"][row][weights]] = True
                assert not specials[batch["masked_ids"][row][weights]].any()
                ids = batch["part_ids"][row]
                for start in batch["part_starts"][row][1 : int(batch["part_weights"][row].sum())]:
                    # The [CLS] of a part and the [SEP] before it: at least two stand between.
                    assert not hidden[start - 1 : start + 1].any()
                    touching += hidden[start - 2] and hidden[start + 1]
                for part in range(int(batch["part_weights"][row].sum())):
                    own = ids == part
                    text = np.count_nonzero(own) - 3
                    assert np.count_nonzero(hidden & own) <= min(10, -(-text // 2))
        assert touching > 10


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("rate", [0.03, 0.15, 0.5, 1.0])
def test_no_row_has_more_predictions_than_places_for_them(count, rate):
    config = TokenMasksConfig(count=count, mask_rate=rate, max_predictions=20)
    number = {
        "nearest": lambda n: max(1, round(rate * n)),
        "up": lambda n: -int(-rate * (n - 2) // 1),
        "random": lambda n: int(rate * n + 1 - 2**-24),
        "each": lambda n: n - 2,
    }[count]
    most = np.array([0] * 3 + [min(20, number(n)) for n in range(3, 129)])
    for parts in (2, 7, 32):
        best = np.zeros(513, int)  # the most predictions of n tokens in `parts` sequences or fewer
        for _ in range(parts):
            better = best.copy()
            for n in range(3, 129):
                better[n:] = np.maximum(better[n:], best[:-n] + most[n])
            best = better
        settings = config.row_predictions(512, parts)
        assert best[512] <= settings
    assert settings <= 1.1 * best[512] + 2 or rate > 0.15 or count == "each"


def unpacked(batch):
    """Each part of the batch as a row of its own, with the masks that it has."""
    of_tokens = ["token_ids", "segment_ids", "padding_mask", "original_ids", "masked", "replaced"]
    rows = []
    for row, weights in enumerate(batch["part_weights"]):
        for part in np.flatnonzero(weights):
            (places,) = np.nonzero(batch["part_ids"][row] == part)
            first, length = places[0], len(places)
            result = {
                name: np.pad(batch[name][row, places], (0, LONGEST - length))
                for name in of_tokens
                if name in batch
            }
            masked = batch["masked_positions"][row]
            own = (masked >= first) & (masked < first + length)
            result["masked_weights"] = batch["masked_weights"][row] * own
            result["masked_positions"] = np.where(own, masked - first, 0)
            result["masked_ids"] = batch["masked_ids"][row]
            result["span_offset"] = batch["span_offset"][row]
            result["span_weights"] = batch["span_weights"][row] * own
            for side in ("span_left", "span_right"):
                beside = np.where(result["span_weights"] > 0, batch[side][row] - first, 0)
                assert (0 <= beside).all() and (beside < length).all()
                result[side] = beside
            result["next_sentence_label"] = batch["next_sentence_label"][row, part]
            rows.append(result)
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def make_model(config, **options):
    """A model far from the even start."""
    model = Model(config, **options)
    for variable in model.trainable_variables:
        noise = np.random.default_rng(len(variable.path)).normal(0, 0.3, variable.shape)
        variable.assign_add(noise.astype(variable.dtype))
    return model


XL = {
    "type": "transformer_xl",
    "vocab_size": small.config().encoder.vocab_size,
    "hidden_size": 16,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_size": 32,
    "pooler": True,
}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "encoder",
    [{}, {"encoder": XL}, {"encoder": {**XL, "pooled_position": "first"}}],
    ids=["transformer", "transformer_xl", "transformer_xl, first"],
)
def test_the_loss_is_that_of_the_parts_alone(folder, encoder):
    config = make_config(**encoder)
    batch = next(data.ShardDataset(folder, config).dataset(8).as_numpy_iterator())
    alone = unpacked(batch)
    count = len(alone["token_ids"])
    assert 16 < count and len(np.unique(batch["padding_mask"].sum(axis=1))) > 1
    model = make_model(config)

    def run(batch):
        batch = {name: tf.constant(value) for name, value in batch.items()}
        encoded = model.encode(batch)
        losses, metrics = model.terms(batch, encoded=encoded)
        return encoded, losses, metrics, model.weight_sums(batch)

    encoded, losses, metrics, weights = run(batch)
    encoded_alone, losses_alone, metrics_alone, weights_alone = run(alone)
    assert weights_alone["next_sentence"].numpy() == count == weights["next_sentence"].numpy()
    assert losses.keys() == {"masked_lm", "next_sentence", "span_boundary"}
    assert weights["span_boundary"] > 8
    for name in losses:
        np.testing.assert_allclose(losses[name], losses_alone[name], rtol=1e-5)
        np.testing.assert_allclose(weights[name], weights_alone[name])
    for name in metrics:
        np.testing.assert_allclose(metrics[name], metrics_alone[name])
    real = batch["part_weights"] > 0
    np.testing.assert_allclose(
        encoded["pooled_output"].numpy()[real], encoded_alone["pooled_output"], atol=1e-5
    )
    np.testing.assert_allclose(
        encoded["sequence_output"].numpy()[batch["padding_mask"]],
        encoded_alone["sequence_output"].numpy()[alone["padding_mask"]],
        atol=1e-5,
    )
    compiled = tf.function(lambda batch: model.terms(batch)[0], jit_compile=True)
    compiled = compiled({name: tf.constant(value) for name, value in batch.items()})
    for name in losses:
        np.testing.assert_allclose(compiled[name], losses[name], rtol=1e-5)


ELECTRA = [
    {"type": "generator", "size": 0.5, "baseline": True},
    {"type": "replaced_tokens", "adversarial_weight": 1.0},
    {"type": "all_tokens_lm"},
]


@pytest.mark.slow
@pytest.mark.parametrize("tokens", ["all", "masked"])
def test_what_a_generator_filled_is_judged_as_in_the_parts_alone(folder, tokens):
    objectives = [ELECTRA[0], {**ELECTRA[1], "tokens": tokens}, ELECTRA[2]]
    config = make_config(objectives=objectives)
    model = make_model(config, dtype="float64")
    batches = list(data.ShardDataset(folder, config).dataset(7).as_numpy_iterator())
    assert batches[-1]["example_weights"].min() == 0  # rows that only fill the batch up
    varied = [each for each in batches if len(np.unique(each["padding_mask"].sum(axis=1))) > 1]
    for batch in (varied[0], batches[-1]):
        prepared = {name: np.array(value) for name, value in model.prepare(batch).items()}
        assert prepared["replaced"].any()
        alone = unpacked(batch)
        count = len(alone["token_ids"])
        seeds = {"row_seeds": np.zeros((count, 2), "int32")}  # draws of their own, not used
        alone = {name: np.array(v) for name, v in model.prepare({**alone, **seeds}).items()}
        filled = unpacked({**batch, **prepared})
        for name in ("original_ids", "masked"):
            np.testing.assert_array_equal(alone[name], filled[name])
        for name in ("token_ids", "replaced"):
            alone[name] = filled[name]
        scores = alone["generator_logits"].reshape(count, -1, config.encoder.vocab_size)
        chances = tf.math.log_softmax(scores).numpy()
        drawn = np.take_along_axis(alone["token_ids"], alone["masked_positions"], axis=1)
        alone["sample_log_probs"] = np.take_along_axis(chances, drawn[..., None], axis=2)[..., 0]
        losses, metrics = model.terms(prepared)
        losses_alone, metrics_alone = model.terms(alone)
        names = {"generator", "replaced_tokens", "adversarial", "adversarial_baseline"}
        assert losses.keys() == names | {"all_tokens_lm"}
        weights, weights_alone = model.weight_sums(prepared), model.weight_sums(alone)
        for name in losses:
            np.testing.assert_allclose(losses[name], losses_alone[name], rtol=1e-9)
            np.testing.assert_allclose(weights[name], weights_alone[name])
        for name in metrics:
            np.testing.assert_allclose(metrics[name], metrics_alone[name], rtol=1e-9)


def test_shards_and_config_have_to_agree(folder, tmp_path):
    alone = make_config(segments__packing=1, segments__row_length=None)
    with pytest.raises(UserError, match="several examples in a row, and .* segments.packing: 1"):
        data.ShardDataset(folder, alone)
    other = small.shard_folder(tmp_path / "single", alone)
    with pytest.raises(UserError, match="one example in a row, and the config says .*packing: 5"):
        data.ShardDataset(other, make_config())
    # How many parts there may be is said by the shards.
    more = dataclasses.replace(make_config().segments, packing=9)
    source = data.ShardDataset(folder, dataclasses.replace(make_config(), segments=more))
    assert source.dataset(4).element_spec["part_starts"].shape == (4, K)
    assert segments.PART_FIELDS <= source.fields


def test_the_encoder_needs_positions_for_a_part(folder):
    config = make_config()
    source = data.ShardDataset(folder, config)
    assert source.max_length == T
    source.check(config)
    fewer = dataclasses.replace(config.encoder, max_positions=LONGEST - 1)
    with pytest.raises(UserError, match="examples have up to 40 tokens, and the enc.* for 39"):
        source.check(dataclasses.replace(config, encoder=fewer))


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["word", "span"])
def test_static_masks_of_a_row(tmp_path, unit):
    config = make_config(
        segments__static_masks=True, corruption__unit=unit, objectives=[{"type": "masked_lm"}]
    )
    folder = small.shard_folder(tmp_path / "shards", config)
    source = data.ShardDataset(folder, config)
    most = config.corruption.row_predictions(T, K)
    parts = 0
    for batch in source.dataset(8).as_numpy_iterator():
        assert batch["masked_positions"].shape == (8, most)
        for row in np.flatnonzero(batch["example_weights"]):
            real = batch["masked_weights"][row] > 0
            positions = batch["masked_positions"][row][real]
            assert (np.diff(positions) > 0).all()
            owners, counts = np.unique(batch["part_ids"][row][positions], return_counts=True)
            assert owners.tolist() == list(range(int(batch["part_weights"][row].sum())))
            sizes = np.bincount(batch["part_ids"][row])[: len(owners)]
            budgets = np.maximum(1, np.round(0.15 * sizes))
            assert (counts <= budgets).all() and (unit == "word" or (counts == budgets).all())
            parts += len(owners)
    assert parts > 50
