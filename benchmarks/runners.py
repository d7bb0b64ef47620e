"""CPU seconds of a build of shards on each runner, and their ratio to this machine's processes.

  python -m benchmarks.runners --text=FILE [--vocabulary=FILE] [--megabytes 10 41]
      [--runners local beam ray]

A build of BERT's pairs is run as a command on a small and on a large text. What the large one takes
more, for each MB more, is the cost once started, without the imports in each worker. CPU seconds
are user and system time of the command and all its descendants, read ten times a second, which
another load of the machine moves little. The shards of all runners must have the same bytes.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from benchmarks import environments, preprocess
from official.utils import checksums

_TICKS = os.sysconf("SC_CLK_TCK")
# What follows the command, for a number of workers.
RUNNERS = {
    "local": ["--workers={}"],
    "beam": ["--runner=beam"],
    "ray": ["--runner=ray", "--", "--num_cpus={}"],
}


class Cpu(threading.Thread):
    """Adds up the CPU seconds of a process and its descendants, until it ends."""

    def __init__(self, process: int):
        super().__init__(daemon=True)
        self._process = process
        self._ended = threading.Event()
        self._seconds: dict[tuple[int, str], float] = {}

    def run(self) -> None:
        """Reads them ten times a second."""
        while not self._ended.wait(0.1):
            self._read(self._process)

    def end(self) -> float:
        """Stops, and returns the sum."""
        self._ended.set()
        self.join()
        return sum(self._seconds.values())

    def _read(self, process: int) -> None:
        try:
            entries = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            return
        self._seconds[process, entries[19]] = (int(entries[11]) + int(entries[12])) / _TICKS
        for child in preprocess.children(process):
            self._read(child)


def digest(folder: Path) -> str:
    """Returns the SHA-256 of the names and contents of a folder's files."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            whole.update(f"{path.relative_to(folder)} {checksums.hash_file(path)}\n".encode())
    return whole.hexdigest()


def build(runner: str, text: Path, folder: Path, workers: int) -> tuple[float, str]:
    """Builds shards; returns the CPU seconds, and the digest of the shards, which are removed."""
    output = folder / "shards"
    command = [
        sys.executable, "-m", "tfrecords_tools.build_shards", f"--config={folder}/config.yaml",
        f"--input={text}", f"--tokenizer={folder}/tokenizer", f"--output={output}",
        *(word.format(workers) for word in RUNNERS[runner]),
    ]  # fmt: skip
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command, cwd=environments.ROOT, env=environments.variables(), stdout=said, stderr=said
        )
        cpu = Cpu(process.pid)
        cpu.start()
        status = process.wait()
        seconds = cpu.end()
        if status:
            said.seek(0)
            sys.exit(f"error: {' '.join(command)} ended with {status}:\n{said.read()[-3000:]}")
    found = digest(output)
    shutil.rmtree(output)
    return seconds, found


def table(seconds: dict[str, list[float]], megabytes: list[float]) -> str:
    """Returns the table.

    Args:
      seconds: of each runner, the CPU seconds for a small and a large text.
      megabytes: of both texts.
    """
    small, large = megabytes
    rates = {name: (b - a) / (large - small) for name, (a, b) in seconds.items()}
    first = next(iter(rates))
    lines = [
        f"| runner | {small:g} MB | {large:g} MB | for each MB more | to {first} |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, (a, b) in seconds.items():
        ratio = rates[name] / rates[first]
        lines.append(f"| {name} | {a:.1f} | {b:.1f} | {rates[name]:.3f} | {ratio:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Runs the benchmark and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, help="one sentence a line; default: the demo's corpus")
    parser.add_argument("--vocabulary", type=Path, help="a vocab.txt; default: learned")
    parser.add_argument("--megabytes", type=float, nargs=2, default=[10, 41])
    parser.add_argument("--runners", choices=RUNNERS, nargs="+", default=list(RUNNERS))
    parser.add_argument("--workers", type=int, default=2, help="of local and ray (default: 2)")
    parser.add_argument("--rounds", type=int, default=1, help="of which the least counts")
    options = parser.parse_args()
    options.cased, options.unit = False, "token"
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        preprocess.prepare(folder, options)
        digests: dict[float, set[str]] = {}
        for megabytes in options.megabytes:
            text = folder / "text.txt"
            preprocess.write_text(options.text, text, megabytes)
            for runner in options.runners:
                runs = [build(runner, text, folder, options.workers) for _ in range(options.rounds)]
                seconds.setdefault(runner, []).append(min(taken for taken, _ in runs))
                digests.setdefault(megabytes, set()).update(found for _, found in runs)
                print(f"{runner}, {megabytes:g} MB: {seconds[runner][-1]:.1f} s", flush=True)
    if any(len(found) > 1 for found in digests.values()):
        sys.exit("error: the runners wrote other bytes")
    print(f"\nCPU seconds, {options.workers} workers; the same bytes\n")
    print(table(seconds, options.megabytes))


if __name__ == "__main__":
    main()
