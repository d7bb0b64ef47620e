"""`precision: auto` in a run: what the model folder says, and what a run that goes on does."""

import numpy as np
import pytest

from official import config as configs
from official import training
from official.distribution import numerics
from official.saving import checkpoints
from tests import small


@pytest.fixture(autouse=True)
def float32_at_the_end():
    yield
    numerics.set_precision("float32")


@pytest.fixture
def processor(tmp_path, monkeypatch):
    """Sets the flags of the processor."""

    def set_flags(flags):
        (tmp_path / "cpuinfo").write_text(f"flags : {flags}\n")
        monkeypatch.setattr(numerics, "CPU_INFO", tmp_path / "cpuinfo")

    return set_flags


@pytest.mark.slow
@pytest.mark.long
def test_the_processor_decides_and_a_run_that_goes_on_keeps_it(tmp_path, processor, capsys):
    config = small.config(recipe__steps=2)
    shards = small.shard_folder(tmp_path / "shards", config)
    lines = []

    def train(model, **recipe):
        given = small.replace(config, **recipe)
        training.train(given, shards, tmp_path / model, evaluate=False, report=lines.append)
        recipe = configs.load(tmp_path / model).recipe
        return recipe.precision, recipe.jit_compile

    processor("avx2 avx512_bf16")
    assert train("fast") == ("mixed_bfloat16", False)
    assert any(line.endswith("1 replica(s), mixed_bfloat16") for line in lines)
    assert any(line.startswith("step 2/2  loss ") for line in lines) and not capsys.readouterr().out
    assert train("given", precision="float32") == ("float32", False)
    processor("avx2")
    assert train("slow") == ("float32", False)
    assert train("fast") == ("mixed_bfloat16", False)
    slow, given = (
        checkpoints.load(tmp_path / name, "last").variables for name in ("slow", "given")
    )
    for path, value in slow.items():
        np.testing.assert_array_equal(given[path], value)
