"""XLNet's configs are those of its paper and its release (Yang et al., 2019)."""

import re

import pytest

from official import config as configs
from official.config.encoders import TransformerXLConfig
from official.modeling.encoders import transformer_xl
from tests import CONFIGS

PRETRAIN = CONFIGS / "pretrain"
# Hidden size, layers, heads, feed-forward size.
SIZES = {"base": (768, 12, 12, 3072), "large": (1024, 24, 16, 4096)}


@pytest.mark.parametrize("name", SIZES)
def test_recipe(name):
    config = configs.load(PRETRAIN / f"xlnet_{name}.yaml")
    encoder, recipe, corruption = config.encoder, config.recipe, config.corruption
    assert config.name == f"xlnet_{name}"
    assert (
        encoder.hidden_size,
        encoder.num_layers,
        encoder.num_heads,
        encoder.intermediate_size,
    ) == SIZES[name]
    assert (encoder.head_size, encoder.vocab_size) == (64, 32000)
    rates = (encoder.dropout, encoder.attention_dropout, encoder.inner_dropout)
    assert rates == (0.1, 0.1, 0.0)
    assert (encoder.activation, encoder.norm_epsilon) == ("gelu_tanh", 1e-12)
    assert (corruption.k, corruption.num_predict, corruption.max_span) == (6, 85, 5)
    assert (corruption.unit, corruption.perm_size) == ("token_span", 256)
    assert corruption.word_starts == "xlnet"
    segments = config.segments
    assert (segments.format, segments.max_length, segments.backward) == ("stream", 512, True)
    assert segments.rows == recipe.batch_size == 8192
    # Two segments, half of the time from different contexts, and nobody is asked which.
    assert (segments.label, segments.random_next_prob) == ("next_sentence_label", 0.5)
    assert segments.reuse_length == encoder.reuse_length == 256
    # The release's command: mem_len, and num_passes of the text.
    assert (encoder.memory_length, segments.duplicates) == (384, 20)
    assert (recipe.steps, recipe.schedule.warmup_steps) == (500_000, 40_000)
    assert (recipe.schedule.type, recipe.schedule.end_ratio) == ("xlnet", 0.001)
    optimizer = recipe.optimizer
    assert (optimizer.learning_rate, optimizer.epsilon) == (4e-4, 1e-6)
    assert (optimizer.weight_decay, optimizer.clip_norm) == (0.01, 1.0)
    assert [objective.type for objective in config.objectives] == ["permutation_lm"]

    check_decay(optimizer)
    assert not decays(optimizer, "permutation_lm/output_bias")


def decays(optimizer, path):
    return not any(re.search(pattern, path) for pattern in optimizer.no_decay)


def check_decay(optimizer):
    """The release: biases that stand in for a query decay, those of maps and norms do not."""
    encoder = transformer_xl.Encoder(
        TransformerXLConfig(
            vocab_size=9, hidden_size=4, num_layers=1, num_heads=2, intermediate_size=4, pooler=True
        )
    )
    encoder.build()
    paths = {variable.path for variable in encoder.weights}
    actual = {path for path in paths if not decays(optimizer, path)}
    norms = {
        f"encoder/layer_0/{name}_norm/{variable}"
        for name in ("attention", "feed_forward")
        for variable in ("scale", "offset")
    }
    maps = {"layer_0/feed_forward/inner", "layer_0/feed_forward/outer", "pooler"}
    assert actual == norms | {f"encoder/{name}/bias" for name in maps}
    biases = {path for path in paths if "/biases/" in path}
    assert len(biases) == 3 and not biases & actual


@pytest.mark.parametrize("name", ["xlnet", "xlnet_squad"])
def test_fine_tuning_decays_the_same(name):
    config = configs.load(CONFIGS / "finetune" / f"{name}.yaml")
    check_decay(config.recipe.optimizer)
    for path in ("classification/output/bias", "span_answer/start/bias", "span_answer/end_norm/x"):
        assert not decays(config.recipe.optimizer, path)


def test_fine_tuning():
    """What the authors trained GLUE's tasks with, by the lines of overrides in the file."""
    path = CONFIGS / "finetune" / "xlnet.yaml"
    lines = [re.findall(r"--override=(\S+)", line) for line in path.read_text().splitlines()]
    actual = []
    for overrides in ([], *filter(None, lines)):
        config = configs.load(path, overrides)
        recipe, optimizer = config.recipe, config.recipe.optimizer
        (objective,) = config.objectives
        assert (config.encoder, config.segments, config.corruption) == (None, None, None)
        assert (objective.pooling, objective.dropout) == ("pooled", 0.1)
        assert (recipe.init_weights, optimizer.layer_decay) == ("encoder", 1.0)
        assert (optimizer.weight_decay, optimizer.clip_norm) in ((0.0, 1.0), (0.01, 1.0))
        # Without weight decay it is TensorFlow's own Adam.
        plain = not optimizer.weight_decay
        assert (optimizer.epsilon, optimizer.bias_correction) == (1e-8 if plain else 1e-6, plain)
        assert (recipe.schedule.type, recipe.schedule.end_ratio) == ("xlnet", 0.0)
        actual.append(
            (
                objective.type, recipe.batch_size, optimizer.learning_rate,
                recipe.steps, recipe.schedule.warmup_steps, optimizer.weight_decay,
            )
        )  # fmt: skip
    assert actual == [
        ("classification", 32, 2e-5, 10_000, 1000, 0),
        ("classification", 128, 3e-5, 10_000, 1000, 0),
        ("classification", 128, 3e-5, 14_000, 1000, 0),
        ("classification", 128, 3e-5, 3000, 500, 0),
        ("classification", 32, 5e-5, 800, 200, 0),
        ("classification", 32, 3e-5, 800, 200, 0),
        ("regression", 32, 5e-5, 1200, 120, 0),
        ("classification", 128, 1e-5, 10_000, 1000, 0.01),
    ]
