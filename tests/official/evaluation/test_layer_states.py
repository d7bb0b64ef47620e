"""States of all layers on disk: what they are, heads that learn from them, what is refused."""

import dataclasses
import re

import numpy as np
import pytest

from official import config as configs
from official import training
from official.data import ShardDataset
from official.evaluation import layer_states, run
from official.modeling.model import Model
from official.saving import checkpoints, model_folder, named_arrays
from official.shards import layer_states as files
from official.utils import progress
from official.utils.errors import UserError
from official.utils.paths import MAX_BYTES as FILE_LIMIT
from tests import choices, small
from tests.official.training.test_frozen_encoder import config, task_shards
from tests.official.training.test_trainer import losses

XLNET = {
    "type": "transformer_xl",
    "vocab_size": small.config().encoder.vocab_size,
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
}


def pretrained(folder, tokenizer, **changes):
    """Writes a model with random weights and a tokenizer; returns its folder."""
    sizes = {"encoder__num_layers": 2, "encoder__initializer_range": 0.3}
    read = small.config(objectives=[{"type": "masked_lm"}], **sizes | changes)
    read = dataclasses.replace(read, objectives=(), corruption=None)
    folder.mkdir()
    configs.save(read, folder / "config.yaml")
    variables = Model(read).variables_by_path()
    checkpoints.save(folder, 1, named_arrays.values(variables), {})
    small.tokenizer_folder(folder / "tokenizer")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a pretrained `model`, `shards` of a task, and `states`."""
    folder = tmp_path_factory.mktemp("layer_states")
    task_shards(folder)
    model = pretrained(folder / "model", folder / "tokenizer")
    layer_states.write(model, folder / "shards", (), folder / "states", report=len)
    return folder


def head(**recipe):
    """A config with a frozen encoder from --init, and a head with a mix and dropout."""
    read = config({"norm": "token"}, recipe__steps=8, recipe__report_every=1)
    read = dataclasses.replace(read, encoder=None)
    return small.replace(read, bucket_lengths=(8, 16), eval_every=4, **recipe)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformer", "transformer_xl"])
def test_states_are_those_of_each_example(place, tmp_path, kind):
    """Every layer of every example by itself; the second kind has its padding on the left."""
    changes = {"encoder": XLNET} if kind == "transformer_xl" else {}
    model_dir = pretrained(tmp_path / "model", place / "tokenizer", **changes)
    layer_states.write(
        model_dir, place / "shards", ["test"], tmp_path / "states", batch_size=4, report=len
    )
    _, _, model = model_folder.restore(model_dir)
    reading = dataclasses.replace(
        config(), encoder=model.encoder.config, recipe=configs.Recipe(steps=1, batch_size=1)
    )
    source = ShardDataset(place / "shards", reading, "test")
    stored = files.read(tmp_path / "states", "test", source.fingerprint, required=True)
    assert stored.shape == (3, 16) and len(stored.lengths) == 9
    for number, batch in enumerate(source.dataset(1)):
        states = model.encode(batch, output_all=True)["hidden_states"]
        real = batch["padding_mask"].numpy()[0]
        expected = np.stack([np.asarray(layer)[0, real] for layer in states], axis=1)
        np.testing.assert_allclose(stored.rows([number]), expected, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformer", "transformer_xl"])
def test_batches_have_the_states_at_their_tokens(place, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_REPORTS", 0)
    lines = []
    changes = {"encoder": XLNET} if kind == "transformer_xl" else {}
    model_dir = pretrained(tmp_path / "model", place / "tokenizer", **changes)
    states = tmp_path / "states"
    layer_states.write(
        model_dir, place / "shards", ["test"], states, batch_size=4, report=lines.append
    )
    assert lines[0].startswith("test: 4 of 9 examples (44%), ") and lines[0].endswith(" left")
    assert lines[2].startswith("test: 9 of 9 examples (100%), ")
    _, _, model = model_folder.restore(model_dir)
    recipe = configs.Recipe(steps=1, freeze_encoder=True, layer_states=str(states))
    reading = dataclasses.replace(config(), encoder=model.encoder.config, recipe=recipe)
    source = ShardDataset(place / "shards", reading, "test")
    for batch in source.dataset(4):  # 4, 4, and 1 example with 3 that fill the batch
        real = batch["padding_mask"].numpy() & (batch["example_weights"].numpy() > 0)[:, None]
        found = model.encode(batch)
        bare = {name: value for name, value in batch.items() if name != "layer_states"}
        expected = model.encode(bare, output_all=True)
        for name in ("sequence_output", "padding_mask"):
            a, b = np.asarray(found[name]), np.asarray(expected[name])
            np.testing.assert_allclose(a[real], b[real], atol=2e-6)
        for a, b in zip(found["hidden_states"], expected["hidden_states"], strict=True):
            np.testing.assert_allclose(np.asarray(a)[real], np.asarray(b)[real], atol=2e-6)
        assert not np.asarray(found["sequence_output"])[~real].any()


@pytest.mark.slow
@pytest.mark.long
def test_a_run_from_states_is_the_run_with_the_encoder(place, tmp_path, monkeypatch):
    """The same losses in training and evaluation; the encoder does not run at all."""
    states, model = place / "states", place / "model"
    shards = place / "shards"
    training.train(head(), shards, tmp_path / "encoder", init=model, report=len)
    with monkeypatch.context() as patched:
        patched.setattr("official.modeling.model.encode", None)  # which runs the encoder
        cached = head(layer_states=str(states))
        training.train(cached, shards, tmp_path / "states", init=model, report=len)
    one, two = losses(tmp_path / "encoder"), losses(tmp_path / "states")
    assert len(one) == 8
    np.testing.assert_allclose(list(two.values()), list(one.values()), rtol=1e-5)

    # The folder has the encoder, too: other text is read by it.
    found = [
        run.evaluate(tmp_path / name, shards, split="test", overrides=overrides)["test"]
        for name, overrides in (
            ("encoder", ()),
            ("states", ()),
            ("states", ["recipe.layer_states=gone"]),
        )
    ]
    for metrics in found[1:]:
        assert metrics.keys() == found[0].keys()
        np.testing.assert_allclose(list(metrics.values()), list(found[0].values()), rtol=1e-5)


def test_states_of_another_encoder_are_refused(place, tmp_path):
    other = pretrained(tmp_path / "other", place / "tokenizer", seed=5)
    cached = head(layer_states=str(place / "states"))
    with pytest.raises(UserError, match="these are the states of another encoder"):
        training.train(cached, place / "shards", tmp_path / "run", init=other, report=len)
    wide = pretrained(tmp_path / "wide", place / "tokenizer", encoder__hidden_size=32)
    with pytest.raises(UserError, match="has 3 layers of size 16, and the encoder has 3 of size"):
        training.train(cached, place / "shards", tmp_path / "run", init=wide, report=len)


def test_states_of_other_examples_are_refused(place, tmp_path):
    fingerprint = "0" * 64
    with pytest.raises(UserError, match="these states belong to other shards"):
        files.read(place / "states", "train", fingerprint, required=True)
    assert files.read(place / "states", "train", fingerprint, required=False) is None
    with pytest.raises(UserError, match="has no states of an encoder: make it again with"):
        files.read(tmp_path, "train", fingerprint, required=True)
    with pytest.raises(UserError, match="has states of train, validation, test, not of extra"):
        files.read(place / "states", "extra", fingerprint, required=True)


@pytest.mark.slow
def test_a_changed_file_is_refused(place, tmp_path):
    layer_states.write(place / "model", place / "shards", ["test"], tmp_path / "s", report=len)
    path = tmp_path / "s" / "test.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    source = ShardDataset(place / "shards", config(), "test")
    with pytest.raises(UserError, match=re.escape(str(path))):
        files.read(tmp_path / "s", "test", source.fingerprint, required=True)


def test_examples_with_several_sequences_are_refused(place, tmp_path):
    shards = choices.shards(tmp_path / "choices", train=choices.rows(4))
    with pytest.raises(UserError, match="an example of choice has several sequences"):
        layer_states.write(place / "model", shards, (), tmp_path / "states", report=len)
    assert not (tmp_path / "states").exists()


def test_all_splits_are_opened_before_states_are_computed(place, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "Writer", lambda *_: pytest.fail("states are computed"))
    with pytest.raises(UserError, match="dev"):
        layer_states.write(
            place / "model", place / "shards", ("train", "dev"), tmp_path / "states", report=len
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe__freeze_encoder": False}, "recipe.layer_states: only supported for a frozen"),
        (
            {"objectives": [{"type": "regression"}]},
            "recipe.layer_states: has no output of a pooler: set objectives.0.pooling",
        ),
        (
            {"objectives": [{"type": "multiple_choice", "pooling": "mean"}]},
            "recipe.layer_states: objectives.0: multiple_choice reads more than",
        ),
    ],
)
def test_configs_that_cannot_read_states(changes, message):
    with pytest.raises(UserError, match=message):
        config(**{"recipe__layer_states": "states", **changes})


def test_states_may_be_larger_than_any_config(tmp_path):
    """67,349 sentences of SST-2 have 9.6 GB of them; other files that are read have a limit."""
    tokens = FILE_LIMIT // (2 * 256 * 4) + 1
    rows = np.broadcast_to(np.arange(tokens, dtype=np.float32)[:, None, None], (tokens, 2, 256))
    writer = files.Writer(tmp_path, "model", "encoder")
    writer.write("train", "examples", np.array([tokens]), (2, 256), [(np.array([0]), rows)])
    writer.finish()
    stored = files.read(tmp_path, "train", "examples", required=True)
    np.testing.assert_array_equal(stored.rows(np.array([0])), rows)
