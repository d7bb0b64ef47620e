from benchmarks import tpu_memory
from official import config as configs
from official.training.tpu_memory import Estimate
from official.utils.tpu_compiler import Program, Slice
from tests import CONFIGS

FOUR = Slice("v5e:2x2", 4, 16 << 30)


def test_each_system_has_a_vocabulary_size_and_a_length():
    for system in tpu_memory.SYSTEMS:
        config = configs.load(CONFIGS / f"{system.config}.yaml", list(system.overrides))
        assert config.encoder.vocab_size > 20_000 and config.segments.max_length >= 128


def test_the_words_of_a_cell():
    fits = Estimate(FOUR, 8, Program(1_322_000_000, 1_527_000_000, 147_000_000))
    assert tpu_memory.shown(fits) == "1.32 + 1.53 + 0.15"
    assert tpu_memory.shown(Estimate(FOUR, 8, Program(refused=17 << 30))) == "1.00 GiB over"
