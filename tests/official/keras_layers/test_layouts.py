"""How the weights of encoders are split over devices, and training that is split so."""

import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

import official
import official.keras_layers as garden
from official import config as configs
from official.config import registry
from official.config.blocks import Disentangled
from official.keras_layers import layouts
from official.utils import keras_private
from official.utils.errors import UserError
from tests import ROOT
from tests.official.keras_layers.test_text import write as write_folder

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="no JAX")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
LARGE = 2**17  # weights; half a MiB
BERT = garden.TransformerConfig(vocab_size=30522, num_layers=1)
# Configs of every form of a weight, of one layer of the published sizes.
PUBLISHED = (
    "albert_xxlarge",
    "deberta_v2_xxlarge",
    "elmo_original",
    "eurobert_2_1b",
    "gpt2_small",
    "modernbert_large",
    "roberta_large",
    "t5_11b",
    "t5_1_1_xxl",
    "transformer_xl_mini",
    "xlnet_large",
)
OTHERS = {
    "adapters": dataclasses.replace(BERT, adapter_size=256),
    "DeBERTa v1": dataclasses.replace(BERT, disentangled=Disentangled(own_projections=True)),
    "distances of keys": dataclasses.replace(BERT, positions="relative_key_query"),
    "distances in buckets": dataclasses.replace(BERT, relative_buckets=32),
    "ELMo of words": garden.BilmConfig(vocab_size=100_000, tokens="words"),
    "static": garden.StaticConfig(vocab_size=30522, num_rows=20_000),
}


# What the test of the page runs after it.
FOLDER = """
import json

import official

batch = {"token_ids": token_ids[:8], "padding_mask": padding_mask[:8]}
found = {
    "losses": history.history["loss"],
    "batch": {name: x.tolist() for name, x in batch.items()},
    "scores": model.predict(batch, verbose=0).tolist(),
    "bytes": sum(v.value.addressable_shards[0].data.nbytes for v in encoder.weights),
}
layout = layout_map(mesh, official.config.load("run/pretrained").encoder)
parallel = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")
keras.distribution.set_distribution(parallel)
encoder, preprocess = official.keras_encoder("run/pretrained")
assert any("model" in v.value.sharding.spec for v in encoder.weights)
states = encoder(**preprocess(["bada fife lalo", "mo"]))["sequence_output"]
print(json.dumps({**found, "states": np.asarray(states).tolist()}))
"""


def published(name):
    encoder = configs.load(ROOT / "configs" / "pretrain" / f"{name}.yaml").encoder
    changes = {"num_layers": 2 if name.startswith("deberta") else 1}
    if name.startswith("t5"):
        changes["decoder_layers"] = 1
    if encoder.type == "bilm":
        changes = {}
    return dataclasses.replace(encoder, **changes, vocab_size=encoder.vocab_size or 30522)


def mesh(*shape, names=("batch", "model")):
    """Devices that need not be there."""
    return keras.distribution.DeviceMesh(shape, names, devices=range(int(np.prod(shape))))


def weights_of(config):
    with keras_private.uninitialized_variables():
        encoder = registry.module_of(config).Encoder(config)
        encoder.build()
    return encoder.weights


@pytest.mark.parametrize("name", [*PUBLISHED, *OTHERS])
def test_every_large_weight_is_split(name):
    config = OTHERS.get(name) or published(name)
    weights = weights_of(config)
    sizes = {"batch": 2, "model": 4}
    for fsdp in (False, True):
        layout = garden.layout_map(mesh(2, 4), config, fsdp=fsdp)
        device = 0
        for weight in weights:
            found = layout[f"two_towers/{weight.path}"]  # inside a model of any name
            axes = set() if found is None else set(found.axes) - {None}
            assert found is None or len(found.axes) == len(weight.shape), weight.path
            matrix = sum(size > 1 for size in weight.shape) > 1
            if matrix and np.prod(weight.shape) > LARGE:
                assert "model" in axes, weight.path
                # An odd number of rows stays whole, and so do the rows of small tables.
                table = weight.path.endswith("/table") and (
                    weight.shape[0] % 2 or not re.search("token_embedding|words", weight.path)
                )
                assert ("batch" in axes) == (fsdp and not table), weight.path
            device += np.prod(weight.shape) // np.prod([sizes[axis] for axis in axes], dtype=int)
        planned = garden.device_weights(mesh(2, 4), config, fsdp=fsdp)
        assert planned.device == device
        assert planned.all == sum(np.prod(w.shape) for w in weights)


def test_every_type_of_encoder_is_tried():
    tried = {published(name).type for name in PUBLISHED} | {c.type for c in OTHERS.values()}
    assert tried == set(registry.ENCODERS)


