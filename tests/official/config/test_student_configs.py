"""The configs of students have the published sizes and settings."""

import pytest

from official import config as configs
from official.modeling import weight_counts
from official.utils.errors import UserError
from tests import CONFIGS

FOLDER = CONFIGS / "students"
# Turc et al., 2019: weights by layers and hidden size, pooler included.
WELL_READ = {
    2: (4_385_920, 9_591_040, 22_458_880, 38_603_520),
    4: (4_782_464, 11_170_560, 28_763_648, 52_779_264),
    6: (5_179_008, 12_750_080, 35_068_416, 66_955_008),
    8: (5_575_552, 14_329_600, 41_373_184, 81_130_752),
    10: (5_972_096, 15_909_120, 47_677_952, 95_306_496),
    12: (6_368_640, 17_488_640, 53_982_720, 109_482_240),
}
OTHERS = {
    "distilbert": 66_362_880,
    "distilroberta": 82_118_400,
    "distilgpt2": 81_912_576,
    "tinybert_4_312": 14_350_248,
    "tinybert_6_768": 66_955_008,
    "minilm_6_384": 22_713_216,
    "minilm_12_384": 33_360_000,
}


def load(name, *overrides):
    return configs.load(FOLDER / f"{name}.yaml", overrides)


@pytest.mark.parametrize("layers", WELL_READ)
def test_the_well_read_students_have_the_published_sizes(layers):
    for size, count in zip((128, 256, 512, 768), WELL_READ[layers], strict=True):
        config = load(f"bert_{layers}_{size}")
        assert weight_counts.count(config).encoders == {"encoder": count}, size
        assert config.encoder.num_heads == size // 64 and config.name == f"bert_{layers}_{size}"


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_students_have_the_published_sizes(name):
    config = load(name)
    assert config.name == name
    assert weight_counts.count(config).encoders == {"encoder": OTHERS[name]}


def test_other_forms_of_the_same_students():
    assert weight_counts.count(load("distilbert")).total == 66_985_530
    for key, count in (
        ("distilbert encoder.vocab_size=28996", 65_190_912),
        ("distilbert encoder.vocab_size=119547", 134_734_080),
        ("distilroberta encoder.pooler=false", 81_527_808),
    ):
        name, override = key.split()
        assert weight_counts.count(load(name, override)).encoders == {"encoder": count}


def test_distilbert_is_that_of_the_release():
    config = load("distilbert")
    masked_lm, distillation = config.objectives
    assert (masked_lm.weight, distillation.term_weights) == (
        2.0, {"cross_entropy": 5.0, "cosine": 1.0},
    )  # fmt: skip
    assert (distillation.temperature, distillation.positions) == (2.0, "real")
    assert distillation.square_temperature
    masks, recipe, optimizer = config.corruption, config.recipe, config.recipe.optimizer
    assert (masks.type, masks.mask_rate, masks.exponent) == ("rare_token_masks", 0.15, 0.7)
    assert (masks.mask_prob, masks.random_prob) == (0.8, 0.1)
    assert (recipe.epochs, recipe.batch_size, recipe.accumulation) == (3, 8 * 5 * 50, 50)
    assert (optimizer.learning_rate, optimizer.beta_1, optimizer.beta_2) == (5e-4, 0.9, 0.98)
    assert (optimizer.epsilon, optimizer.weight_decay, optimizer.clip_norm) == (1e-6, 0, 5.0)
    assert (recipe.schedule.type, recipe.schedule.warmup_fraction) == ("xlnet", 0.05)
    assert (config.segments.max_length, config.encoder.segment_types) == (512, 0)


