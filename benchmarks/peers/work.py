"""Common code of all sides of `train_step`: sizes, batches and timing.

A side is a process that gets the sizes as its first argument (JSON). For each line on stdin, a
number, it makes that many steps and answers with one line of JSON. This file needs only numpy, so
that it runs in every environment.

Shapes: B batch, T length, P predictions, U targets.
"""

import json
import resource
import sys
import time
from collections.abc import Callable

import numpy as np

NUM_BATCHES = 4  # Used in turn.


def sizes() -> dict:
    """Returns the sizes that `train_step` passes to each side."""
    return json.loads(sys.argv[1])


def targets(length: int) -> int:
    """Returns the number of targets of a row of T5, as span corruption gives for these lengths."""
    return round(length * 0.2266)  # 29 of 128, 116 of 512


def batches(size: dict) -> list[dict[str, np.ndarray]]:
    """Returns random batches without padding, the same for every side.

    Each has token_ids and segment_ids [B, T], masked_positions (ascending) and masked_ids [B, P],
    next_sentence_label [B], and target_ids [B, U] for a decoder, all int32.
    """
    rng = np.random.default_rng(0)
    shape = (size["batch"], size["length"])
    result = []
    for _ in range(NUM_BATCHES):
        order = rng.permuted(np.tile(np.arange(1, shape[1]), (shape[0], 1)), axis=1)
        batch = {
            "token_ids": rng.integers(0, size["vocab"], shape),
            "segment_ids": np.tile(np.arange(shape[1]) >= shape[1] // 2, (shape[0], 1)),
            "masked_positions": np.sort(order[:, : size["predictions"]], axis=1),
            "masked_ids": rng.integers(0, size["vocab"], (shape[0], size["predictions"])),
            "next_sentence_label": rng.integers(0, 2, shape[0]),
        }
        batch["target_ids"] = batch["token_ids"][:, ::-1][:, : targets(shape[1])]
        result.append({name: value.astype(np.int32) for name, value in batch.items()})
    return result


def serve(run: Callable[[int], float]) -> None:
    """Answers requests until stdin ends.

    Args:
      run: makes a number of steps and returns the loss of the last one.
    """
    # Libraries may print to stdout, so the answers use a channel of their own.
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        steps = int(line)
        started = time.perf_counter()
        loss = run(steps)
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answer = {"seconds": seconds / steps, "loss": float(loss), "peak_mib": peak}
        print(json.dumps(answer), file=answers, flush=True)
