"""DeBERTa-v3's configs are those of its release (He et al., 2021)."""

import pytest

from official import config as configs
from official.config.encoders import Disentangled
from official.modeling import weight_counts
from tests import CONFIGS

# The discriminator, the generator and the head of replaced tokens. The release also has differences
# of the positions, which have no gradient: 512 D weights of what it trains in all.
COUNTS = {
    "deberta_v3_xsmall": (70_682_112, 60_508_644, 148_993, 131_536_357),
    "deberta_v3_small": (141_304_320, 121_154_148, 592_897, 263_444_581),
    "deberta_v3_base": (183_831_552, 142_417_764, 592_897, 327_235_429),
    "deberta_v3_large": (434_012_160, 284_561_508, 1_052_673, 720_150_629),
    "mdeberta_v3_base": (278_218_752, 236_927_864, 592_897, 516_132_729),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_weights(name):
    config = configs.load(CONFIGS / "pretrain" / f"{name}.yaml")
    assert config.name == name
    counts = weight_counts.count(config)
    encoder, generator, head, trained = COUNTS[name]
    assert counts.encoders["encoder"] == encoder
    assert counts.encoders["generator/encoder"] + counts.heads["generator"] == generator
    assert counts.heads["replaced_tokens"] == head
    assert counts.total + 512 * config.encoder.hidden_size == trained


@pytest.mark.parametrize("name", COUNTS)
def test_recipe(name):
    config = configs.load(CONFIGS / "pretrain" / f"{name}.yaml")
    generator, head = config.objectives
    assert generator.network(config.encoder).num_layers == {
        "deberta_v3_small": 3, "deberta_v3_large": 12,
    }.get(name, 6)  # fmt: skip
    assert (generator.sharing, generator.enhanced_mask_decoder, head.form) == (
        "gdes", True, "deberta",
    )  # fmt: skip
    assert (generator.decoupled, generator.rate_factor) == (True, 1.0)
    assert (generator.weight, head.weight) == (1.0, 10.0)
    encoder = config.encoder
    assert (encoder.norm_epsilon, encoder.activation, encoder.norm) == (1e-7, "gelu", "post")
    assert (encoder.positions, encoder.segment_types) == ("none", 0)
    assert (encoder.initializer, encoder.initializer_range) == ("normal", 0.02)
    assert (encoder.dropout, encoder.attention_dropout) == (0.1, 0.1)
    assert encoder.disentangled == Disentangled(256, 512, own_projections=False, norm=True)
    assert encoder.convolution is None and encoder.hidden_size // encoder.num_heads == 64
    masks = config.corruption
    assert (masks.windows, masks.mask_prob, masks.random_prob) == (True, 1.0, 0.0)
    assert masks.max_predictions == round(0.15 * config.segments.max_length) == 77
    optimizer, schedule = config.recipe.optimizer, config.recipe.schedule
    assert (optimizer.type, optimizer.bias_correction) == ("adamw", False)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.999, 1e-6)
    assert (optimizer.weight_decay, optimizer.clip_norm) == (0.01, 1.0)
    assert (schedule.type, schedule.warmup_steps) == ("bert", 10_000)
    small = name == "deberta_v3_xsmall"
    assert (config.recipe.steps, config.recipe.batch_size) == (1_000_000, 64 if small else 256)
    assert optimizer.learning_rate == (3e-4 if small else 1e-4)
