"""First weights are drawn by the law of each release: mean, deviation and kurtosis of many."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from official import config as configs
from official.config.heads import ClassificationConfig
from official.modeling.model import Model
from tests import ROOT, small

CONFIGS = ROOT / "configs" / "pretrain"
LAWS = {
    # Deviation over initializer_range, and kurtosis.
    "normal": (1.0, 3.0),
    "truncated_normal": (stats.truncnorm(-2, 2).std(), 3 + stats.truncnorm(-2, 2).stats("k")),
    "uniform": (stats.uniform(-1, 2).std(), 3 + stats.uniform(-1, 2).stats("k")),
}
FAMILIES = {
    "bert_base": "truncated_normal",
    "albert_base": "truncated_normal",
    "electra_base": "truncated_normal",
    "ernie_base": "truncated_normal",
    "roberta_base": "normal",
    "spanbert_base": "normal",
    "gpt2_small": "normal",
    "xlnet_base": "normal",
    "transformer_xl_mini": "normal",
    "neobert": "uniform",
}


def shrunk(name):
    """A published config with a narrow encoder of two layers."""
    config = configs.load(CONFIGS / f"{name}.yaml")
    sizes = {"vocab_size": 2000, "hidden_size": 64, "num_layers": 2, "num_heads": 4}
    sizes |= {"intermediate_size": 256}
    if getattr(config.encoder, "embedding_size", None):
        sizes["embedding_size"] = 32
    return dataclasses.replace(config, encoder=dataclasses.replace(config.encoder, **sizes))


def drawn(model):
    """All variables that are drawn, by path: not the constants that norms and biases begin with."""
    values = {path: np.asarray(v) for path, v in model.variables_by_path().items()}
    return {path: value for path, value in values.items() if np.ptp(value) > 0}


def check(values, spread, law):
    deviation, kurtosis = LAWS[law]
    z = np.concatenate([value.ravel() for value in values]).astype(np.float64) / spread
    assert len(z) > 50_000
    assert abs(z.mean()) < 5 / np.sqrt(len(z))
    assert z.std() == pytest.approx(deviation, rel=0.01)
    assert stats.kurtosis(z, fisher=False) == pytest.approx(kurtosis, abs=0.08)
    assert (np.abs(z).max() > 2) == (law == "normal")


@pytest.mark.parametrize("name, law", FAMILIES.items())
def test_of_each_family(name, law):
    config = shrunk(name)
    encoder = config.encoder
    assert encoder.initializer == law and encoder.initializer_range == 0.02
    actual = drawn(Model(config))
    residual = ("/attention/output/kernel", "/feed_forward/outer/kernel")
    if getattr(encoder, "scale_residual_init", False):  # GPT-2: of four sublayers
        scaled = [actual.pop(path) for path in list(actual) if path.endswith(residual)]
        assert np.std(np.concatenate([v.ravel() for v in scaled])) == pytest.approx(0.01, rel=0.02)
    positions = [value for path, value in actual.items() if "position_embedding" in path]
    if name == "gpt2_small":
        actual = {path: v for path, v in actual.items() if "position_embedding" not in path}
        check(positions, 0.01, law)
    check(actual.values(), 0.02, law)


def test_heads_are_drawn_like_their_encoder():
    labels = tuple(f"class {i}" for i in range(1500))
    head = ClassificationConfig(labels=labels)
    for law in LAWS:
        config = small.config(encoder__hidden_size=64, encoder__initializer=law)
        model = Model(dataclasses.replace(config, objectives=(head,)))
        check([drawn(model)["classification/output/kernel"]], 0.02, law)


def test_a_law_that_there_is_none_of():
    with pytest.raises(ValueError, match="initializer: 'constant' is not one of normal, trunc"):
        dataclasses.replace(small.config().encoder, initializer="constant")
