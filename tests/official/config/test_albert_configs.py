"""ALBERT's configs are those of its paper and its release (Lan et al., 2020)."""

import re

import pytest

from official import config as configs
from tests import CONFIGS

# Hidden size, layers, heads, feed-forward size, dropout.
SIZES = {
    "base": (768, 12, 12, 3072, 0.1),
    "large": (1024, 24, 16, 4096, 0.0),
    "xlarge": (2048, 24, 16, 8192, 0.0),
    "xxlarge": (4096, 12, 64, 16384, 0.0),
}


@pytest.mark.parametrize("name", SIZES)
def test_recipe(name):
    config = configs.load(CONFIGS / "pretrain" / f"albert_{name}.yaml")
    encoder, recipe = config.encoder, config.recipe
    assert config.name == f"albert_{name}"
    assert (
        encoder.hidden_size,
        encoder.num_layers,
        encoder.num_heads,
        encoder.intermediate_size,
        encoder.dropout,
    ) == SIZES[name]
    assert encoder.attention_dropout == encoder.dropout
    assert (encoder.embedding_size, encoder.vocab_size, encoder.max_positions) == (128, 30000, 512)
    assert (encoder.layer_groups, encoder.inner_layers) == (1, 1)
    assert encoder.activation == "gelu_tanh" and encoder.norm_epsilon == 1e-12
    assert (recipe.steps, recipe.batch_size, recipe.schedule.warmup_steps) == (125_000, 4096, 3125)
    assert recipe.batch_size % recipe.accumulation == 0
    optimizer = recipe.optimizer
    assert (optimizer.type, optimizer.learning_rate, optimizer.epsilon) == ("lamb", 1.76e-3, 1e-6)
    assert (optimizer.no_adaptation, optimizer.bias_correction) == (None, False)
    assert (config.segments.relation, config.segments.max_length) == ("sentence_order", 512)
    assert not config.segments.random_negatives
    assert (config.corruption.unit, config.corruption.max_ngram) == ("ngram", 3)
    assert config.corruption.max_predictions == round(0.15 * 512)
    assert config.corruption.word_starts == "albert"
    assert [o.type for o in config.objectives] == ["masked_lm", "sentence_pair"]
    assert config.objectives[1].relation == "sentence_order"


def test_the_overrides_for_fine_tuning_are_taken():
    text = (CONFIGS / "pretrain" / "albert_base.yaml").read_text()
    overrides = re.findall(r"--override=(\S+)", text)
    assert len(overrides) == 6
    recipe = configs.load(CONFIGS / "finetune" / "sst2.yaml", overrides).recipe
    assert (recipe.steps, recipe.batch_size) == (20_935, 32)
    assert (recipe.optimizer.learning_rate, recipe.schedule.warmup_steps) == (1e-5, 1256)
    assert (recipe.optimizer.type, recipe.optimizer.bias_correction) == ("adamw", False)
    assert (recipe.epochs, recipe.schedule.warmup_fraction) == (0, 0)
