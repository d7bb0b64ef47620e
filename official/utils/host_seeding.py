"""Random draws in numpy that are functions of counters, never of earlier draws.

`official.utils.seeding` has those of batches, in TensorFlow. This module works without it.
"""

import numpy as np

STEP = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd: walks through all 64-bit numbers
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_ORDER = 0x6F72646572  # keeps these keys apart from the seeds of rows


def numpy_rng(*counters: int) -> np.random.Generator:
    """Returns the generator of some counters (the seed first; each is 0 <= counter < 2^64).

    Unlike `SeedSequence` alone, (1,) and (1, 0) are different streams.
    """
    words = [len(counters)]
    for counter in counters:
        words += [counter & 0xFFFFFFFF, counter >> 32]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(words)))


def sort_keys(seed: int, *counters: int | np.ndarray) -> np.ndarray:
    """Returns a key for each tuple of counters; in the order of the keys, they are shuffled.

    Args:
      seed: the seed of the order.
      counters: whole numbers or arrays of them, int64, that are broadcast together.

    Returns:
      uint64, uniformly distributed.
    """
    state = mix(np.asarray((seed + _ORDER) % 2**64, np.uint64))
    with np.errstate(over="ignore"):
        for counter in counters:
            state = mix(state + np.uint64(STEP) + np.asarray(counter).astype(np.uint64))
    return state


def mix(state: np.ndarray) -> np.ndarray:
    """Returns the output function of SplitMix64 of each state, uint64 (Steele et al., 2014)."""
    with np.errstate(over="ignore"):
        state = (state ^ (state >> np.uint64(30))) * np.uint64(FACTORS[0])
        state = (state ^ (state >> np.uint64(27))) * np.uint64(FACTORS[1])
        return state ^ (state >> np.uint64(31))
