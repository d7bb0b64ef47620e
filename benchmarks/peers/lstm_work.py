"""Common code of the sides of `lstm`: weights, inputs and timing.

A side is a process that gets its settings as its first argument (JSON). For each line on stdin it
computes the outputs of all steps and the gradients of the sum of the outputs times given numbers.
It answers with the seconds and the means of absolute values. This file needs only numpy, so that
it runs in every environment.

Shapes: B rows, T steps, C cells, P projection and input.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

RESULTS = ("outputs", "gradient of the input", "of the kernel", "of the bias", "of the projection")


def settings() -> dict:
    """Returns the settings: `rows` (B), `length` (T), `cells` (C), `projection` (P) and `xla`."""
    return json.loads(sys.argv[1])


def arrays(settings: dict) -> dict[str, np.ndarray]:
    """Returns the arrays of all sides, in float32.

    Returns:
      `kernel` [2P, 4C] with the gates i, j, f, o, `bias` [4C], `projection` [C, P], and `x` and
      `upstream` [B, T, P].
    """
    rows, length, cells, size = (settings[k] for k in ("rows", "length", "cells", "projection"))
    rng = np.random.default_rng(0)
    limit = cells**-0.5
    values = {
        "kernel": rng.uniform(-limit, limit, (2 * size, 4 * cells)),
        "bias": rng.uniform(-limit, limit, 4 * cells),
        "projection": rng.uniform(-limit, limit, (cells, size)),
        "x": rng.standard_normal((rows, length, size)),
        "upstream": rng.standard_normal((rows, length, size)),
    }
    return {name: value.astype(np.float32) for name, value in values.items()}


def serve(step: Callable[[], Sequence[np.ndarray]]) -> None:
    """Answers requests until stdin ends; `step` returns the arrays of `RESULTS`."""
    # Libraries may print to stdout, so the answers use a channel of their own.
    answers = sys.stdout
    sys.stdout = sys.stderr
    for _ in sys.stdin:
        started = time.perf_counter()
        results = step()
        seconds = time.perf_counter() - started
        means = {
            name: float(np.abs(value).mean(dtype=np.float64))
            for name, value in zip(RESULTS, results, strict=True)
        }
        print(json.dumps({"seconds": seconds, "means": means}), file=answers, flush=True)
