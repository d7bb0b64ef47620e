"""Times a layer of ModernBERT on long rows: with local attention, and with global attention.

  python -m benchmarks.long_rows

Each layer has the size of ModernBERT-base: 768 wide, 12 heads, GeGLU of 1,152, a window of 128. A
step is a forward and a backward pass over one row, in bfloat16. Every layer and length runs in a
separate process. The table shows the median time of the rounds, the peak memory of the steps above
that of the process before them, and time and memory per token, relative to the shortest rows.
"""

import argparse
import os
import statistics

from benchmarks.environments import Process

KINDS = ("local", "global")


def main() -> None:
    """Runs the benchmark and prints its table."""
    options = _options()
    found = {}
    for kind in KINDS:
        for length in options.lengths:
            settings = {"kind": kind, "length": length}
            side = Process(f"{kind}, {length}", None, "long_rows.layer", settings)
            side.ask(1)  # traces the graph
            answers = [side.ask(options.steps) for _ in range(options.rounds)]
            side.close()
            seconds = statistics.median(answer["seconds"] for answer in answers)
            found[kind, length] = seconds, answers[-1]["mib"]
            print(f"{kind}, {length}: {seconds:.3f} s", flush=True)
    print(f"\n{os.cpu_count()} cores\n")
    print("\n".join(table(found)))


def table(found: dict[tuple[str, int], tuple[float, float]]) -> list[str]:
    """Returns the lines of the table; `found` has the seconds and MiB of each kind and length."""
    lines = ["| layer | tokens | s/step | MiB | time a token | memory a token |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    first = {kind: next(key for key in found if key[0] == kind) for kind, _ in found}
    for (kind, length), values in found.items():
        ratios = [
            value / length * first[kind][1] / before
            for value, before in zip(values, found[first[kind]], strict=True)
        ]
        seconds, mib = values
        shown = " | ".join(f"{ratio:.2f}x" for ratio in ratios)
        lines.append(f"| {kind} | {length:,} | {seconds:.3f} | {mib:,.0f} | {shown} |")
    return lines


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048, 8192])
    for name, default in {"steps": 3, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
