import numpy as np
import pytest

from official import config
from official.training import schedules
from official.utils.errors import UserError

PEAK, TOTAL, WARM, END = 2.0, 100, 10, 0.1


def rates(kind, steps=TOTAL, warmup=WARM, power=1.0):
    schedule = schedules.Schedule(kind, PEAK, steps, warmup, END, power)
    return np.array([float(schedule(step)) for step in range(steps + 5)])


def decay(progress, power=1.0):
    return PEAK * END + (PEAK - PEAK * END) * (1 - min(max(progress, 0), 1)) ** power


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_bert_replaces_a_decay_that_runs_from_step_0(power):
    wanted = [
        PEAK * step / WARM if step < WARM else decay(step / TOTAL, power)
        for step in range(TOTAL + 5)
    ]
    np.testing.assert_allclose(rates("bert", power=power), wanted, rtol=1e-6)
    # The small jump after the ramp is the release's: the decay has already run for ten steps.
    assert rates("bert")[WARM] == pytest.approx(decay(WARM / TOTAL))
    assert decay(WARM / TOTAL) < PEAK


def test_electra_multiplies_decay_and_ramp():
    wanted = [decay(step / TOTAL) * min(1, step / WARM) for step in range(TOTAL + 5)]
    np.testing.assert_allclose(rates("electra"), wanted, rtol=1e-6)


def test_xlnet_decays_from_the_end_of_the_ramp():
    wanted = [
        PEAK * step / WARM if step < WARM else decay((step - WARM) / (TOTAL - WARM))
        for step in range(TOTAL + 5)
    ]
    np.testing.assert_allclose(rates("xlnet"), wanted, rtol=1e-6)
    assert rates("xlnet")[WARM] == pytest.approx(PEAK)
    assert rates("xlnet")[TOTAL] == pytest.approx(PEAK * END)


@pytest.mark.parametrize(
    "warmup, wanted",
    [
        # decay(step) = 0.2 + 1.8 (1 - step / 100)
        (0, {0: 2.0, 1: 1.982, 2: 1.964, 50: 1.1, 100: 0.2}),
        (1, {0: 0.0, 1: 1.982, 2: 1.964, 50: 1.1, 100: 0.2}),
        (4, {0: 0.0, 1: 1.982 / 4, 2: 1.964 / 2, 3: 1.946 * 0.75, 4: 1.928, 100: 0.2}),
    ],
)
def test_electra_by_hand(warmup, wanted):
    actual = rates("electra", warmup=warmup)
    for step, rate in wanted.items():
        assert actual[step] == pytest.approx(rate, rel=1e-6), step


@pytest.mark.parametrize("kind", ["bert", "electra", "xlnet"])
def test_no_warm_up(kind):
    assert rates(kind, warmup=0)[0] == pytest.approx(PEAK)


def test_a_schedule_may_be_longer_than_the_run():
    longer = config.Schedule("bert", steps=100, warmup_steps=10)
    recipe = config.Recipe(steps=90, schedule=longer)
    whole = config.Recipe(steps=100, schedule=config.Schedule("bert", warmup_steps=10))
    for step in (0, 5, 10, 50, 89):
        rate = float(schedules.make(whole, 100)(step))
        assert float(schedules.make(recipe, 90)(step)) == rate
    assert float(schedules.make(recipe, 90)(90)) == pytest.approx(0.1 * 1e-4)
    with pytest.raises(UserError, match="recipe.schedule.steps: 100 is less than the 101 steps of"):
        schedules.make(recipe, 101)


def test_warm_up_as_a_fraction_of_the_steps():
    recipe = config.Recipe(steps=50, schedule=config.Schedule(warmup_fraction=0.1))
    assert schedules.make(recipe, 50).warmup_steps == 5


def test_inverse_sqrt_is_constant_and_then_falls():
    wanted = [PEAK / np.sqrt(max(step, WARM)) for step in range(TOTAL + 5)]
    np.testing.assert_allclose(rates("inverse_sqrt"), wanted, rtol=1e-6)
    schedule = schedules.Schedule("inverse_sqrt", 1.0, 2**19, 10_000)
    assert float(schedule(0)) == pytest.approx(0.01)
    assert float(schedule(40_000)) == pytest.approx(0.005)


def test_inverse_sqrt_with_a_linear_tail():
    schedule = schedules.Schedule("inverse_sqrt", PEAK, TOTAL, WARM, linear_tail=0.25)
    for step in range(TOTAL + 5):
        factor = min(1, max(0, (TOTAL - step) / 25))
        wanted = PEAK / np.sqrt(max(step, WARM)) * factor
        assert float(schedule(step)) == pytest.approx(wanted, rel=1e-6), step


def test_constant_after_a_ramp():
    wanted = [PEAK * min(1, step / WARM) for step in range(TOTAL + 5)]
    np.testing.assert_allclose(rates("constant"), wanted, rtol=1e-6)
    np.testing.assert_allclose(rates("constant", warmup=0), PEAK)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"type": "constant", "power": 2.0}, "power: has no meaning for the type constant"),
        ({"type": "inverse_sqrt", "end_ratio": 0.1}, "end_ratio: has no meaning for the type inv"),
        ({"type": "bert", "linear_tail": 0.1}, "linear_tail: has no meaning for the type bert"),
        ({"type": "inverse_sqrt", "linear_tail": 1.5}, "linear_tail: 1.5 is not between 0 and 1"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        config.Schedule(**settings)