def test_tinybert_and_minilm_are_those_of_the_papers():
    for name, size in (("tinybert_4_312", (312, 4, 1200)), ("tinybert_6_768", (768, 6, 3072))):
        config = load(name)
        encoder, (distillation,) = config.encoder, config.objectives
        assert (encoder.hidden_size, encoder.num_layers, encoder.intermediate_size) == size
        assert distillation.term_weights == {"scores": 1.0, "hidden": 1.0}
        layers = distillation.matched_layers(encoder.num_layers, 12)
        assert list(layers) == list(range(12 // size[1], 13, 12 // size[1]))
        assert (config.recipe.epochs, config.recipe.batch_size) == (3, 256)
        assert weight_counts.count(config).heads == {"distillation": size[0] * 768 + 768}
    for name, (batch, rate, beta) in {
        "minilm_6_384": (512, 4e-4, 0.999),
        "minilm_12_384": (2048, 6e-4, 0.98),
    }.items():
        recipe, (distillation,) = load(name).recipe, load(name).objectives
        assert distillation.term_weights == {"relation": 1.0}
        assert distillation.relations == ("attention", "value")
        assert (recipe.steps, recipe.batch_size) == (400_000, batch)
        assert (recipe.optimizer.learning_rate, recipe.optimizer.beta_2) == (rate, beta)


def test_a_task_step_reads_no_labels():
    for name in ("distillation", "tinybert_layers", "tinybert_logits"):
        config = configs.load(CONFIGS / "finetune" / f"{name}.yaml")
        head, distillation = config.objectives
        assert head.weight == 0 and "label" not in head.needs() | distillation.needs()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({}, "objectives.1: distillation: nothing is matched: give one of cross_entropy"),
        (
            {"cross_entropy": 1.0, "temperature": 0.0},
            "objectives.1.temperature: 0.0 is not above 0",
        ),
        (
            {"hidden": 1.0, "layers": [3, 2]},
            "objectives.1.layers: expected numbers from 1 in ascending order",
        ),
        (
            {"relation": 1.0, "relation_heads": 4},
            "relation_heads: 4 heads have no attention distributions",
        ),
        ({"relation": 1.0, "relations": ["values"]}, "relations: 'values' is not one of attention"),
        (
            {"cosine": 1.0, "teachers": ["a", "b"]},
            "objectives.1.teachers: 2 teachers, but states can be matched with",
        ),
        (
            {"cosine": 1.0, "logits": 1.0, "cache": "c"},
            "objectives.1.cache: contains only the outputs of the teachers",
        ),
        (
            {"cross_entropy": 1.0, "positions": "masked"},
            "distillation needs masked_positions, masked_weights, which neither segments nor",
        ),
        (
            {"cross_entropy": 1.0, "head": "masked_lm"},
            "head: 'masked_lm': the outputs of masked_lm, .* other objectives are classification",
        ),
        (
            {"cross_entropy": 1.0, "head": "clasification"},
            r"head: 'clasification': the outputs .* \(did you mean 'classification'\?\)",
        ),
    ],
)
def test_errors(changes, message):
    raw = {
        "name": "x",
        "objectives": [{"type": "classification"}, {"type": "distillation", **changes}],
        "recipe": {"steps": 1},
    }
    with pytest.raises(UserError, match=message):
        configs.from_dict(raw)


def test_errors_of_objectives_beside_it():
    def refused(objectives, message, **more):
        with pytest.raises(UserError, match=message):
            configs.from_dict(
                {"name": "x", "objectives": objectives, "recipe": {"steps": 1}, **more}
            )

    distillation = {"type": "distillation", "cross_entropy": 1.0}
    refused([distillation, {"type": "classification"}], "put it last")
    refused([{"type": "regression"}, distillation], "a regression has one output: take logits")
    crf = {"type": "token_classification", "num_labels": 2, "crf": True}
    refused([crf, distillation], "transitions of a CRF could be learned: take crf: false")
    refused(
        [{"type": "classification"}, {"type": "regression"}, distillation],
        "head: '' may be one of classification, regression: name one",
    )
    refused(
        [{"type": "distillation", "relation": 1.0}],
        "encoder.type: transformer_xl does not return its attention",
        encoder={"type": "transformer_xl"},
    )
