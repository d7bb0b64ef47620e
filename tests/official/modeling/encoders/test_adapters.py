"""Adapters: near the identity at the start, and what they compute."""

import dataclasses
import math

import numpy as np
import pytest

from official import config as configs
from official import tokenizers
from official.conversion.run import convert
from official.modeling.model import Model
from official.saving import model_folder, named_arrays, warm_start
from official.training import resolve, trainable
from official.utils.errors import UserError
from tests import small

SIZES = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 12,
}
ENCODERS = {
    "post": {"type": "transformer", **SIZES, "initializer_range": 0.3},
    "pre": {"type": "transformer", **SIZES, "initializer_range": 0.3, "norm": "pre"},
    "albert": {"type": "transformer", **SIZES, "initializer_range": 0.3, "layer_groups": 1},
    "xl": {"type": "transformer_xl", **SIZES, "initializer_range": 0.3, "pooler": True},
}
IDS = np.array([[2, 7, 9, 3, 0, 0], [2, 5, 6, 11, 12, 3]], np.int32)
SIZE = 3


def config(name, trainable=None, **changes):
    recipe = {} if trainable is None else {"recipe__trainable": trainable}
    return small.config(
        segments=None,
        corruption=None,
        encoder={**ENCODERS[name], **changes},
        objectives=[{"type": "classification", "num_labels": 2}],
        **recipe,
    )


def states(model):
    return np.array(model.encoder(IDS, padding_mask=IDS > 0)["sequence_output"])


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("name", list(ENCODERS))
def test_adapters_begin_near_the_identity(name):
    plain, model = Model(config(name)), Model(config(name, adapter_size=SIZE))
    variables = model.variables_by_path()
    for path, variable in plain.variables_by_path().items():
        np.testing.assert_array_equal(variables[path], variable, err_msg=path)
    added = {path for path in variables if "_adapter/" in path}
    assert variables.keys() - plain.variables_by_path().keys() == added
    # Two in each layer, kernels [8, 3] and [3, 8] with their biases. ALBERT has a single layer.
    layers = 1 if name == "albert" else 2
    count = sum(math.prod(variables[path].shape) for path in added)
    assert count == layers * 2 * (2 * 8 * SIZE + SIZE + 8)

    before, expected = states(model), states(plain)
    # 0.02 = two standard deviations is the largest weight, so |f(y)| < 8 * 3 * 0.02 ** 2 * max |y|.
    assert 0 < np.abs(before - expected).max() < 0.05 * np.abs(expected).max()
    for path in added:
        if path.endswith("outer/kernel"):
            variables[path].assign(np.zeros_like(variables[path]))
    np.testing.assert_array_equal(states(model), expected)


@pytest.mark.parametrize("name", ["post", "pre", "xl"])
def test_where_adapters_are_and_what_they_compute(name):
    """After the sublayer and before the residual sum: x + a(f(x)), a(y) = y + W2 gelu(W1 y)."""
    model = Model(config(name, adapter_size=SIZE))
    variables = model.variables_by_path()
    rng = np.random.default_rng(0)
    for path, variable in variables.items():
        if "_adapter/" in path:
            variable.assign(rng.normal(size=variable.shape))
    block = model.encoder.blocks[0]
    x = rng.normal(size=(2, 4, 8)).astype(np.float32)

    def adapted(y, place):
        w1, b1, w2, b2 = (
            variables[f"encoder/layer_0/{place}_adapter/{part}"].numpy().astype(np.float64)
            for part in ("inner/kernel", "inner/bias", "outer/kernel", "outer/bias")
        )
        y = np.array(y, np.float64)
        return y + gelu(y @ w1 + b1) @ w2 + b2

    def sublayer(x, place, run):
        norm = getattr(block, f"{place}_norm")
        if name == "pre":
            return x + adapted(run(norm(x)), place)
        return np.array(norm(x + adapted(run(x), place)))

    def attend(x):
        result = block.attention(x.astype(np.float32) if isinstance(x, np.ndarray) else x)
        return result[0]

    expected = sublayer(x, "attention", attend)
    expected = sublayer(np.float32(expected), "feed_forward", block.feed_forward)
    np.testing.assert_allclose(np.array(block(x)[0]), expected, atol=2e-4)


