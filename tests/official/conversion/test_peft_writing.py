"""LoRA folders of PEFT that are written: read again on their base, they give the merged model."""

import json

import numpy as np
import pytest
import safetensors.numpy

from official.config.trainable import TARGETS, LoRA
from official.conversion import converted_model, huggingface, peft
from official.conversion.run import convert
from official.modeling.model import Model
from official.saving import checkpoints, named_arrays
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
