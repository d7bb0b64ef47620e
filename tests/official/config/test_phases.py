"""The configs of the phases of a run."""

import pytest

from official import config as configs
from official.utils.errors import UserError
from tests import ROOT, small

CHANGES = {
    "segments.max_length": 16,
    "corruption.max_predictions": 3,
    "recipe.batch_size": 4,
    "recipe.optimizer.learning_rate": 0.5,
    "objectives.masked_lm.weight": 2.0,
    "seed": 7,
}
PHASES = [{"share": 0.25, "change": CHANGES}, {"share": 0.75}]


def phases(*given, **changes):
    return configs.phases(small.config(phases=list(given), **changes))


def test_a_run_without_phases_is_its_own():
    config = small.config()
    assert configs.phases(config) == [config]
    assert "phases" not in configs.to_dict(config)


def test_phases_change_settings_and_share_the_steps_and_the_schedule():
    first, last = phases(*PHASES, recipe__steps=10)
    assert [phase.recipe.steps for phase in (first, last)] == [2, 10]
    assert [phase.recipe.schedule.steps for phase in (first, last)] == [10, 10]
    assert [phase.recipe.init_weights for phase in (first, last)] == ["encoder", "run"]
    assert [phase.name for phase in (first, last)] == ["tiny_phase_1", "tiny"]
    assert (first.segments.max_length, first.corruption.max_predictions, first.seed) == (16, 3, 7)
    assert (first.recipe.batch_size, first.recipe.optimizer.learning_rate) == (4, 0.5)
    assert first.objectives[0].weight == 2.0
    # Nothing else differs, and the last one is the config itself.
    config = small.config(recipe__steps=10, recipe__schedule={"steps": 10})
    assert {key for key, *_ in configs.differences(last, config)} == {"recipe.init_weights"}
    named = {"objectives.0.weight" if k.startswith("objectives") else k for k in CHANGES}
    others = {"name", "recipe.steps"}
    assert {key for key, *_ in configs.differences(first, config)} == named | others


def test_shares_have_any_factor():
    both = phases({"share": 21}, {"share": 7}, recipe__steps=40)
    assert [phase.recipe.steps for phase in both] == [30, 40]


def test_a_schedule_may_be_longer_than_all_phases():
    both = phases({"share": 0.5}, {"share": 0.5}, recipe__schedule={"steps": 20})
    assert [phase.recipe.schedule.steps for phase in both] == [20, 20]


@pytest.mark.parametrize(
    "given, changes, message",
    [
        ([{"share": 0.0}], {}, "phases.0.share: 0.0 is not above 0"),
        ([{"share": 1.0}], {"recipe__steps": 0, "recipe__epochs": 1.0}, "recipe.steps is missing"),
        (
            [{"share": 1.0, "change": {"recipe.schedule.type": "xlnet"}}], {},
            "phases.0.change: recipe.schedule.type: this key belongs to the whole run: remove it",
        ),
        ([{"share": 1.0, "change": {"recipe.step": 3}}], {}, "recipe.step: unknown key (did you"),
        ([{"share": 1.0, "change": {"objectives.2.weight": 3}}], {}, "change: no item '2': there"),
        (
            [{"share": 0.5}, {"share": 0.5, "change": {"segments.max_length": 64}}], {},
            "phases.1: segments.max_length: 64 tokens do not fit encoder.max_positions: 32",
        ),
        ([{"share": 1.0, "chance": {}}], {}, "phases.0.chance: unknown key (did you mean 'change'"),
        (
            [{"share": 0.5}, {"share": 0.01}, {"share": 0.5}], {},
            "phases.1.share: 0.01 of 6 steps is less than a step: raise it or recipe.steps",
        ),
        (
            PHASES, {"recipe__patience": 2, "recipe__eval_every": 1},
            "phases.0: recipe.patience: 2: the next phase begins after the last step",
        ),
        ([{"share": 1.0, "data_shares": [0, 0]}], {}, "data_shares: 0.0, 0.0: none may be neg"),
        ([{"share": 1.0, "data_shares": [2, -1]}], {}, "data_shares: 2.0, -1.0: none may be"),
    ],
)  # fmt: skip
def test_what_is_refused(given, changes, message):
    with pytest.raises(UserError) as caught:
        phases(*given, **changes)
    assert message in str(caught.value)


def test_a_message_names_the_line(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(
        f"base: {ROOT}/configs/pretrain/bert_mini.yaml\nname: x\nphases:\n"
        "- {share: 0.5}\n- share: 0.5\n  change: {segments.max_length: 256}\n"
    )
    with pytest.raises(UserError, match=r"run.yaml:5: phases.1: segments.max_length: 256 tokens"):
        configs.load(path)
