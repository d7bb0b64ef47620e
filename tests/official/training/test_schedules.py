"""Learning rates over the steps, and by the layer of a variable."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from official import config
from official import config as configs
from official.config.encoders import (
    Convolution,
    Disentangled,
    TransformerConfig,
    TransformerXLConfig,
)
from official.config.heads import ClassificationConfig, Mix, TokenClassificationConfig
from official.config.objectives import MaskedLMConfig
from official.modeling.model import Model
from official.training import optimizers, schedules
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


def test_a_run_that_ends_in_its_warm_up_says_so():
    short = config.Schedule(warmup_steps=1000)
    recipe = config.Recipe(steps=90, schedule=short)
    assert schedules.shortfall(recipe, 300).startswith(
        f"the run has 300 steps and its warm-up 1,000: the learning rate ends at 30.0% of "
        f"{recipe.optimizer.learning_rate:g}; give "
    )
    assert schedules.shortfall(recipe, 1000) is None
    for other in (
        config.Schedule(warmup_fraction=0.1),
        config.Schedule(warmup_steps=1000, steps=5000),
        config.Schedule(warmup_steps=1000, type="inverse_sqrt"),
    ):
        assert schedules.shortfall(dataclasses.replace(recipe, schedule=other), 300) is None
    still = dataclasses.replace(recipe.optimizer, learning_rate=0.0)
    assert schedules.shortfall(dataclasses.replace(recipe, optimizer=still), 300) is None


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


def test_trapezoidal_ends_with_one_minus_the_root():
    def schedule(end=0.001):
        return schedules.Schedule(
            "trapezoidal", PEAK, TOTAL, WARM, end_ratio=end, decay_fraction=0.25
        )

    for step in range(TOTAL + 5):
        share = min(1, step / WARM)
        if step >= 75:
            share = 0.001 + 0.999 * (1 - np.sqrt(min(1, (step - 75) / 25)))
        assert float(schedule()(step)) == pytest.approx(PEAK * share, rel=1e-5), step
    # The worked values of the release's formula, n / N by 0.001 + 0.999 (1 - sqrt(n / N)).
    decay = schedules.Schedule("trapezoidal", 1.0, 10_000, end_ratio=0.001, decay_fraction=1.0)
    worked = {100: 0.9001, 1000: 0.6841, 2500: 0.5005, 5000: 0.2936, 10_000: 0.001}
    for step, rate in worked.items():
        wanted = pytest.approx(0.001 + 0.999 * (1 - (step / 10_000) ** 0.5), rel=1e-5)
        assert float(decay(step)) == wanted
        assert wanted == pytest.approx(rate, abs=1e-4)


def test_cosine_ends_with_a_flat_share():
    cosine = schedules.Schedule("cosine", PEAK, TOTAL, WARM, END, flat_fraction=0.2)
    for step in range(TOTAL + 5):
        x = min(1, (step - WARM) / (80 - WARM))
        share = step / WARM if step < WARM else END + (1 - END) * (1 + np.cos(np.pi * x)) / 2
        assert float(cosine(step)) == pytest.approx(PEAK * share, rel=1e-5), step
    # The worked values of a whole cosine: the quarters of its steps.
    whole = schedules.Schedule("cosine", 1.0, 1000)
    for step, rate in {0: 1.0, 250: 0.8535534, 500: 0.5, 750: 0.1464466, 1000: 0.0}.items():
        assert float(whole(step)) == pytest.approx(rate, abs=1e-6)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"type": "constant", "power": 2.0}, "power: not supported for the type constant"),
        ({"type": "inverse_sqrt", "end_ratio": 0.1}, "end_ratio: not supported for the type inv"),
        ({"type": "bert", "linear_tail": 0.1}, "linear_tail: not supported for the type bert"),
        (
            {"type": "constant", "decay_fraction": 0.1},
            "decay_fraction: not supported for",
        ),
        ({"type": "trapezoidal", "decay_fraction": 2.0}, "decay_fraction: 2.0 is not between 0 an"),
        ({"type": "trapezoidal", "power": 2.0}, "power: not supported for the type trapezoidal"),
        ({"type": "bert", "flat_fraction": 0.1}, "flat_fraction: not supported for the type bert"),
        ({"type": "cosine", "flat_fraction": -0.1}, "flat_fraction: -0.1 is not between 0 and 1"),
        ({"type": "inverse_sqrt", "linear_tail": 1.5}, "linear_tail: 1.5 is not between 0 and 1"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        config.Schedule(**settings)


ENCODER = TransformerConfig(
    vocab_size=11,
    hidden_size=4,
    num_layers=3,
    num_heads=2,
    intermediate_size=6,
    max_positions=5,
    embedding_size=2,
)


def make(objective=None, **changes):
    objective = objective or ClassificationConfig(num_labels=2)
    config = types.SimpleNamespace(
        seed=0, encoder=dataclasses.replace(ENCODER, **changes), objectives=(objective,)
    )
    return Model(config)


def by_part(model, decay, whole="head"):
    """Each part's factor; that all its variables have it is checked."""
    actual = {}
    for path, factor in schedules.layer_factors(model, decay, whole).items():
        names = path.removeprefix("model/").split("/")
        part = "/".join(names[: 2 if names[0] == "encoder" else 1])
        assert actual.setdefault(part, factor) == factor, path
    return actual


