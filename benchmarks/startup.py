"""Times help texts, a small build of shards, and the first vector of a text, as users wait.

  python -m benchmarks.startup [--only help build answers] [--peers]

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
from collections.abc import Mapping, Sequence
from concurrent import futures
from pathlib import Path

import numpy as np

from benchmarks import encoding, environments, preprocess
from official import config as configs
from official import tokenizers
from official.saving import model_folder

PARTS = ("help", "build", "answers")
ENCODER = "configs/pretrain/bert_base.yaml"
LOAD = 'import official; print(official.load("{folder}"{how}).{method}(["raw text"]))'
PIPELINE = 'from transformers import pipeline; print(pipeline("{task}", "{folder}")(["raw text"]))'


def timed(
    sides: Mapping[str, Sequence[str]], rounds: int, output: Path | None = None
) -> dict[str, float]:
    """Prints the median and the range of the seconds of commands, their CPU seconds and memory.

    Args:
      sides: the commands by the name of the row; they take turns.
      rounds: how often each is timed.
      output: the folder that a command makes, which is removed after each run.

    Returns:
      The median of the CPU seconds of each.
    """
    runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
    for _ in range(rounds + 1):
        for name, words in sides.items():
            runs[name].append(_once(words))
            if output is not None:
                shutil.rmtree(output)
    for name, (_, *measured) in runs.items():
        seconds, cpu, peaks = zip(*measured, strict=True)
        print(
            f"| {name} | {statistics.median(seconds):.2f} | {min(seconds):.2f}-{max(seconds):.2f} "
            f"| {statistics.median(cpu):.2f} | {max(peaks):.0f} |",
            flush=True,
        )
    return {name: statistics.median(cpu for _, cpu, _ in each[1:]) for name, each in runs.items()}


def _once(words: Sequence[str]) -> tuple[float, float, float]:
    """Runs a command; returns its seconds, its CPU seconds and the MiB that it takes at most."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as said, futures.ThreadPoolExecutor(1) as pool:
        process = subprocess.Popen(
            words,
            cwd=environments.ROOT,
            env=environments.variables(),
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        ended = threading.Event()
        watching = pool.submit(_peak, process.pid, ended)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            ended.set()  # also on Ctrl-C: the pool waits for its thread
        seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            sys.exit(f"error: {' '.join(words)}:\n{said.read().decode()[-3000:]}")
        return seconds, usage.ru_utime + usage.ru_stime, watching.result()


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
    """Writes a BERT base with random weights, which says "no" or "yes" to a text."""
    loaded = tokenizers.load(tokenizer)
    base = configs.load(ENCODER, [f"encoder.vocab_size={loaded.vocab_size}"])
    described = {
        "name": "bert",
        "encoder": configs.to_dict(base)["encoder"],
        "objectives": [{"type": "classification", "labels": ["no", "yes"]}],
        "recipe": {"steps": 1},
    }
    config = configs.from_dict(described)
    rng = np.random.default_rng(0)
    variables = {
        path: rng.normal(0, 0.02, shape).astype(np.float32)
        for path, shape in model_folder.shapes(config).items()
    }
    model_folder.write_new(config, loaded, variables, folder)


def answers(folder: Path, peers: bool) -> dict[str, list[str]]:
    """Returns the commands that load BERT base and answer one text, by their names."""
    model = folder / "model"
    load = {
        "encode": LOAD.format(folder=model, how="", method="encode"),
        "encode, LiteRT int8": LOAD.format(
            folder=model, how=', runtime="litert", precision="int8"', method="encode"
        ),
        "classify": LOAD.format(folder=model, how="", method="classify"),
    }
    sides = {f"official.load, {name}": [sys.executable, "-c", c] for name, c in load.items()}
    if peers:
        environments.run(
            "official.convert", "--target=hf", f"--input={model}", f"--output={folder}/hf"
        )
        for task in ("feature-extraction", "text-classification"):
            code = PIPELINE.format(task=task, folder=folder / "hf")
            sides[f"transformers, {task}"] = [environments.python("hf"), "-c", code]
    return sides


def main() -> None:
    """Runs the benchmark and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument(
        "--peers", action="store_true", help="also time the pipelines of transformers"
    )
    parser.add_argument("--text", type=Path, help="one sentence a line; default: the demo's corpus")
    parser.add_argument("--megabytes", type=float, default=16, help="of text (default: 16)")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--workers", type=int, default=2, help="of the build (default: 2)")
    options = parser.parse_args()
    options.vocabulary, options.unit = None, "token"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if {"build", "answers"} & set(options.only):
            preprocess.prepare(folder, options)
        if "build" in options.only:
            preprocess.write_text(options.text, folder / "text.txt", options.megabytes)
        if "answers" in options.only:
            write_model(folder / "tokenizer", folder / "model")
            sides = answers(folder, options.peers)
        print("| command | seconds | range | CPU s | MiB |\n|---|---:|---:|---:|---:|")
        for module in commands() if "help" in options.only else ():
            timed({f"{module} --help": [sys.executable, "-m", module, "--help"]}, options.rounds)
        if "build" in options.only:
            build = [
                sys.executable, "-m", "tfrecords_tools.build_shards",
                f"--config={folder}/config.yaml", "--override=segments.duplicates=1",
                f"--input={folder}/text.txt", f"--tokenizer={folder}/tokenizer",
                f"--output={folder}/shards", f"--workers={options.workers}",
            ]  # fmt: skip
            what = f"build_shards, {options.megabytes:g} MB, {options.workers} workers"
            timed({what: build}, options.rounds, folder / "shards")
        if "answers" in options.only:
            cpu = timed(sides, options.rounds)
            if options.peers:
                ours, theirs = (
                    cpu[name]
                    for name in ("official.load, classify", "transformers, text-classification")
                )
                print(f"\nclassify: {ours / theirs:.2f} of the CPU seconds of transformers")


if __name__ == "__main__":
    main()
