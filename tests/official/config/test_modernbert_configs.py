"""ModernBERT's phases are those of its paper and its release (Warner et al., 2024)."""

import pytest

from official import config as configs
from official.training import resolve, schedules
from tests import CONFIGS


def test_the_phases_of_the_base_size():
    path = CONFIGS / "pretrain" / "modernbert_base_phases.yaml"
    whole = configs.load(path)
    phases = configs.phases(whole)
    ends = [phase.recipe.steps for phase in phases]
    steps = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    assert steps == [4239] * 5 + [353707, 52982, 10596]
    tokens = [
        count * phase.recipe.batch_size * phase.segments.max_length / 1e9
        for count, phase in zip(steps, phases, strict=True)
    ]
    # Five plateaus of 50 billion tokens, which grow with the batch, and 1,719 billion with them.
    assert sum(tokens[:5]) == pytest.approx(50, rel=1e-3)
    assert tokens[:5] == pytest.approx([50 * b / 15 for b in range(1, 6)], rel=1e-3)
    assert sum(tokens[:6]) == pytest.approx(1719, rel=1e-3)
    assert tokens[6:] == pytest.approx([250, 50], rel=1e-3)
    assert [phase.recipe.batch_size for phase in phases] == [
        768, 1536, 2304, 3072, 3840, 4608, 576, 576,
    ]  # fmt: skip
    thetas = [(p.encoder.rotary_theta, p.encoder.local_attention.theta) for p in phases]
    assert thetas == [(1e4, 1e4)] * 6 + [(1.6e5, 1e4)] * 2
    rates = [schedules.make(phase.recipe, phase.recipe.steps) for phase in phases]
    peak = 8e-4
    assert float(rates[0](3815 // 2)) == pytest.approx(peak / 2, rel=1e-3)
    assert float(rates[5](100_000)) == pytest.approx(peak)
    assert float(rates[6](390_000)) == float(rates[7](ends[6])) == pytest.approx(3e-4)
    # 1 - sqrt(1 / 4) after a quarter of the last phase; 0.001 of the peak at its end.
    assert float(rates[7](ends[6] + 2649)) == pytest.approx(0.5005 * 3e-4, rel=2e-3)
    assert float(rates[7](ends[7])) == pytest.approx(3e-7, rel=1e-2)
    # A phase takes over the weights of the one before, whose theta it changes.
    vocabulary = configs.ResolvedConfig.of(phases[5])
    later = resolve.inherit(phases[6], vocabulary)
    assert later.encoder == phases[6].encoder
