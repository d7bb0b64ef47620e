"""The configs of the systems whose difference to BERT is what they hide."""

import math

import pytest

from official import config
from official.modeling import weight_counts
from official.modeling.model import Model
from official.utils.errors import UserError
from tests import CONFIGS

FOLDER = CONFIGS


@pytest.mark.parametrize(
    "name, weights", [("spanbert_large", 333_579_264), ("ernie_base", 99_866_112)]
)
def test_sizes(name, weights):
    read = config.load(FOLDER / "pretrain" / f"{name}.yaml")
    assert weight_counts.count(read).encoders == {"encoder": weights}


def test_spanbert_is_that_of_the_paper():
    for size in ("base", "large"):
        read = config.load(FOLDER / "pretrain" / f"spanbert_{size}.yaml")
        masks, recipe, optimizer = read.corruption, read.recipe, read.recipe.optimizer
        assert (read.segments.format, read.segments.short_seq_prob) == ("doc_sentences", 0)
        assert (masks.unit, masks.span_prob, masks.max_span, masks.count) == ("span", 0.2, 10, "up")
        assert (masks.action, masks.random_tokens) == ("unit", "unigram")
        assert (masks.mask_rate, masks.mask_prob, masks.random_prob) == (0.15, 0.8, 0.1)
        assert masks.max_predictions == math.ceil(0.15 * 510)
        assert (recipe.steps, recipe.batch_size) == (2_400_000, 256)
        assert (optimizer.learning_rate, optimizer.epsilon) == (1e-4, 1e-8)
        assert (optimizer.weight_decay, optimizer.no_decay, optimizer.clip_norm) == (0.1, (), 1.0)
        assert (recipe.schedule.type, recipe.schedule.warmup_steps) == ("xlnet", 10_000)
        assert (read.encoder.vocab_size, read.segments.label) == (28_996, None)  # cased, no NSP
        kinds = [objective.type for objective in read.objectives]
        assert kinds == ["masked_lm", "span_boundary"]
        assert (read.objectives[1].max_targets, read.objectives[1].offset_size) == (15, 200)
        assert [objective.weight for objective in read.objectives] == [1.0, 1.0]


def test_ernie_goes_through_three_stages():
    path = FOLDER / "pretrain" / "ernie_base.yaml"
    for unit in ("token", "phrase", "entity"):
        masks = config.load(path, [f"corruption.unit={unit}"]).corruption
        assert (masks.unit, masks.count, masks.mask_rate) == (unit, "each", 0.15)
        assert (masks.mask_prob, masks.random_prob, masks.action) == (0.8, 0.1, "token")
    # Six standard deviations above what is hidden of 510 tokens, each by itself.
    assert masks.max_predictions > 510 * 0.15 + 6 * math.sqrt(510 * 0.15 * 0.85)


@pytest.mark.parametrize("name", ["spanbert", "ernie"])
def test_smoke_configs_build(name):
    model = Model(config.load(FOLDER / "smoke" / f"{name}.yaml", ["encoder.vocab_size=50"]))
    prefixes = {path.partition("/")[0] for path in model.variables_by_path()}
    heads = {"spanbert": "span_boundary", "ernie": "next_sentence"}
    assert prefixes == {"encoder", "masked_lm", heads[name]}


def test_settings_without_room_are_named():
    path = FOLDER / "smoke" / "spanbert.yaml"
    with pytest.raises(UserError) as caught:
        config.load(path, ["segments.max_length=32"])
    assert str(caught.value) == (
        f"{path}:7: corruption.max_span: 10 words have at least 10 tokens, and at most 5 are "
        "predicted in a sequence (0.15 × 30 tokens = 4.5): lower max_span to 5, or raise mask_rate "
        "or max_length"
    )
