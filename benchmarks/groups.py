"""Times the reading of a build's groups, which each part of the shuffle reads.

  python -m benchmarks.groups [--groups=1000] [--records=2000] [--parts=800]

A build on one machine stores the examples of each group of text, and each shard takes its own from
the files of all groups. The table shows the CPU time for each group and shard, and of all, if the
files are opened for one shard or for several neighboring ones at a time. The sides take turns.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from tfrecords_tools.pretraining.counts import Counts
from tfrecords_tools.writing import local
from tfrecords_tools.writing.shuffle import Keyed, first_key

_BYTES = 300  # of a record


def main() -> None:
    """Runs the benchmark and prints its table."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        groups = [write(Path(folder), number, options.records) for number in range(options.groups)]
        times: dict[int, list[float]] = {count: [] for count in (1, local.MOST_PARTS)}
        for _ in range(options.rounds):
            for count, found in times.items():
                found.append(read(groups, options.parts, count))
    print("\n".join(table(times, options.groups, options.parts)))


def write(folder: Path, number: int, count: int) -> local.SortedRuns:
    """Stores a group with random records."""
    rng = np.random.default_rng(number)
    keys = rng.integers(0, 1 << 64, size=count, dtype=np.uint64, endpoint=False)
    runs = local.SortedRuns(folder, number)
    runs.write(iter([Keyed(keys, [bytes(_BYTES)] * count, Counts())]), Counts())
    return runs


def read(groups: list[local.SortedRuns], parts: int, count: int) -> float:
    """Returns the CPU seconds of the reading of all parts, so many at a time."""
    started = time.process_time()
    for start in range(0, parts, count):
        first, end = first_key(start, parts), first_key(min(start + count, parts), parts)
        for group in groups:
            group.read(first, end)
    return time.process_time() - started


def table(times: dict[int, list[float]], groups: int, parts: int) -> list[str]:
    """Returns the lines of a Markdown table."""
    lines = ["| shards at a time | CPU seconds | microseconds | ratio |", "|---:|---:|---:|---:|"]
    medians = {count: statistics.median(found) for count, found in times.items()}
    for count, seconds in medians.items():
        each, ratio = seconds / (groups * parts) * 1e6, medians[1] / seconds
        lines.append(f"| {count} | {seconds:.1f} | {each:.1f} | {ratio:.2f} |")
    return lines


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--records", type=int, default=2000, help="of a group")
    parser.add_argument("--parts", type=int, default=800, help="shards")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
