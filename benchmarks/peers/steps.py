"""Common code of all sides of `benchmarks.train_step`: batches, and answers to requests.

A request is a number of steps, which the side makes. This file needs only NumPy, so that it runs in
every environment.

Shapes: B batch, T length, P predictions, U targets.
"""

from collections.abc import Callable

import numpy as np
import server

NUM_BATCHES = 4  # used in turn


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
        batch["target_ids"] = batch["token_ids"][:, ::-1][:, : size["targets"]]
        result.append({name: value.astype(np.int32) for name, value in batch.items()})
    return result


def serve(run: Callable[[int], float]) -> None:
    """Answers requests; `run` makes a number of steps and returns the last loss."""

    def answer(steps: int) -> dict:
        seconds, loss = server.timed(run, steps)
        return {
            "seconds": seconds / steps,
            "loss": float(loss),
            "peak_mib": server.mib("VmHWM"),
        }

    server.serve(answer)
