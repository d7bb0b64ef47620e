"""Times help texts, a small build of shards, and the first vector of a text, as users wait.

  python -m benchmarks.startup [--text=FILE] [--megabytes=16]

Each command runs once before it is timed, so files are in the page cache, and what was converted
for LiteRT is in the model folder. CPU seconds and memory are those of all processes of a command.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from concurrent import futures
from pathlib import Path

import numpy as np

from benchmarks import encoding, environments, preprocess
from official import config as configs
from official import tokenizers
from official.saving import model_folder

ENCODE = 'import official; print(official.load("{folder}"{how}).encode(["raw text"]).shape)'
RUNTIMES = {"": "", ", LiteRT int8": ', runtime="litert", precision="int8"'}
ENCODER = "configs/pretrain/bert_base.yaml"


def timed(name: str, words: list[str], rounds: int, output: Path | None = None) -> None:
    """Prints the median and the range of the seconds of a command, its CPU seconds and memory.

    Args:
      name: the row of the table.
      words: the command.
      rounds: how often it is timed.
      output: the folder that the command makes, which is removed after each run.
    """
    variables = environments.variables()
    seconds, cpu, peaks = [], [], []
    pool = futures.ThreadPoolExecutor(1)
    for _ in range(rounds + 1):
        started = time.monotonic()
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                words, cwd=environments.ROOT, env=variables, stdout=subprocess.DEVNULL, stderr=said
            )
            ended = threading.Event()
            watching = pool.submit(_peak, process.pid, ended)
            _, status, usage = os.wait4(process.pid, 0)
            ended.set()
            seconds.append(time.monotonic() - started)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                said.seek(0)
                sys.exit(f"error: {' '.join(words)}:\n{said.read().decode()[-3000:]}")
        cpu.append(usage.ru_utime + usage.ru_stime)
        peaks.append(watching.result())
        if output is not None:
            shutil.rmtree(output)
    middle, least, most = (f(seconds[1:]) for f in (statistics.median, min, max))
    used, peak = statistics.median(cpu[1:]), max(peaks[1:])
    print(
        f"| {name} | {middle:.2f} | {least:.2f}-{most:.2f} | {used:.2f} | {peak:.0f} |", flush=True
    )


def _peak(pid: int, ended: threading.Event) -> float:
    """Returns the largest sum of the memory of the processes of a command, in MiB."""
    peak = 0.0
    while not ended.wait(0.05):
        peak = max(peak, encoding.memory(encoding.tree(pid)))
    return peak


def commands() -> list[str]:
    """Returns the modules of all commands."""
    project = tomllib.loads((environments.ROOT / "pyproject.toml").read_text())["project"]
    return sorted(entry.partition(":")[0] for entry in project["scripts"].values())


def write_model(tokenizer: Path, folder: Path) -> None:
    """Writes a BERT base with random weights."""
    loaded = tokenizers.load(tokenizer)
    config = configs.load(ENCODER, [f"encoder.vocab_size={loaded.vocab_size}"])
    rng = np.random.default_rng(0)
    variables = {
        path: rng.normal(0, 0.02, shape).astype(np.float32)
        for path, shape in model_folder.shapes(config).items()
    }
    model_folder.write_new(config, loaded, variables, folder)


def main() -> None:
    """Runs the benchmark and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, help="one sentence a line; default: the demo's corpus")
    parser.add_argument("--megabytes", type=float, default=16, help="of text (default: 16)")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--workers", type=int, default=2, help="of the build (default: 2)")
    options = parser.parse_args()
    options.vocabulary, options.unit = None, "token"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        preprocess.prepare(folder, options)
        text = folder / "text.txt"
        preprocess.write_text(options.text, text, options.megabytes)
        write_model(folder / "tokenizer", folder / "model")
        print("| command | seconds | range | CPU s | MiB |\n|---|---:|---:|---:|---:|")
        for module in commands():
            words = [sys.executable, "-m", module, "--help"]
            timed(f"{module} --help", words, options.rounds)
        build = [
            sys.executable, "-m", "tfrecords_tools.build_shards", f"--config={folder}/config.yaml",
            "--override=segments.duplicates=1", f"--input={text}",
            f"--tokenizer={folder}/tokenizer", f"--output={folder}/shards",
            f"--workers={options.workers}",
        ]  # fmt: skip
        what = f"build_shards, {options.megabytes:g} MB, {options.workers} workers"
        timed(what, build, options.rounds, folder / "shards")
        for runtime, how in RUNTIMES.items():
            code = ENCODE.format(folder=folder / "model", how=how)
            name = f"official.load, encode (BERT base{runtime})"
            timed(name, [sys.executable, "-c", code], options.rounds)


if __name__ == "__main__":
    main()
