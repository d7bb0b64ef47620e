"""LoRA folders of PEFT that are written: read again on their base, they give the merged model."""

import json

import numpy as np
import pytest
import safetensors.numpy

import official
from official.config.trainable import TARGETS, LoRA
from official.conversion import converted_model, huggingface, peft
from official.conversion.run import convert
from official.modeling.model import Model
from official.saving import checkpoints, named_arrays, warm_start
from official.utils.errors import UserError
from tests.official.conversion import systems


def trained(folder, base, targets, read=None):
    """A model folder as a run with LoRA leaves it: updates, pooler and head have learned.

    `read` is a model with a head on the encoder of `base`, if `base` has none.
    """
    before = huggingface.read(base).variables
    read = huggingface.read(base) if read is None else read
    converted_model.write(read, folder)
    lora = LoRA(rank=2, alpha=3.0, targets=targets)
    model = Model(read.config, lora=lora)
    paths = model.variables_by_path()
    arrays = {path: np.array(value) for path, value in named_arrays.values(paths).items()}
    arrays |= {path: array for path, array in before.items() if path.startswith("encoder/")}
    rng = np.random.default_rng(5)
    for path, array in arrays.items():
        if "/lora_" in path or not path.startswith("encoder/") or "/pooler/" in path:
            arrays[path] = rng.normal(scale=0.4, size=array.shape).astype(np.float32)
    checkpoints.save(folder, 3, arrays, {checkpoints.LORA_FACTOR: lora.factor})
    return checkpoints.load_variables(folder, "last")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "targets", "rank", "modules"),
    [
        ("roberta_classification", TARGETS[:4], 2, ["classifier"]),
        ("albert_classification", ("query", "outer"), 2, ["albert.pooler", "classifier"]),
        ("deberta-v2_classification", ("query", "key", "inner"), 2, ["classifier", "pooler"]),
        ("modernbert_classification", TARGETS, 2, ["classifier", "head"]),
        ("modernbert_questions", ("query", "value"), 4, ["classifier", "head"]),
        ("mpnet_classification", ("value", "inner"), 2, ["classifier"]),
        ("eurobert_tokens", ("query", "gate"), 2, ["classifier"]),
        ("distilbert_bare", ("query", "output"), 2, None),
    ],
)
def test_the_way_back(name, targets, rank, modules, tmp_path):
    config, parts, _ = systems.load(name)
    base = systems.write(tmp_path / "base", config, parts["weight"])
    merged = trained(tmp_path / "model", base, targets)
    convert(tmp_path / "model", tmp_path / "out", target="peft", base=base, checkpoint="last")
    settings = json.loads((tmp_path / "out" / peft.CONFIG).read_text())
    assert settings["r"] == rank and settings["lora_alpha"] == 1.5 * rank
    assert settings["modules_to_save"] == modules
    assert settings["base_model_name_or_path"] == str(base)
    if name == "modernbert_classification":  # Wqkv has three updates, Wi two
        ranks = {key.rpartition(".")[2]: rank for key, rank in settings["rank_pattern"].items()}
        assert ranks == {"Wqkv": 6, "Wi": 4}
    read = huggingface.read(base, tmp_path / "out")
    assert read.variables.keys() == merged.keys()
    for path, array in merged.items():
        np.testing.assert_allclose(read.variables[path], array, rtol=1e-6, atol=1e-5, err_msg=path)
    before = huggingface.read(base)
    assert read.config.objectives == before.config.objectives
    moved = [p for p, v in merged.items() if np.abs(v - before.variables[p]).max() > 0.1]
    assert any(path.startswith("encoder/") for path in moved)