def test_adapters_norms_and_pooler_learn():
    model = Model(config("post", {"adapters": SIZE}, adapter_size=SIZE))
    trainable.freeze(model, config("post", {"adapters": SIZE}).recipe)
    learning = {p for p, v in model.variables_by_path().items() if v.trainable}
    norms = {f"encoder/layer_{i}/{x}_norm" for i in (0, 1) for x in ("attention", "feed_forward")}
    parts = {path.rsplit("/", 1)[0] for path in learning if "_adapter/" not in path}
    assert parts == {*norms, "encoder/embeddings/norm", "encoder/pooler", "classification/output"}
    assert len([path for path in learning if "_adapter/" in path]) == 2 * 2 * 4


def test_the_recipe_gives_the_encoder_its_adapters():
    fine_tuning = config("post", {"adapters": SIZE})
    bare = dataclasses.replace(fine_tuning, encoder=None)
    initial = configs.ResolvedConfig.of(config("post"))
    for settings, init in ((fine_tuning, None), (fine_tuning, initial), (bare, initial)):
        assert resolve.inherit(settings, init).encoder == config("post", adapter_size=SIZE).encoder
    known = configs.ResolvedConfig.of(config("post", adapter_size=4))
    with pytest.raises(UserError, match="recipe.trainable.adapters: 3, and the encoder has 4 "):
        resolve.inherit(bare, known)
    assert "adapter_size" not in configs.to_dict(config("post"))["encoder"]


def test_what_does_not_suit_is_refused():
    with pytest.raises(UserError, match="trainable.adapters: not supported with layers; remove"):
        config("post", {"adapters": 3, "layers": 1})
    with pytest.raises(UserError, match="trainable.adapters: 0 is less than 1"):
        config("post", {"adapters": 0})
    t5 = {"type": "encoder_decoder", **SIZES}
    with pytest.raises(UserError, match="trainable.adapters: not supported for encoder.type: enc"):
        small.config(
            segments=None,
            corruption=None,
            encoder=t5,
            objectives=[{"type": "seq2seq_lm"}],
            recipe__trainable={"adapters": 3},
        )


def test_adapters_belong_to_the_model_folder(tmp_path):
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    rows = tokenizer.vocab_size
    plain = configs.ResolvedConfig.of(config("post", vocab_size=rows))
    settings = configs.ResolvedConfig.of(config("post", vocab_size=rows, adapter_size=SIZE))
    arrays = named_arrays.values(Model(plain).variables_by_path())
    arrays = {path: array + 0.01 for path, array in arrays.items()}
    model_folder.write_new(plain, tokenizer, arrays, tmp_path / "plain")
    model = Model(settings)
    before = named_arrays.values(model.variables_by_path())
    count, fresh = warm_start.start_from(model, str(tmp_path / "plain"), "last", "all", tokenizer)
    assert (count, fresh) == (len(arrays), ["adapters"])
    for path, variable in model.variables_by_path().items():
        expected = before[path] if "_adapter/" in path else arrays[path]
        np.testing.assert_array_equal(variable, expected, err_msg=path)

    rng = np.random.default_rng(0)
    after = {p: np.float32(rng.normal(size=v.shape)) for p, v in before.items()}
    model_folder.write_new(settings, tokenizer, after, tmp_path / "adapted")
    named_arrays.assign(model.variables_by_path(), after, "here")
    config_there, _, loaded = model_folder.restore(tmp_path / "adapted")
    assert config_there.encoder.adapter_size == SIZE
    np.testing.assert_array_equal(states(loaded), states(model))
    assert warm_start.start_from(loaded, str(tmp_path / "adapted"), "last", "encoder")[1] == [
        "classification"
    ]
    with pytest.raises(UserError, match="encoder.adapter_size: 3: a BERT of transformers has no"):
        convert(tmp_path / "adapted", tmp_path / "hf", target="hf")