def test_the_rates_of_a_three_layer_encoder():
    assert by_part(make(), 0.5) == {
        "encoder/embeddings": 0.5**5,
        "encoder/layer_0": 0.5**4,
        "encoder/layer_1": 0.5**3,
        "encoder/layer_2": 0.5**2,
        "encoder/pooler": 0.5,
        "classification": 1.0,
    }


def test_a_head_of_several_layers_has_the_full_rate():
    head = TokenClassificationConfig(num_labels=3, crf=True, bilstm=2, mix=Mix())
    model = make(head, pooler=False)
    assert by_part(model, 0.5) == {
        "encoder/embeddings": 0.5**5,
        "encoder/layer_0": 0.5**4,
        "encoder/layer_1": 0.5**3,
        "encoder/layer_2": 0.5**2,
        "token_classification": 1.0,
    }
    paths = [path.removeprefix("model/") for path in schedules.layer_factors(model, 0.5)]
    parts = {path.split("/")[1] for path in paths if path.startswith("token_classification")}
    assert parts == {"mix", "bilstm", "output", "crf"}


def test_electra_base_and_large_have_the_rates_of_its_release():
    # rate * decay ** (layers + 2 - depth): the first layer of twelve, the first of twenty-four.
    tiny = dict(hidden_size=2, num_heads=1, intermediate_size=2, pooler=False)
    base = by_part(make(MaskedLMConfig(), num_layers=12, **tiny), 0.8)
    large = by_part(make(MaskedLMConfig(), num_layers=24, **tiny), 0.9)
    assert base["encoder/embeddings"] == pytest.approx(0.04398, rel=1e-4)
    assert base["encoder/layer_0"] == pytest.approx(0.054976, rel=1e-4)
    assert base["encoder/layer_11"] == pytest.approx(0.64)
    assert large["encoder/layer_0"] == pytest.approx(0.9**25)
    assert large["masked_lm"] == base["masked_lm"] == 1


def test_a_shared_layer_has_the_rate_of_its_last_run():
    actual = by_part(make(num_layers=4, layer_groups=2, inner_layers=2), 0.5)
    # Eight runs: group 0 has numbers 1 to 4, group 1 has 5 to 8.
    assert actual == {
        "encoder/embeddings": 0.5**10,
        "encoder/group_0_layer_0": 0.5 ** (10 - 3),
        "encoder/group_0_layer_1": 0.5 ** (10 - 4),
        "encoder/group_1_layer_0": 0.5 ** (10 - 7),
        "encoder/group_1_layer_1": 0.5 ** (10 - 8),
        "encoder/pooler": 0.5,
        "classification": 1.0,
    }


def test_a_final_norm_stands_above_the_layers():
    actual = by_part(make(MaskedLMConfig(), norm="pre", pooler=False), 0.5)
    assert actual["encoder/final_norm"] == 0.5


