"""Times help texts, a small build of shards, and the first vector of a text, as users wait.

  python -m benchmarks.startup [--text=FILE] [--megabytes=16]

Each command runs once before it is timed, so files are in the page cache.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import numpy as np

from benchmarks import environments, preprocess
from official import config as configs
from official import tokenizers
from official.saving import model_folder

ENCODE = 'import official; print(official.load("{folder}").encode(["raw text"]).shape)'
ENCODER = "configs/pretrain/bert_base.yaml"


def timed(name: str, words: list[str], rounds: int, output: Path | None = None) -> None:
    """Prints the median and the range of the seconds of a command.

    Args:
      name: the row of the table.
      words: the command.
      rounds: how often it is timed.
      output: the folder that the command makes, which is removed after each run.
    """
    variables = environments.variables()
    seconds = []
    for _ in range(rounds + 1):
        started = time.monotonic()
        done = subprocess.run(words, cwd=environments.ROOT, env=variables, capture_output=True)
        seconds.append(time.monotonic() - started)
        if done.returncode:
            sys.exit(f"error: {' '.join(words)}:\n{done.stderr.decode()[-3000:]}")
        if output is not None:
            shutil.rmtree(output)
    middle, least, most = (f(seconds[1:]) for f in (statistics.median, min, max))
    print(f"| {name} | {middle:.2f} | {least:.2f}-{most:.2f} |", flush=True)


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
        print("| command | seconds | range |\n|---|---:|---:|")
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
        code = ENCODE.format(folder=folder / "model")
        timed("official.load, encode (BERT base)", [sys.executable, "-c", code], options.rounds)


if __name__ == "__main__":
    main()
