"""Times our LSTM with a projection and PyTorch's `nn.LSTM(proj_size)`, forward and backward.

  python -m benchmarks.lstm

Both have the same weights and inputs, in float32, with the sizes of the small and the original
ELMo, and the rows and steps of its training. Every side runs in its own process and environment
(made as by `make parity` when missing); ours runs with and without XLA. Outputs and gradients must
be the same. The processes take turns, round after round, on the same cores. The table shows
milliseconds, the median of the rounds, and the ratio of PyTorch's time to the better of ours.
"""

import argparse
import math
import os
import statistics
import sys

from benchmarks.environments import Process

OURS, XLA, THEIRS = "encoder garden", "encoder garden, XLA", "PyTorch"
SIDES = {
    OURS: (None, "lstm.ours", False),
    XLA: (None, "lstm.ours", True),
    THEIRS: ("hf", "lstm.pytorch", False),
}
SIZES = ((1024, 128), (4096, 512))


def main() -> None:
    """Runs the benchmark and prints its table."""
    options = _options()
    seconds = {}
    for cells, projection in options.sizes:
        sizes = {"rows": options.rows, "length": options.length}
        sizes |= {"cells": cells, "projection": projection}
        seconds[cells, projection] = time_sides(sizes, options.rounds)
    print(f"\n{options.rows} rows, {options.length} steps, {os.cpu_count()} cores\n")
    print("\n".join(table(seconds)))


def time_sides(sizes: dict, rounds: int) -> dict[str, float]:
    """Returns the median of the seconds of each side; exits if their results differ."""
    sides = {
        name: Process(name, environment, side, sizes | {"xla": xla})
        for name, (environment, side, xla) in SIDES.items()
    }
    # The first calls trace graphs, compile and allocate memory.
    compare({name: side.ask(None)["means"] for name, side in sides.items()})
    seconds = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            seconds[name].append(side.ask(None)["seconds"])
    for side in sides.values():
        side.close()
    return {name: statistics.median(values) for name, values in seconds.items()}


def compare(means: dict[str, dict[str, float]]) -> None:
    """Checks the means of absolute values of all sides; exits if one differs from PyTorch's."""
    for name, values in means.items():
        for result, value in values.items():
            expected = means[THEIRS][result]
            if not math.isclose(value, expected, rel_tol=1e-3):
                sys.exit(
                    f"error: {name}, {result}: mean {value:.6g}, but {THEIRS} has {expected:.6g}"
                )


def table(seconds: dict[tuple[int, int], dict[str, float]]) -> list[str]:
    """Returns the lines of the table: milliseconds of each side and size, and the ratio."""
    lines = [f"| cells | projection | {' | '.join(SIDES)} | ratio |"]
    lines.append(f"|---:|---:|{'---:|' * (len(SIDES) + 1)}")
    for (cells, projection), of in seconds.items():
        shown = " | ".join(f"{1000 * of[name]:,.0f}" for name in SIDES)
        ratio = of[THEIRS] / min(of[OURS], of[XLA])
        lines.append(f"| {cells} | {projection} | {shown} | {ratio:.2f} |")
    return [*lines, "", "In milliseconds; ratio: PyTorch's time over the better of ours."]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in {"rows": 128, "length": 20, "rounds": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    parser.add_argument(
        "--sizes",
        type=_size,
        nargs="+",
        default=SIZES,
        metavar="CELLSxPROJECTION",
        help="default: 1024x128 4096x512",
    )
    return parser.parse_args()


def _size(text: str) -> tuple[int, int]:
    cells, projection = text.split("x")
    return int(cells), int(projection)


if __name__ == "__main__":
    main()
