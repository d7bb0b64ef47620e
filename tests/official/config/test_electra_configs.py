"""ELECTRA's configs are those of its paper and its release (Clark et al., 2020)."""

import re

import pytest

from official import config as configs
from tests import CONFIGS

# Table 6. Embedding, hidden and feed-forward size, heads, layers; the same of the generator;
# share of masked tokens; length, batch, steps, learning rate.
TABLE_6 = {
    "small": (
        (128, 256, 1024, 4, 12), (128, 64, 256, 1, 12), 0.15, (128, 128, 1_000_000, 5e-4),
    ),
    "base": (
        (768, 768, 3072, 12, 12), (768, 256, 1024, 4, 12), 0.15, (512, 256, 766_000, 2e-4),
    ),
    "large": (
        (1024, 1024, 4096, 16, 24), (1024, 256, 1024, 4, 24), 0.25, (512, 2048, 400_000, 2e-4),
    ),
}  # fmt: skip


def table_sizes(encoder):
    return (
        encoder.embedding_size or encoder.hidden_size,
        encoder.hidden_size,
        encoder.intermediate_size,
        encoder.num_heads,
        encoder.num_layers,
    )


@pytest.mark.parametrize("name", TABLE_6)
def test_recipe(name):
    config = configs.load(CONFIGS / "pretrain" / f"electra_{name}.yaml")
    sizes, small, rate, run = TABLE_6[name]
    encoder, masks, recipe = config.encoder, config.corruption, config.recipe
    assert config.name == f"electra_{name}"
    assert table_sizes(encoder) == sizes
    assert table_sizes(config.objectives[0].network(encoder)) == small
    assert (encoder.vocab_size, encoder.max_positions, encoder.segment_types) == (30_522, 512, 2)
    assert (encoder.dropout, encoder.attention_dropout) == (0.1, 0.1)
    assert (encoder.activation, encoder.norm_epsilon, encoder.pooler) == ("gelu", 1e-12, False)
    segments = config.segments
    assert (segments.format, segments.short_seq_prob, segments.single_prob) == ("halves", 0.05, 0.1)
    # 85% become [MASK], 15% stay as they are, none becomes a random token.
    assert (masks.unit, masks.mask_rate, masks.count) == ("token", rate, "nearest")
    assert (masks.mask_prob, masks.random_prob, masks.replacement) == (0.85, 0.0, True)
    assert masks.max_predictions == int((rate + 0.005) * config.segments.max_length)
    fill, question = config.objectives
    assert (fill.sharing, fill.weight, fill.temperature, fill.frozen) == (
        "embeddings", 1.0, 1.0, False,
    )  # fmt: skip
    assert (question.tokens, question.weight, question.adversarial_weight) == ("all", 50.0, 0.0)
    optimizer, schedule = recipe.optimizer, recipe.schedule
    assert (
        config.segments.max_length, recipe.batch_size, recipe.steps, optimizer.learning_rate,
    ) == run  # fmt: skip
    assert (optimizer.type, optimizer.bias_correction) == ("adamw", False)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.999, 1e-6)
    assert (optimizer.weight_decay, optimizer.clip_norm) == (0.01, 1.0)
    assert (schedule.type, schedule.warmup_steps, schedule.end_ratio) == ("electra", 10_000, 0)


def test_fine_tuning():
    """Table 7: rates fall by 0.8 a layer in the small and base model, by 0.9 in the large one."""
    path = CONFIGS / "finetune" / "electra.yaml"
    lines = [re.findall(r"--override=(\S+)", line) for line in path.read_text().splitlines()]
    actual = []
    for overrides in ([], *filter(None, lines)):
        config = configs.load(path, overrides)
        recipe, optimizer = config.recipe, config.recipe.optimizer
        (objective,) = config.objectives
        kind = objective.type
        actual.append((kind, optimizer.learning_rate, optimizer.layer_decay, recipe.epochs))
        assert (config.encoder, config.segments, config.corruption) == (None, None, None)
        assert (objective.pooling, objective.dropout) == ("first", 0.1)
        assert (recipe.batch_size, recipe.init_weights) == (32, "encoder")
        assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.999, 1e-6)
        assert (optimizer.weight_decay, optimizer.clip_norm) == (0.0, 1.0)
        assert (recipe.schedule.type, recipe.schedule.warmup_fraction) == ("electra", 0.1)
    assert actual == [
        ("classification", 1e-4, 0.8, 3),
        ("classification", 3e-4, 0.8, 3),
        ("classification", 5e-5, 0.9, 3),
        ("classification", 1e-4, 0.8, 10),
        ("regression", 1e-4, 0.8, 10),
    ]


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
    base = configs.load(CONFIGS / "pretrain" / "electra_base.yaml")
    settings = configs.load(CONFIGS / "pretrain" / f"electra_base_{name}.yaml")
    assert settings.name == f"electra_base_{name}"
    values = {key: ours for key, ours, _ in configs.differences(settings, base)}
    # Keys that only the base's own objectives have are gone, as they must be.
    changed = {key for key, value in values.items() if value is not None} - {"name"}
    assert changed == ABLATIONS[name]
