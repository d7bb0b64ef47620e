"""BERT's configs are those of its paper and its release (Devlin et al., 2019)."""

import pytest

from official import config as configs
from official.training import schedules
from tests import CONFIGS

FOLDER = CONFIGS / "pretrain"


def load(name):
    return configs.load(FOLDER / f"{name}.yaml")


@pytest.mark.parametrize("size", ["base", "large"])
def test_the_second_phase_goes_on_with_the_schedule_of_the_first(size):
    first, second = configs.phases(load(f"bert_{size}_phases"))
    changed = {key: (a, b) for key, a, b in configs.differences(first, second)}
    assert changed == {
        "name": (f"bert_{size}_phases_phase_1", f"bert_{size}_phases"),
        "segments.max_length": (128, 512),
        "corruption.max_predictions": (20, 77),
        "recipe.steps": (900_000, 1_000_000),
        "recipe.init_weights": ("encoder", "run"),
    }
    assert [key for key, *_ in configs.differences(first, load(f"bert_{size}"))] == ["name"]
    rates = [schedules.make(c.recipe, c.recipe.steps) for c in (first, second)]
    for step in (0, 10_000, 500_000, 899_999, 900_000, 999_999):
        assert float(rates[0](step)) == float(rates[1](step))
    assert float(rates[1](950_000)) == pytest.approx(0.05 * 1e-4)
    # The release: round(512 · 0.15), and copies of each document.
    assert second.corruption.max_predictions == round(512 * 0.15)
    assert first.segments.duplicates == second.segments.duplicates == 10


def test_copies_of_each_document_as_the_releases_write_them():
    """Mini configs are for small text and a short run: they have what their files say."""
    copies = {"bert": 10, "albert": 40, "xlnet": 20}
    for path in FOLDER.glob("*.yaml"):
        if path.stem.rpartition("_")[2] not in ("mini", "short", "long"):
            expected = copies.get(path.stem.partition("_")[0], 1)
            assert configs.load(path).segments.duplicates == expected, path.stem
