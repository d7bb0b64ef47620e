"""Runs the torture bench and prints its table.

  python -m benchmarks.torture --work=torture_run      whole: hours; goes on where it was stopped
  python -m benchmarks.torture --quick                 a slice of each part, within five minutes

Each failure is listed with the command that repeats it, and the exit status is 1 if there is one.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent import futures
from pathlib import Path

from benchmarks import environments
from benchmarks.torture import (
    changes,
    configs,
    disk,
    flips,
    fuzz,
    hostile,
    kills,
    nan,
    parts,
    power,
)
from benchmarks.torture.materials import Materials
from official.training.reporting import duration

PARTS = {
    part.name: part
    for part in (
        kills.Trainings,
        kills.Builds,
        power.PowerCuts,
        flips.Flips,
        fuzz.Fuzz,
        configs.Typos,
        disk.FullDisks,
        hostile.Hostile,
        changes.Changes,
        nan.Nans,
    )
}


def cases(part: type[parts.Part], options: argparse.Namespace) -> list[int]:
    """The numbers of the cases that are to be run."""
    if options.case is not None:
        return [options.case]
    count = part.quick if options.quick else part.whole
    return list(range(max(1, round(count * options.share))))


def run(
    chosen: Sequence[parts.Part], options: argparse.Namespace, folder: Path, started: float
) -> dict[str, parts.Outcome]:
    """Runs parts, those that work in child processes beside the others; says what came of each."""

    def say(line: str) -> None:
        print(f"{time.monotonic() - started:8.1f} s  {line}", flush=True)

    def one_after_another(lane: Sequence[parts.Part]) -> dict[str, parts.Outcome]:
        actual = {}
        for part in lane:
            outcomes = parts.run(part, cases(type(part), options), folder / "journal", say)
            actual[part.name] = _with_commands(part, outcomes, options)
        return actual

    lanes = [[part for part in chosen if part.in_children == apart] for apart in (False, True)]
    if options.one_core:
        lanes = [[*lanes[0], *lanes[1]]]
    with futures.ThreadPoolExecutor(len(lanes)) as pool:
        done = pool.map(one_after_another, lanes)
        return {name: actual for lane in done for name, actual in lane.items()}


def _with_commands(
    part: parts.Part, outcomes: Mapping[int, parts.Outcome], options: argparse.Namespace
) -> parts.Outcome:
    """The sum of outcomes, each failure with the command that repeats it."""
    summed = parts.total(outcomes.values())
    summed.failures = [
        f"{sentence}\n    python -m benchmarks.torture --parts={part.name} --seed={options.seed} "
        f"--case={case}"
        for case, outcome in outcomes.items()
        for sentence in outcome.failures
    ]
    return summed


def table(chosen: Sequence[parts.Part], actual: Mapping[str, tuple[parts.Outcome, float]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| what | how many | what has to hold | how they ended | failed | time |",
        "|---|---:|---|---|---:|---:|",
    ]
    for part in chosen:
        outcome = actual[part.name]
        kinds = [f"{n:,} {kind}" for kind, n in outcome.kinds.most_common() if kind != "failed"]
        failed = max(outcome.kinds["failed"], len(outcome.failures))
        lines.append(
            f"| {part.things} | {outcome.done:,} | {part.promise} | {', '.join(kinds)} "
            f"| {failed:,} | {duration(outcome.seconds)} |"
        )
    return "\n".join(lines)


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=environments.ROOT,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() or "unknown"


def supervise(options: argparse.Namespace) -> int:
    """Runs the bench in a session of its own, which a signal ends at once; returns its status."""
    with tempfile.TemporaryDirectory(prefix="torture-") as scratch:
        folder = options.work / _commit() if options.work else Path(scratch) / "work"
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.torture", *sys.argv[1:], f"--folder={folder}"],
            env={**os.environ, "TMPDIR": scratch},  # goes with what a stop leaves there
            start_new_session=True,
        )
        try:
            return child.wait()
        except KeyboardInterrupt:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            parts.Journal.stopped(folder / "journal")
            again = "the same command goes on" if options.work else "nothing is kept without --work"
            print(f"stopped; {again}", file=sys.stderr)
            return 130


def bench(options: argparse.Namespace) -> int:
    """Runs the chosen parts and prints the table; returns 1 if something failed."""
    started, commit = time.monotonic(), _commit()
    materials = Materials(options.folder / "materials", lambda line: print(f"           {line}"))
    chosen = [PARTS[name](options.seed, materials) for name in options.parts]
    actual = run(chosen, options, options.folder, started)
    print(f"\ncommit {commit}, seed {options.seed}\n\n{table(chosen, actual)}")
    failures = [f"{name}: {sentence}" for name, o in actual.items() for sentence in o.failures]
    for failure in failures:
        print(f"\nFAILED: {failure}")
    return bool(failures)


def main() -> None:
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", help=f"some of {', '.join(PARTS)}, with commas (default: all)")
    parser.add_argument("--quick", action="store_true", help="a slice of each, in five minutes")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases (default: 1)")
    parser.add_argument("--case", type=int, help="one case alone, to repeat it")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--one_core", action="store_true", help="one part at a time")
    parser.add_argument(
        "--work",
        type=Path,
        help="where a run of the same commit goes on (default: a folder that is then removed)",
    )
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of `supervise`
    options = parser.parse_args()
    options.parts = options.parts.split(",") if options.parts else list(PARTS)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"--parts: no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    # (A shell that starts a command in the background has it ignore SIGINT.)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    sys.exit(bench(options) if options.folder else supervise(options))


if __name__ == "__main__":
    main()