def test_what_all_layers_read_has_the_depth_of_the_last_one():
    options = {"num_layers": 3, "disentangled": Disentangled(), "convolution": Convolution()}
    actual = by_part(make(**options), 0.5)
    assert actual["encoder/distance_table"] == actual["encoder/layer_2"] == 0.5**2
    assert actual["encoder/convolution"] == actual["encoder/layer_0"] == 0.5**4
    assert by_part(make(relative_buckets=8), 0.5)["encoder/relative_bias"] == 0.5**2


XL = TransformerXLConfig(
    vocab_size=11, hidden_size=4, num_layers=3, num_heads=2, intermediate_size=6, pooler=True
)


@pytest.mark.parametrize("untied", [True, False])
def test_the_rates_of_an_xlnet(untied):
    config = types.SimpleNamespace(
        seed=0,
        encoder=dataclasses.replace(XL, untie_biases=untied),
        objectives=(ClassificationConfig(num_labels=2),),
    )
    expected = {
        "encoder/embeddings": 0.75**5,
        "encoder/layer_0": 0.75**4,
        "encoder/layer_1": 0.75**3,
        "encoder/layer_2": 0.75**2,
        "encoder/pooler": 0.75,
        "classification": 1.0,
    }
    if not untied:  # Every layer has them, the last one too.
        expected["encoder/biases"] = 0.75**2
    assert by_part(Model(config), 0.75) == expected
    # As its release counts: l for the last layer and for the head, l a, l a², ... below.
    counted = {path: min(1.0, factor / 0.75**2) for path, factor in expected.items()}
    assert by_part(Model(config), 0.75, "last_layer") == pytest.approx(counted)
    rates = [counted[f"encoder/layer_{i}"] for i in (2, 1, 0)]
    assert [*rates, counted["classification"]] == pytest.approx([1, 0.75, 0.75**2, 1])


def steps(type_, layer_decay, model):
    """How far five updates take the variables, by path."""
    recipe = configs.Recipe(
        steps=100,
        optimizer=configs.Optimizer(
            type=type_, learning_rate=1e-3, layer_decay=layer_decay, clip_norm=0.0
        ),
    )
    optimizer = optimizers.make(recipe, 100, model)
    variables = model.trainable_variables
    start = [variable.numpy() for variable in variables]
    rng = np.random.default_rng(0)
    for _ in range(5):
        optimizer.apply(
            [tf.constant(rng.normal(size=v.shape), tf.float32) for v in variables], variables
        )
    return {v.path: v.numpy() - s for v, s in zip(variables, start, strict=True)}


@pytest.mark.parametrize("type_", ["adamw", "lamb"])
def test_the_rate_is_scaled_and_not_the_gradient(type_):
    plain = steps(type_, 1.0, make())
    model = make()
    scaled = steps(type_, 0.5, model)
    factors = schedules.layer_factors(model, 0.5)
    assert set(plain) == set(factors)
    assert min(factors.values()) == 0.5**5
    for path, factor in factors.items():
        assert np.abs(plain[path]).max() > 1e-5
        # Decay and trust ratio see other weights after the first update, hence the tolerance.
        difference = np.abs(scaled[path] - factor * plain[path]).max()
        assert difference < 0.02 * factor * np.abs(plain[path]).max() + 1e-7, path


def test_a_variable_without_a_rate_is_an_error():
    model = make()
    optimizer = optimizers.AdamW(1e-3, rate_factors={"model/encoder/pooler/bias": 1.0})
    with pytest.raises(KeyError, match="token_embedding"):
        optimizer.build(model.trainable_variables)


def test_two_stacks_of_layers_are_refused():
    config = configs.from_dict(
        {
            "name": "t5",
            "encoder": {
                "type": "encoder_decoder", "vocab_size": 9, "hidden_size": 4, "num_layers": 1,
                "num_heads": 1, "intermediate_size": 4,
            },
            "objectives": [{"type": "seq2seq_lm"}],
            "recipe": {"steps": 1},
        }
    )  # fmt: skip
    with pytest.raises(UserError, match="layer_decay: 0.5: not supported for encoder.type: enc"):
        schedules.layer_factors(Model(config), 0.5)
