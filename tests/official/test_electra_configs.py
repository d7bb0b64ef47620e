"""The published sizes come out of the configs."""

from pathlib import Path

import pytest

from official import config as config_lib
from official import parameters
from official.objectives import generator

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def table_sizes(encoder):
    return (
        encoder.hidden_size,
        encoder.num_heads,
        encoder.intermediate_size,
        encoder.num_layers,
        encoder.embedding_size or encoder.hidden_size,
    )


@pytest.mark.parametrize(
    "name, sizes, count",
    [
        ("small", (64, 1, 256, 12, 128), 13_483_008),
        ("base", (256, 4, 1024, 12, 768), 108_891_648),
        ("large", (256, 4, 1024, 24, 1024), 334_092_288),
    ],
)
def test_published_sizes(name, sizes, count):
    config = config_lib.load(CONFIGS / "pretrain" / f"electra_{name}.yaml")
    counts = parameters.count(config).encoders
    assert counts["encoder"] == count
    found = generator.network(config.objectives[0], config.encoder)
    assert table_sizes(found) == sizes
    if name != "small":
        assert counts["generator/encoder"] == {"base": 33_511_168, "large": 50_999_552}[name]
    limit = int((config.corruption.mask_rate + 0.005) * config.segments.max_length)
    assert config.corruption.max_predictions == limit


ABLATIONS = {
    "15_percent": {"objectives.1.tokens"},
    "replace_mlm": {"objectives.1.type", "objectives.1.weight"},
    "all_tokens_mlm": {"objectives.1.type", "objectives.1.weight"},
    "adversarial": {
        "objectives.0.baseline", "objectives.0.weight", "objectives.1.adversarial_weight",
    },
    "two_stage_1": {"objectives.0.type", "recipe.steps"},
    "two_stage_2": {
        "objectives.0.size", "objectives.0.sharing", "objectives.0.frozen",
        "recipe.steps", "recipe.init_weights",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_differs_from_the_base_in_what_it_is_about(name):
    base = config_lib.load(CONFIGS / "pretrain" / "electra_base.yaml")
    found = config_lib.load(CONFIGS / "pretrain" / f"electra_base_{name}.yaml")
    assert found.name == f"electra_base_{name}"
    values = {key: ours for key, ours, _ in config_lib.differences(found, base)}
    # Keys that only the base's own objectives have are gone, as they must be.
    changed = {key for key, value in values.items() if value is not None} - {"name"}
    assert changed == ABLATIONS[name]