def test_what_cannot_be_an_adapter(tmp_path):
    config, parts, _ = systems.load("roberta_classification")
    weights = dict(parts["weight"])
    base = systems.write(tmp_path / "base", config, weights)
    out = tmp_path / "out"

    def refused(words, model="model", base=base):
        with pytest.raises(UserError, match=words):
            convert(tmp_path / model, out, target="peft", base=base, checkpoint="last")
        assert not out.exists()

    trained(tmp_path / "model", base, ("query",))
    refused("--base: --target=peft needs it, and nothing else has it", base=None)
    with pytest.raises(UserError, match="--base: --target=peft needs it, and nothing else has it"):
        convert(tmp_path / "model", out, target="hf", base=base)
    converted_model.write(huggingface.read(base), tmp_path / "plain")
    refused("plain was not trained with recipe.trainable.lora, and has no adapter: --ta", "plain")

    key = "roberta.encoder.layer.1.output.dense.weight"
    other = systems.write(tmp_path / "other", config, weights | {key: weights[key] + 1})
    refused("other has other values of encoder/layer_1/feed_forward/outer/kernel, wh", base=other)
    other = systems.write(tmp_path / "acts", {**config, "hidden_act": "relu"}, weights)
    refused(
        "config.json: encoder.activation: 'relu', but the model has 'gelu_tanh': gi", base=other
    )

    config, parts, _ = systems.load("modernbert_classification")
    modern = systems.write(tmp_path / "modern", config, parts["weight"])
    trained(tmp_path / "pooled", modern, ("query",))
    pooling = {"cls": "mean", "mean": "cls"}[config["classifier_pooling"]]
    other = systems.write(
        tmp_path / "other_pooling", {**config, "classifier_pooling": pooling}, parts["weight"]
    )
    refused(f"config.json: classifier_pooling: '{pooling}', but the model has", "pooled", other)

    config, parts, _ = systems.load("roberta_masked_lm")
    masked = systems.write(tmp_path / "masked", config, parts["weight"])
    trained(tmp_path / "lm", masked, ("query",))
    refused("lm: objectives: masked_lm: only an encoder alone, or with one head", "lm", masked)


def test_tensors_are_named_as_peft_names_them(tmp_path):
    config, parts, _ = systems.load("roberta_classification")
    base = systems.write(tmp_path / "base", config, parts["weight"])
    trained(tmp_path / "model", base, ("value",))
    lines = []
    convert(
        tmp_path / "model", tmp_path / "out", target="peft", base=base, checkpoint="last",
        report=lines.append,
    )  # fmt: skip
    written = safetensors.numpy.load_file(tmp_path / "out" / "adapter_model.safetensors")
    heads = [f"classifier.{n}.{k}" for n in ("dense", "out_proj") for k in ("weight", "bias")]
    stem = "roberta.encoder.layer.{}.attention.self.value.lora_{}.weight"
    layers = range(config["num_hidden_layers"])
    names = {*heads, *(stem.format(i, part) for i in layers for part in "AB")}
    assert written.keys() == {f"base_model.model.{name}" for name in names}
    assert "RobertaForSequenceClassification.from_pretrained" in lines[-1]
    assert "num_labels=3" in lines[-1] and "whole: classifier" in lines[-2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("roberta_classification", ("query", "value", "outer")),
        ("albert_classification", ("query", "outer")),
        ("modernbert_classification", TARGETS),
    ],
)
def test_an_adapter_stays_beside_the_weights(name, targets, tmp_path):
    """Read so, a folder has the same sum, the same updates, and is written as the same adapter."""
    config, parts, _ = systems.load(name)
    base = systems.write(tmp_path / "base", config, parts["weight"])
    merged = trained(tmp_path / "model", base, targets)
    convert(tmp_path / "model", tmp_path / "out", target="peft", base=base, checkpoint="last")
    joined = name.startswith("modernbert")
    if joined:  # of one rank: query, key and value are one matrix, inner and gate another one
        _with_one_rank(tmp_path / "out")
        merged = huggingface.read(base, tmp_path / "out").variables
    lines = []
    convert(
        base, tmp_path / "kept", source="hf", adapter=tmp_path / "out", keep_adapter=True,
        report=lines.append,
    )  # fmt: skip
    assert any("goes on with the adapter, if recipe.trainable.lora is {rank: " in x for x in lines)
    kept = checkpoints.load(tmp_path / "kept", optimizer=True).variables
    before = huggingface.read(base).variables
    for path, array in before.items():
        if path.startswith("encoder/layer"):
            np.testing.assert_array_equal(kept[path], array, err_msg=path)
    sums = checkpoints.load_variables(tmp_path / "kept")
    assert sums.keys() == merged.keys()
    for path, array in merged.items():
        np.testing.assert_allclose(sums[path], array, rtol=1e-6, atol=1e-5, err_msg=path)
    if not joined:
        trained_there = checkpoints.load(tmp_path / "model", "last", optimizer=True).variables
        updates = [path for path in kept if "/lora_" in path]
        assert updates and {*updates} == {p for p in trained_there if "/lora_" in p}
        for path in updates:
            np.testing.assert_array_equal(kept[path], trained_there[path], err_msg=path)
    convert(tmp_path / "kept", tmp_path / "again", target="peft", base=base)
    again = huggingface.read(base, tmp_path / "again").variables
    for path, array in merged.items():
        np.testing.assert_allclose(again[path], array, rtol=1e-6, atol=1e-5, err_msg=path)


