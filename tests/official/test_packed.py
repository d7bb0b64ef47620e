"""Rows of several parts, from shards to loss."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official import config as config_lib
from official import data, packed
from official.errors import UserError
from official.model import Model
from tests import small

T, K = 64, 5


def make_config(**changes):
    changes = {
        "segments__format": "sentence_pairs",
        "segments__max_length": T,
        "segments__packing": K,
        "corruption__unit": "span",
        "corruption__max_span": 4,
        "corruption__max_predictions": 10,
        "objectives": [{"type": name} for name in ("masked_lm", "sentence_pair", "span_boundary")],
        "encoder__max_positions": T,
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
    made = packed.fields(parsed, numbers, tf.constant([1.0, 0.0]), 3)
    assert {name: value.numpy().tolist() for name, value in made.items()} == {
        "part_ids": [[0, 0, 0, 0, 0, 1, 1, 1, 3], [0, 0, 0, 0, 0, 0, 0, 0, 3]],
        "positions": [[0, 1, 2, 3, 4, 0, 1, 2, 0], [0, 1, 2, 3, 4, 5, 6, 7, 0]],
        "segment_ids": [[0, 0, 0, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1, 0]],
        "part_starts": [[0, 5, 0], [0, 0, 0]],
        "part_weights": [[1, 1, 0], [0, 0, 0]],
        "next_sentence_label": [[0, 1, 0], [1, 0, 0]],
    }


def test_a_batch(folder):
    source = data.Source(folder, make_config())
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


def unpacked(batch):
    """Each part of the batch as a row of its own, with the masks that it has."""
    rows = []
    for row, weights in enumerate(batch["part_weights"]):
        for part in np.flatnonzero(weights):
            (places,) = np.nonzero(batch["part_ids"][row] == part)
            first, length = places[0], len(places)
            made = {
                name: np.pad(batch[name][row, places], (0, T - length))
                for name in ("token_ids", "segment_ids", "padding_mask")
            }
            masked = batch["masked_positions"][row]
            own = (masked >= first) & (masked < first + length)
            made["masked_weights"] = batch["masked_weights"][row] * own
            made["masked_positions"] = np.where(own, masked - first, 0)
            made["masked_ids"] = batch["masked_ids"][row]
            made["span_offset"] = batch["span_offset"][row]
            made["span_weights"] = batch["span_weights"][row] * own
            for side in ("span_left", "span_right"):
                beside = np.where(made["span_weights"] > 0, batch[side][row] - first, 0)
                assert (0 <= beside).all() and (beside < length).all()
                made[side] = beside
            made["next_sentence_label"] = batch["next_sentence_label"][row, part]
            rows.append(made)
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def test_the_loss_is_that_of_the_parts_alone(folder):
    config = make_config()
    batch = next(data.Source(folder, config).dataset(8).as_numpy_iterator())
    alone = unpacked(batch)
    count = len(alone["token_ids"])
    assert 16 < count and (batch["positions"].max(axis=1) < T - 1).all()
    model = Model(config)
    for variable in model.trainable_variables:  # far from the even start
        noise = np.random.default_rng(len(variable.path)).normal(0, 0.3, variable.shape)
        variable.assign_add(noise.astype("float32"))

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


def test_shards_and_config_have_to_agree(folder, tmp_path):
    with pytest.raises(UserError, match="several examples in a row, and .* segments.packing: 1"):
        data.Source(folder, make_config(segments__packing=1))
    other = small.shard_folder(tmp_path / "single", make_config(segments__packing=1))
    with pytest.raises(UserError, match="one example in a row, and the config says .*packing: 5"):
        data.Source(other, make_config())
    # How many parts there may be is said by the shards.
    more = dataclasses.replace(make_config().segments, packing=9)
    source = data.Source(folder, dataclasses.replace(make_config(), segments=more))
    assert source.dataset(4).element_spec["part_starts"].shape == (4, K)
    assert config_lib.PART_FIELDS <= source.fields
