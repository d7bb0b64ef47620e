"""Runs whose low-rank updates learn: what changes, what goes on, what is read afterwards."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the model)

import official
from official.conversion import huggingface
from official.conversion.run import convert
from official.evaluation.run import evaluate
from official.modeling.layers import low_rank
from official.modeling.model import Model
from official.saving import checkpoints, model_folder, named_arrays
from official.serving.export import saved_model
from official.tokenizers import load as load_tokenizer
from official.training import resolve, run
from official.utils.errors import UserError
from tests import small
from tests.official.training.test_frozen_encoder import task_shards
from tests.official.training.test_trainable import BATCH, config, learn

LORA = {"lora": {"rank": 2, "alpha": 8}}
LABELS = {"labels": ["bad", "good"], "num_labels": 2}


def head(**changes):
    return {"type": "classification", "dropout": 0.0, **LABELS, **changes}


def test_only_updates_pooler_and_head_learn():
    settings = config(LORA)
    model, before, optimizer, _ = learn(
        settings, 3, lambda config: Model(config, lora=config.recipe.lora)
    )
    after = named_arrays.values(model.variables_by_path())
    changed = {path for path, value in after.items() if (value != before[path]).any()}
    expected = {path for path in after if low_rank.is_update(path)}
    expected |= {path for path in after if path.startswith(("encoder/pooler/", "classification/"))}
    assert changed == expected and len([p for p in changed if "lora_" in p]) == 3 * 2 * 2
    assert set(optimizer.slots()) == {f"model/{p}/{name}" for p in changed for name in "mv"}


def test_what_does_not_suit_is_refused():
    with pytest.raises(UserError, match="trainable.lora: not supported with layers; remove"):
        config({"layers": 1, **LORA})
    with pytest.raises(UserError, match="trainable.lora.targets: 'keys' is not one of query, key"):
        config({"lora": {"targets": ["keys"]}})
    with pytest.raises(UserError, match="trainable.lora.rank: 0 is less than 1"):
        config({"lora": {"rank": 0}})
    changed = small.replace(config(LORA), init_weights="run")
    with pytest.raises(UserError, match="recipe.trainable: differs from that of the run of --init"):
        resolve.inherit(changed, config())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A plain model of a masked LM, the shards of a task, and a run from the one on the other."""
    folder = tmp_path_factory.mktemp("lora")
    shards = task_shards(folder)
    plain = small.config(encoder__num_layers=2, encoder__initializer_range=0.2, seed=3)
    tokenizer = load_tokenizer(shards / "tokenizer")
    arrays = named_arrays.values(Model(plain).variables_by_path())
    model_folder.write_new(plain, tokenizer, arrays, folder / "plain")
    train(folder)
    return folder


def train(folder):
    settings = config(
        LORA,
        objectives=[head()],
        recipe__steps=4,
        recipe__eval_every=4,
        recipe__keep_checkpoints=3,
        recipe__optimizer__learning_rate=0.02,
        encoder__num_layers=2,
        encoder__initializer_range=0.2,
    )
    lines = []
    run.train(
        settings, folder / "shards", folder / "model", init=folder / "plain", report=lines.append
    )
    return lines


@pytest.mark.slow
def test_a_run_starts_from_plain_weights_and_goes_on_exactly(place):
    folder = place / "model"
    whole = checkpoints.load(folder, "last", optimizer=True)
    plain = checkpoints.load_variables(place / "plain")
    kept = {path for path in whole.variables if path.startswith("encoder/")} & set(plain)
    kept = {path for path in kept if not path.startswith("encoder/pooler")}
    assert len(kept) == 2 * 12 + 5
    for path in kept:
        np.testing.assert_array_equal(whole.variables[path], plain[path], err_msg=path)

    again = place / "again"
    shutil.copytree(folder, again / "model")
    for name in ("shards", "plain"):
        (again / name).symlink_to(place / name)
    shutil.rmtree(checkpoints.find(again / "model", "4"))
    (again / "model" / "checkpoints" / "best.json").unlink()
    assert any("going on from step 2" in line for line in train(again))
    resumed = checkpoints.load(again / "model", "last", optimizer=True)
    assert resumed.step == 4 and resumed.variables.keys() == whole.variables.keys()
    for path, value in whole.variables.items():
        np.testing.assert_array_equal(resumed.variables[path], value, err_msg=path)


@pytest.mark.slow
@pytest.mark.long
def test_everything_after_training_has_plain_weights(place, tmp_path):
    """The merged model answers as the one that was trained: in memory, served, converted."""
    folder = place / "model"
    settings = model_folder.config_of(folder)
    trained = Model(settings, lora=settings.recipe.lora)
    raw = checkpoints.load(folder, "best", optimizer=True)
    named_arrays.assign(trained.variables_by_path(), raw.variables, "raw")
    moved = [np.abs(raw.variables[p]).max() for p in raw.variables if p.endswith("value/b")]
    assert len(moved) == 2 and min(moved) > 0.01

    loaded = official.load(folder)
    assert not any(low_rank.is_update(path) for path in loaded.model.variables_by_path())
    expected = trained.predictions(BATCH)["probabilities"]
    np.testing.assert_allclose(
        loaded.model.predictions(BATCH)["probabilities"], expected, atol=1e-6
    )
    before = Model(settings)
    named_arrays.assign(before.variables_by_path(), raw.variables, "raw")
    difference = np.abs(before.predictions(BATCH)["probabilities"] - expected).max()
    assert difference > 1e-3  # without the updates

    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    (evaluated,) = [line for line in lines if line["split"] == "validation"]
    metrics = evaluate(folder, place / "shards")["validation"]
    assert metrics["loss"] == pytest.approx(evaluated["loss"], abs=1e-5)

    texts = [" ".join(small.WORDS[:3]), " ".join(small.WORDS[4:9])]
    saved_model.export(folder, tmp_path / "saved")
    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    served = serve(text=tf.constant(texts))["probabilities"]
    answers = [
        [each.probabilities[name] for name in LABELS["labels"]] for each in loaded.classify(texts)
    ]
    np.testing.assert_allclose(served, answers, atol=1e-5)

    convert(folder, tmp_path / "hf", target="hf")
    back = huggingface.read(tmp_path / "hf").variables
    merged = checkpoints.load_variables(folder)
    for path in merged:
        np.testing.assert_array_equal(back[path], merged[path], err_msg=path)

    convert(place / "plain", tmp_path / "base", target="hf")
    convert(folder, tmp_path / "peft", target="peft", base=tmp_path / "base")
    back = huggingface.read(tmp_path / "base", tmp_path / "peft").variables
    assert back.keys() == merged.keys()
    for path in merged:
        np.testing.assert_allclose(back[path], merged[path], rtol=0, atol=1e-6, err_msg=path)
