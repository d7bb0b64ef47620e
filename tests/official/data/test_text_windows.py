"""Texts in windows, from shards to losses, against a loop over the windows of each text."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset
from official.data.mixture import Mixture, open_shards
from official.distribution import numerics
from official.modeling.model import Model
from official.training import resolve
from official.utils.errors import UserError
from tests import small
from tfrecords_tools.tasks import builder

ENCODER = {
    "type": "transformer", "hidden_size": 8, "num_layers": 1, "num_heads": 2, "pooler": True,
    "intermediate_size": 16, "max_positions": 8, "dropout": 0, "attention_dropout": 0,
}  # fmt: skip
LENGTHS = (3, 9, 6, 40, 7, 1)  # in tokens, of which a window has 6
WINDOWS = (1, 2, 1, 3, 2, 1)
TARGETS = {"classification": "xyxxyx", "multi_label": [[], ["x"], ["x", "y"]] * 2}
TARGETS["regression"] = [0.5, -1.0, 2.0, 0.0, 1.5, 3.0]


def texts():
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(small.WORDS, length)) for length in LENGTHS]


def rows(kind):
    made = []
    for number, (text, target) in enumerate(zip(texts(), TARGETS[kind], strict=True)):
        if kind == "classification":
            target = "xy".index(target)
        elif kind == "multi_label":
            target = [int(label in target) for label in "xy"]
        made.append((number, [text], target))
    return made


def shards(folder, kind="classification", windows=3, window_overlap=2, **options):
    tokenizer = tokenizers.load(small.tokenizer_folder(folder / "tokenizer"))
    labels = () if kind == "regression" else ("x", "y")
    task = tasks.generic(kind, "text", label="label", labels=labels)
    reading = {"windows": windows, "window_overlap": window_overlap}
    made = {split: rows(kind) for split in ("train", "validation")}
    options = {**reading, "report": lambda line: None, **options}
    builder.build_rows(task, made, tokenizer, folder / "shards", 8, **options)
    return folder / "shards"


def config(head="classification", join=None, encoder=ENCODER, **recipe):
    objective = {"type": head, "dropout": 0} | ({} if join is None else {"join": join})
    recipe = {"steps": 4, "batch_size": 6, **recipe}
    raw = {"name": "long", "encoder": encoder, "objectives": [objective], "recipe": recipe}
    return configs.from_dict(raw)


def opened(folder, settings, training=False):
    resolved = resolve.resolve(settings, open_shards(folder, "train"))
    source = ShardDataset(folder, resolved, "validation", training=training)
    source.check(resolved)
    return resolved, source


def test_a_batch_has_the_windows_of_each_text(tmp_path):
    folder = shards(tmp_path)
    _, source = opened(folder, config())
    (batch,) = source.dataset(6)
    assert batch["windows_mask"].numpy().sum(axis=1).tolist() == list(WINDOWS)
    assert batch["token_ids"].shape == (6, 3, 8)
    tokenizer = source.tokenizer
    for text, found, real in zip(
        texts(), batch["token_ids"].numpy(), batch["padding_mask"].numpy(), strict=True
    ):
        (ids,) = tokenizer.encode([text])
        # Windows of 6 tokens of which 2 are shared: they begin at 0, 4 and 8.
        starts = range(0, 1 + max(0, min(8, 4 * -(-(len(ids) - 6) // 4))), 4)
        for start, row, mask in zip(starts, found, real, strict=False):
            part = [tokenizer.cls_id, *ids[start : start + 6], tokenizer.sep_id]
            assert row[mask].tolist() == part
            assert not mask[len(part) :].any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "join", "layout"),
    [
        ("classification", None, "transformer"),
        ("classification", "max", "transformer_xl"),  # rows end with [CLS]
        ("multi_label", "max", "transformer"),
        ("regression", "mean", "transformer"),
    ],
)
def test_outputs_and_gradients_are_those_of_a_loop(tmp_path, kind, join, layout):
    numerics.set_precision("float64")
    try:
        encoder = {**ENCODER, "type": layout}
        if layout == "transformer_xl":
            encoder.pop("max_positions")
        settings = config(kind, join, encoder, precision="float64")
        resolved, source = opened(shards(tmp_path, kind), settings)
        model = Model(resolved)
        (head,) = model.objectives
        (batch,) = source.dataset(6)
        with tf.GradientTape() as tape:
            prepared = model.prepare(batch)
            losses, _ = model.terms(prepared)
            loss = losses[kind] / model.weight_sums(batch)[kind]
        grads = tape.gradient(loss, model.trainable_variables)
        with tf.GradientTape() as tape:
            outputs = []
            for row in range(6):
                each = []
                for window in range(WINDOWS[row]):
                    real = batch["padding_mask"][row, window]
                    one = {
                        name: tf.boolean_mask(batch[name][row, window], real)[None]
                        for name in ("token_ids", "segment_ids", "padding_mask")
                    }
                    each.append(head.outputs(model.encode(one))[0])
                combine = tf.reduce_max if join == "max" else tf.reduce_mean
                outputs.append(combine(tf.stack(each), axis=0))
            outputs = tf.stack(outputs)
            expected = tf.reduce_mean(_losses(kind, outputs))
        wanted = tape.gradient(expected, model.trainable_variables)
        found = head.matched_outputs(prepared, model.encode_as_read(prepared), model.encoder)
    finally:
        numerics.set_precision("float32")
    np.testing.assert_allclose(found, outputs, atol=1e-9)
    np.testing.assert_allclose(loss, expected, atol=1e-9)
    for gradient, other in zip(grads, wanted, strict=True):
        assert (gradient is None) == (other is None)
        if other is not None:
            pair = map(tf.convert_to_tensor, (gradient, other))
            np.testing.assert_allclose(*pair, atol=1e-9)


def _losses(kind, outputs):
    if kind == "regression":
        return (outputs[:, 0] - TARGETS[kind]) ** 2
    labels = [row[-1] for row in rows(kind)]
    if kind == "classification":
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
    flags = tf.cast(labels, outputs.dtype)
    return tf.nn.sigmoid_cross_entropy_with_logits(flags, outputs)


@pytest.mark.slow
def test_buckets_have_texts_of_as_many_windows_and_change_no_prediction(tmp_path):
    folder = shards(tmp_path)
    shapes, found = {}, {}
    for buckets in ((), (4, 6)):
        resolved, source = opened(folder, config(bucket_lengths=buckets))
        model = Model(resolved)
        shapes[buckets], found[buckets] = [], {}
        for batch in source.dataset(2):
            shapes[buckets].append(tuple(batch["token_ids"].shape))
            made = model.predictions(model.prepare(batch))["probabilities"].numpy()
            for row, weight, each in zip(batch["row"], batch["example_weights"], made, strict=True):
                if weight:
                    found[buckets][int(row)] = each
    assert shapes[()] == [(2, 3, 8)] * 3
    # Texts of up to 4 tokens with their marks; of 6; of a window; of two; and of three.
    assert sorted(shapes[4, 6]) == [(2, 1, 4), (2, 1, 6), (2, 1, 8), (2, 2, 8), (2, 3, 8)]
    for row in range(6):
        np.testing.assert_allclose(found[()][row], found[4, 6][row], atol=1e-6)


def test_buckets_group_the_training_examples_by_their_tokens(tmp_path):
    folder = shards(tmp_path)
    settings = config(bucket_lengths=(4,), batch_size=2, steps=3)
    resolved = resolve.resolve(settings, open_shards(folder, "train"))
    source = ShardDataset(folder, resolved, "train", training=True)
    seen = [tuple(sorted(batch["windows_mask"].numpy().sum(1))) for batch in
            source.dataset(2).take(3)]  # fmt: skip
    assert sorted(seen) == [(1, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"window_overlap": 6},
            "--window_overlap=6: a window of 8 tokens has room for 6 .* 0 to 5",
        ),
        ({"window_overlap": -1}, "--window_overlap=-1"),
        ({"windows": 1}, "--windows=1: at least 2"),
        ({"windows": None}, "--window_overlap is for windows: add --windows"),
    ],
)
def test_windows_without_room_are_refused(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        shards(tmp_path, **options)


def test_a_window_shorter_than_the_special_tokens_is_refused(tmp_path):
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    task = tasks.generic("classification", "text", label="label", labels=("x", "y"))
    with pytest.raises(UserError, match="--max_length=2 leaves no room .* least is 3"):
        builder.build_rows(task, {"train": rows("classification")}, tokenizer,
                           tmp_path / "shards", 2, windows=2)  # fmt: skip


def test_windows_are_for_single_texts(tmp_path):
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    task = tasks.generic("classification", "text", "text_b", "label", ("x", "y"))
    with pytest.raises(UserError, match="single texts of tokens, not for pairs of texts"):
        builder.build_rows(task, {"train": [(0, ["a", "b"], 1)]}, tokenizer,
                           tmp_path / "shards", 8, windows=2)  # fmt: skip


def test_what_cannot_join_windows_is_refused(tmp_path):
    folder = shards(tmp_path)
    alone = shards(tmp_path / "alone", windows=None, window_overlap=None)
    with pytest.raises(UserError, match=r"no texts in windows, which objectives.0.join: max"):
        opened(alone, config(join="max"))
    with pytest.raises(ValueError, match="join"):
        config(join="median")
    resolved, source = opened(folder, config())
    states = dataclasses.replace(resolved.recipe, layer_states="some", freeze_encoder=True)
    with pytest.raises(UserError, match="texts in windows, and recipe.layer_states"):
        source.check(dataclasses.replace(resolved, recipe=states))
    with pytest.raises(UserError, match="windows are trained and scored by themselves"):
        Mixture([source], resolved)
    other = shards(tmp_path / "other", windows=2)
    with pytest.raises(UserError, match="cannot be read together: windows 3 in .* 2 in"):
        ShardDataset([folder, other], resolved, "train", training=True)


def test_the_overlap_is_a_quarter_unless_given(tmp_path):
    folder = shards(tmp_path, window_overlap=None)
    task = ShardDataset(folder, config(), "train", training=True).task
    assert (task.windows, task.window_overlap) == (3, 1)
