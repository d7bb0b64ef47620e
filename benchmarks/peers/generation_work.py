"""Common code of the sides of `generation`: sizes, inputs and timing.

A side is a process that gets its settings as its first argument (JSON). For each line of JSON on
stdin, a number of rows, of beams and of tokens to draw from, it generates from the same inputs and
answers with the seconds and the tokens. This file needs only numpy, so that it runs in every
environment.

Shapes: B rows, T input tokens, N new tokens.
"""

import json
import sys
import time
from collections.abc import Callable

import numpy as np


def settings() -> dict:
    """Returns the settings.

    They are `model`, `folder`, `precision`, `vocab`, `length` (T) and `new_tokens` (N).
    """
    return json.loads(sys.argv[1])


def inputs(settings: dict, rows: int) -> np.ndarray:
    """Returns random token ids int64 [B, T] without special tokens, the same for every side."""
    shape = (rows, settings["length"])
    return np.random.default_rng(rows).integers(3, settings["vocab"] - 1, shape)


def serve(settings: dict, generate: Callable[[np.ndarray, int, int], np.ndarray]) -> None:
    """Answers requests until stdin ends.

    Args:
      settings: the result of `settings`.
      generate: returns the new tokens [B, N] of token ids [B, T], with a number of beams, drawn
        from a number of likeliest tokens (0 = no draws).
    """
    # Libraries may print to stdout, so the answers use a channel of their own.
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        ids = inputs(settings, request["rows"])
        started = time.perf_counter()
        tokens = generate(ids, request["beams"], request["top_k"])
        answer = {"seconds": time.perf_counter() - started, "tokens": np.asarray(tokens).tolist()}
        print(json.dumps(answer), file=answers, flush=True)