def test_a_vocabulary_that_is_not_divided():
    # 30522 = 2 * 3 * 5087
    def table(config, *shape, **options):
        axes = ("batch",) if options.get("model", 0) is None else ("batch", "model")
        layout = garden.layout_map(mesh(*shape, names=axes), config, **options)
        return layout["encoder/embeddings/token_embedding/table"].axes

    assert table(BERT, 4, 2) == ("model", None)
    assert table(BERT, 2, 4) == (None, "model")
    assert table(BERT, 4, 2, fsdp=True) == ("model", "batch")
    assert table(BERT, 2, 4, fsdp=True) == ("batch", "model")
    assert table(BERT, 4, 4, fsdp=True) == (None, "model")
    assert table(BERT, 8, 4, fsdp=True) == (None, "batch")
    assert table(BERT, 8, fsdp=True, model=None) == (None, "batch")
    larger = dataclasses.replace(BERT, vocab_size=30528)
    assert table(larger, 4, 4, fsdp=True) == ("model", "batch")
    both = [BERT, dataclasses.replace(BERT, vocab_size=32)]
    layout = garden.layout_map(mesh(2, 4), *both)  # one row for the tables of both
    assert layout["other/embeddings/token_embedding/table"].axes == (None, "model")


def test_meshes_that_cannot_be_used_are_refused():
    kernel = (
        r"encoder/layer_0/attention/output/kernel \[768, 768\]: cannot be split into 5 x 1 parts"
    )
    with pytest.raises(UserError, match=kernel):
        garden.layout_map(mesh(2, 5), BERT)
    with pytest.raises(UserError, match="1 x 7 parts: choose a mesh whose axes divide the sizes"):
        garden.layout_map(mesh(7, names=("batch",)), BERT, fsdp=True, model=None)
    with pytest.raises(UserError, match="model='model': the mesh has the axes 'rows', 'columns'"):
        garden.layout_map(mesh(2, 4, names=("rows", "columns")), BERT, data="rows")
    with pytest.raises(UserError, match="data='batch': the mesh has the axes 'model': give data="):
        garden.layout_map(mesh(8, names=("model",)), BERT)
    with pytest.raises(UserError, match="model=None: nothing is split: give fsdp=True"):
        garden.layout_map(mesh(8, names=("batch",)), BERT, model=None)
    with pytest.raises(UserError, match="give the configs of the encoders"):
        garden.layout_map(mesh(2, 4))
    named = garden.layout_map(mesh(2, 4, names=("a", "b")), BERT, data="a", model="b", fsdp=True)
    assert named["encoder/pooler/kernel"].axes == ("a", "b")


def test_a_weight_without_a_row_is_an_error(monkeypatch):
    rows = {k: v for k, v in layouts._LAYOUTS.items() if not k.startswith("pooler")}
    monkeypatch.setattr(layouts, "_LAYOUTS", rows)
    with pytest.raises(ValueError, match="encoder/pooler/kernel: 0 rows of official.keras_layers"):
        garden.layout_map(mesh(2, 4), BERT)


@pytest.fixture(scope="module")
def trained():
    """What `split_training.py` found."""
    script = ROOT / "tests" / "official" / "keras_layers" / "split_training.py"
    done = subprocess.run(
        [sys.executable, str(script)], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_jax
@pytest.mark.slow
@pytest.mark.long
def test_split_training_is_that_of_one_device(trained):
    """Losses with dropout, and weights after six steps, on 8 virtual devices."""
    compared = 0
    for name, runs in trained.items():
        one = runs.pop("one device")
        control = runs.pop("another seed", None)
        if control is not None:  # the draws of another seed are seen
            assert np.abs(np.subtract(control["losses"], one["losses"])).max() > 1e-2
        assert one["devices"] == [1]
        for mesh_name, run in runs.items():
            np.testing.assert_allclose(run["losses"], one["losses"], rtol=0, atol=2e-6)
            for path, weight in one["weights"].items():
                message = f"{name} {mesh_name} {path}"
                np.testing.assert_allclose(run["weights"][path], weight, 0, 2e-6, err_msg=message)
            assert run["devices"] == [8]
            assert run["encoder_bytes"] == run["planned"]
            compared += 1
            # AdamW's two moments of the encoder and of the whole head, and its other numbers.
            rest = run["optimizer_bytes"] - 2 * run["planned"]
            assert rest == one["optimizer_bytes"] - 2 * one["encoder_bytes"]
            parts = one["encoder_bytes"] / run["encoder_bytes"]
            low, high = {"2x4": (3.5, 4), "4x2": (1.9, 2)}.get(mesh_name, (5.5, 8))
            assert low < parts <= high
    assert compared == 8
    # No device computes the rows of others, although kernels are split over the same devices.
    assert trained["BERT"]["8 fsdp"]["rows"] == "batch"


@needs_jax
@pytest.mark.slow
@pytest.mark.long
def test_the_page_runs_as_it_stands(tmp_path):
    text = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    write_folder(tmp_path / "run" / "pretrained")
    (tmp_path / "page.py").write_text(code + FOLDER, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    # What is printed of a device, and the vectors of texts by the encoder of the model folder.
    on_device = int(re.search(r"on a device +([\d,]+)", done.stdout)[1].replace(",", ""))
    found = json.loads(done.stdout.splitlines()[-1])
    assert on_device == found["bytes"]
    assert found["losses"][1] < found["losses"][0] < 8
    model = keras.models.load_model(tmp_path / "split.keras")
    scores = model({name: np.array(x) for name, x in found["batch"].items()})
    np.testing.assert_allclose(scores, found["scores"], rtol=0, atol=1e-5)
    encoder, preprocess = official.keras_encoder(tmp_path / "run" / "pretrained")
    states = encoder(**preprocess(["bada fife lalo", "mo"]))["sequence_output"]
    np.testing.assert_allclose(states, found["states"], rtol=0, atol=1e-5)
