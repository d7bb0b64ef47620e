"""RoBERTa's configs are those of its paper and its release (Liu et al., 2019)."""

import dataclasses
import re

import numpy as np
import pytest

from official import config as configs
from official.modeling.layers.embeddings import Embeddings
from official.modeling.layers.random import Initializers
from tests import CONFIGS

FOLDER = CONFIGS / "pretrain"
# Table 9: hidden size, layers, heads, feed-forward size; learning rate, steps of warm-up.
TABLE_9 = {
    "base": ((768, 12, 12, 3072), (6e-4, 24_000)),
    "large": ((1024, 24, 16, 4096), (4e-4, 30_000)),
}


@pytest.mark.parametrize("name", TABLE_9)
def test_recipe(name):
    config = configs.load(FOLDER / f"roberta_{name}.yaml")
    encoder, recipe, masks = config.encoder, config.recipe, config.corruption
    sizes, (rate, warmup) = TABLE_9[name]
    assert config.name == f"roberta_{name}"
    assert (
        encoder.hidden_size,
        encoder.num_layers,
        encoder.num_heads,
        encoder.intermediate_size,
    ) == sizes
    assert (encoder.vocab_size, encoder.norm_epsilon, encoder.activation) == (50_265, 1e-5, "gelu")
    assert (encoder.position_offset, encoder.max_positions, encoder.segment_types) == (2, 512, 1)
    assert (config.segments.format, config.segments.label) == ("full_sentences", None)
    assert config.segments.short_seq_prob == 0 and not config.segments.static_masks
    assert (masks.unit, masks.mask_rate, masks.count) == ("token", 0.15, "random")
    assert (masks.mask_prob, masks.random_prob, masks.random_tokens) == (0.8, 0.1, "non_special")
    # 76.8 and u in [0, 1) come to 76 or 77.
    assert masks.max_predictions == 77
    assert [objective.type for objective in config.objectives] == ["masked_lm"]
    assert (recipe.steps, recipe.batch_size) == (500_000, 8192)
    optimizer, schedule = recipe.optimizer, recipe.schedule
    assert (optimizer.learning_rate, schedule.type, schedule.warmup_steps) == (
        rate, "xlnet", warmup,
    )  # fmt: skip
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.98, 1e-6)
    assert (optimizer.weight_decay, optimizer.no_decay) == (0.01, ())
    assert optimizer.clip_norm == 0 and optimizer.bias_correction


def test_the_other_batches_of_table_3():
    text = (FOLDER / "roberta_base.yaml").read_text()
    names = re.findall(r"recipe\.[a-z_.]+[a-z]", text.partition("Table 3")[2].partition("(2K")[0])
    rows = re.findall(r"^#   (\d+) (\d+) (\S+)$", text, re.MULTILINE)
    actual = []
    for row in rows:
        overrides = [f"{name}={value}" for name, value in zip(names, row, strict=True)]
        recipe = configs.load(FOLDER / "roberta_base.yaml", overrides).recipe
        actual.append((recipe.batch_size, recipe.steps, recipe.optimizer.learning_rate))
    assert actual == [(256, 1_000_000, 1e-4), (2048, 125_000, 7e-4), (8192, 31_000, 1e-3)]


def test_positions_begin_at_the_third_of_514_rows():
    encoder = configs.load(FOLDER / "roberta_base.yaml").encoder
    parts = dataclasses.replace(
        encoder.embeddings, vocab_size=7, size=2, hidden_size=2, norm=None, dropout=0.0
    )
    layer = Embeddings(parts, Initializers("zeros"), name="embeddings")
    layer.build()
    assert layer.position.table.shape == (514, 2) and layer.segment.table.shape == (1, 2)
    layer.position.table.assign([[i, -i] for i in range(514)])
    built = layer(np.array([[5, 6, 1], [6, 1, 1]]))[:, :, 0]
    assert built.numpy().tolist() == [[2, 3, 4], [2, 3, 4]]