def _with_one_rank(folder):
    """Gives all updates of an adapter the largest rank, with zeros; the factor stays."""
    file = folder / peft.FILES[0]
    arrays = safetensors.numpy.load_file(file)
    settings = json.loads((folder / peft.CONFIG).read_text())
    factor = settings["lora_alpha"] / settings["r"]
    rank = max([settings["r"], *settings["rank_pattern"].values()])
    for name, array in arrays.items():
        if "lora_" in name:
            axis = 0 if "lora_A" in name else 1
            missing = [(0, 0), (0, 0)]
            missing[axis] = 0, rank - array.shape[axis]
            arrays[name] = np.pad(array, missing)
    settings |= {"r": rank, "lora_alpha": factor * rank, "rank_pattern": {}, "alpha_pattern": {}}
    safetensors.numpy.save_file(arrays, file, metadata={"format": "pt"})
    (folder / peft.CONFIG).write_text(json.dumps(settings))


@pytest.mark.slow
def test_training_goes_on_from_an_adapter(tmp_path):
    """With the same rank, factor and targets; otherwise it begins anew on the merged kernels."""
    config, parts, _ = systems.load("roberta_classification")
    base = systems.write(tmp_path / "base", config, parts["weight"])
    trained(tmp_path / "model", base, ("query", "value"))
    kept = checkpoints.load(tmp_path / "model", "last", optimizer=True).variables
    merged = checkpoints.load_variables(tmp_path / "model", "last")
    read = huggingface.read(base)
    same = LoRA(rank=2, alpha=3.0, targets=("query", "value"))
    for lora, weights, goes_on in (
        (same, "all", True),
        (same, "encoder", False),
        (LoRA(rank=2, alpha=4.0, targets=("query", "value")), "all", False),
        (LoRA(rank=2, alpha=3.0, targets=("query",)), "all", False),
    ):
        model = Model(read.config, lora=lora)
        warm_start.start_from(model, str(tmp_path / "model"), "last", weights)
        found = named_arrays.values(model.variables_by_path())
        expected = kept if goes_on else merged
        for path, array in found.items():
            if "/lora_" in path and not goes_on:
                assert path.endswith("/a") or not np.any(array), path
            elif path.startswith("encoder/layer"):
                np.testing.assert_array_equal(array, expected[path], err_msg=path)


def test_what_cannot_stay_beside_the_weights(tmp_path):
    config, parts, _ = systems.load("roberta_classification")
    base = systems.write(tmp_path / "base", config, parts["weight"])
    trained(tmp_path / "model", base, ("query",))
    out = tmp_path / "out"
    convert(tmp_path / "model", out, target="peft", base=base, checkpoint="last")
    settings = json.loads((out / peft.CONFIG).read_text())
    arrays = safetensors.numpy.load_file(out / peft.FILES[0])

    def refused(words, changed=settings, tensors=arrays):
        (out / peft.CONFIG).write_text(json.dumps(changed))
        safetensors.numpy.save_file(tensors, out / peft.FILES[0])
        with pytest.raises(UserError, match=f"{words}.* merge it, without --keep_adapter"):
            huggingface.read(base, out, keep_adapter=True)

    refused("bias: 'all'", {**settings, "bias": "all"})
    pattern = {"layer.0.attention.self.query": 8}
    refused(r"ranks and factors of several values \(2 and 1.5, 2 and 4\)",
            {**settings, "alpha_pattern": pattern})  # fmt: skip
    first = {name: a for name, a in arrays.items() if "lora" not in name or "layer.0." in name}
    refused("has no update for encoder/layer_1/attention/query/lora_query/a|has no update for",
            tensors=first)  # fmt: skip
    moved = {name.replace("layer.0.attention.self.query", "pooler.dense"): a
             for name, a in arrays.items()}  # fmt: skip
    with pytest.raises(UserError):
        safetensors.numpy.save_file(moved, out / peft.FILES[0])
        huggingface.read(base, out, keep_adapter=True)
    with pytest.raises(UserError, match="--keep_adapter: there is no --adapter to keep"):
        convert(base, tmp_path / "x", source="hf", keep_adapter=True)


def test_an_adapter_alone_says_what_to_do(tmp_path):
    config, parts, _ = systems.load("roberta_classification")
    base = systems.write(tmp_path / "base", config, parts["weight"])
    trained(tmp_path / "model", base, ("query",))
    out = tmp_path / "out"
    convert(tmp_path / "model", out, target="peft", base=base, checkpoint="last")
    words = rf"is an adapter of PEFT: make .* its base \({base}\) with official.convert --source=hf"
    with pytest.raises(UserError, match=words):
        official.load(out)
    with pytest.raises(UserError, match=words):
        convert(out, tmp_path / "y", source="hf")
