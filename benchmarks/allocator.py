"""Compares training on a CPU with and without memory that glibc keeps for the next step.

  python -m benchmarks.allocator [--only=NAME ...] [--steps=6] [--rounds=3] [--folder=DIR]

By default glibc maps the memory of each large tensor anew, and the kernel clears every page of it.
With the environment variables of `KEPT`, all threads share one heap, which is kept. Each run of
`garden train` on the corpus of the demo takes turns with the same run with these variables. The
table has the medians: steps a second of the second half, page faults, CPU seconds in the kernel,
and the largest memory of the process.
"""

import argparse
import dataclasses
import json
import statistics
from pathlib import Path

from benchmarks import environments, memory
from demo import corpus

KEPT = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 33),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
}
RUNS = ("pretrain/bert_base", "pretrain/electra_small", "finetune/sentence_embedding")
SIDES = {"as it is": {}, "kept": KEPT}


def main() -> None:
    """Runs the benchmark and prints its table."""
    options = _options()
    with environments.folder(options.folder) as folder:
        if not (folder / "text").exists():
            corpus.write(folder)
        lines = ["| run | memory | steps/s | ratio | page faults | kernel, s | peak |"]
        lines.append("|---|---|---:|---:|---:|---:|---:|")
        for run in memory.RUNS:
            if run.config in RUNS and any(each in run.name for each in options.only or [""]):
                lines += rows(run.name, _measured(run, folder, options))
        print("\n" + "\n".join(lines))


def rows(name: str, answers: dict[str, list[dict]]) -> list[str]:
    """Returns a line of the table for each side."""
    medians = {
        side: {key: statistics.median(each[key] for each in given) for key in given[0]}
        for side, given in answers.items()
    }
    first = next(iter(medians.values()))["rate"]
    return [
        f"| {name} | {side} | {own['rate']:.3f} | {own['rate'] / first:.2f} | "
        f"{own['faults'] / 1e6:.1f} million | {own['kernel']:.0f} | {own['peak'] / 1e9:.2f} GB |"
        for side, own in medians.items()
    ]


def _measured(run: memory.Run, folder: Path, options: argparse.Namespace) -> dict[str, list[dict]]:
    answers: dict[str, list[dict]] = {side: [] for side in SIDES}
    half = f"recipe.report_every={options.steps // 2}"  # the first half makes the graph
    run = dataclasses.replace(run, overrides=[*run.overrides, half])
    for number in range(options.rounds):
        for side, more in SIDES.items():
            model_dir = folder / f"{run.name}-{side}-{number}".replace("/", "-").replace(" ", "-")
            environment = environments.variables() | more
            _, usage = memory.train(run, folder, model_dir, environment, options.steps)
            lines = (model_dir / "metrics.jsonl").read_text().splitlines()
            found = {
                "rate": json.loads(lines[-1])["steps_per_second"],
                "faults": usage.ru_minflt,
                "kernel": usage.ru_stime,
                "peak": usage.ru_maxrss * 1024,
            }
            answers[side].append(found)
            print(f"round {number + 1}: {run.name}, {side}: {found}", flush=True)
    return answers


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], help="parts of the names of runs")
    parser.add_argument("--steps", type=int, default=6, help="an even number")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="for the data; default: a temporary folder")
    return parser.parse_args()


if __name__ == "__main__":
    main()
