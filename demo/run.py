"""`make demo`: text, vocabulary, shards, pretraining, fine-tuning, SavedModel, answers.

  python -m demo.run [--output=demo_run]

Runs the command lines of this project one after another, and prints each before it runs. Their
outputs are in the output folder, which is emptied first.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from demo import corpus

MARKER = "made_by_demo"
PRETRAIN = "configs/smoke/bert_demo.yaml"
FINETUNE = "configs/smoke/classification_demo.yaml"
# Lines that TensorFlow prints to stderr when it starts; no setting prevents them.
NOTICES = re.compile(
    r"WARNING: All log messages before absl|[IWE]0000 00:00:|To enable the following"
)
QUESTIONS = [
    "Wait until the server has sent its reply, then read the header and the body.",
    "Start another process and run the function there, without waiting for its result.",
]


def main() -> None:
    """Runs the demo and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("demo_run"))
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a quarter of the text, four steps of training: a smoke test",
    )
    options = parser.parse_args()
    started = time.monotonic()
    out = options.output
    empty(out)
    sizes = _write_text(out, options.quick)
    _build_vocabulary(out)
    _build_shards(out)
    _pretrain(out, options.quick)
    _fine_tune(out, options.quick)
    answers = _export(out)
    _title("What came of it")
    for name, text in _table(out, sizes).items():
        print(f"{name:15} {text}")
    print(f"{'time':15} {(time.monotonic() - started) / 60:.1f} minutes")
    for answer in answers.splitlines():
        print(f"{'answer':15} {answer}")


def _write_text(out: Path, quick: bool) -> dict[str, int]:
    """Writes the corpus and the task, and returns their sizes."""
    _title("Real English: what Python's standard library says about itself")
    sizes = corpus.write(out, every=4 if quick else 1)
    for name, size in sizes.items():
        print(f"  {name:20} {size:>10,}")
    return sizes


def _build_vocabulary(out: Path) -> None:
    _title("A vocabulary")
    _run(
        "tfrecords_tools.build_vocab", input=out / "text/train.txt", output=out / "tokenizer",
        type="wordpiece", vocab_size=4000, lower_case=True,
    )  # fmt: skip


def _build_shards(out: Path) -> None:
    _title("Text to shards: for training, and held out")
    for name in ("train", "heldout"):
        _run(
            "tfrecords_tools.build_shards", config=PRETRAIN, input=out / f"text/{name}.txt",
            tokenizer=out / "tokenizer", output=out / f"shards/{name}",
        )  # fmt: skip
    _run("tfrecords_tools.inspect_shards", out / "shards/train")


def _pretrain(out: Path, quick: bool) -> None:
    """Evaluates the encoder before pretraining, and pretrains it."""
    overrides = ["--override=recipe.steps=4"] if quick else []
    pretrain = dict(
        mode="train_and_eval",
        config=PRETRAIN,
        data=out / "shards/train",
        validation_data=out / "shards/heldout",
    )
    _title("The encoder before pretraining: one step at rate 0, to measure where it starts")
    _run(
        "official.main", "--override=recipe.steps=1", "--override=recipe.optimizer.learning_rate=0",
        **pretrain, model_dir=out / "untrained",
    )  # fmt: skip
    _title("Pretraining")
    _run("official.main", *overrides, **pretrain, model_dir=out / "pretrained")


def _fine_tune(out: Path, quick: bool) -> None:
    """Fine-tunes the pretrained encoder and an untrained one."""
    _title("A task: which part of the library does this paragraph come from?")
    _run(
        "tfrecords_tools.build_task_shards", task="classification", text_column="text",
        label_column="area", train_file=out / "task/train.tsv",
        validation_file=out / "task/dev.tsv", tokenizer=out / "tokenizer",
        output=out / "shards/task", max_length=32,
    )  # fmt: skip
    overrides = ["--override=recipe.steps=4", "--override=recipe.epochs=0"] if quick else []
    fine_tune = dict(
        mode="train_and_eval", config=FINETUNE, data=out / "shards/task", init=out / "pretrained"
    )
    _title("Fine-tuning the pretrained encoder")
    _run("official.main", *overrides, **fine_tune, model_dir=out / "finetuned")
    _title("The same from an untrained encoder")
    _run(
        "official.main", *overrides, "--override=recipe.init_weights=none", **fine_tune,
        model_dir=out / "finetuned_untrained",
    )  # fmt: skip


def _export(out: Path) -> str:
    """Exports the fine-tuned model, and returns its answers to `QUESTIONS`."""
    _title("Export, and two answers from a fresh process that has only tensorflow in it")
    _run("official.export", model_dir=out / "finetuned", output=out / "saved_model")
    return _command("demo/ask.py", out / "saved_model", *QUESTIONS)


def _table(out: Path, sizes: Mapping[str, int]) -> dict[str, str]:
    """Returns the rows of the final table."""
    manifest = json.loads((out / "shards/train/manifest.json").read_text())
    before, after = (_validation(out / name) for name in ("untrained", "pretrained"))
    tuned, untuned = (_validation(out / name) for name in ("finetuned", "finetuned_untrained"))
    return {
        "corpus": f"{sizes['train bytes'] / 1e6:.1f} MB, {sizes['train documents']} documents, "
        f"{sizes['train sentences']:,} sentences",
        "shards": f"{manifest['totals']['examples']:,} examples in {out / 'shards/train'}",
        "masked-LM loss": f"{before['masked_lm']:.2f} before, {after['masked_lm']:.2f} after "
        "pretraining (held-out text, nats)",
        "task": f"{len(corpus.AREAS)} classes, {sizes['train rows']:,} rows to train on, "
        f"{sizes['dev rows']:,} held out",
        "accuracy": f"{tuned['accuracy']:.1%} with pretraining, {untuned['accuracy']:.1%} without",
        "model": str(out / "finetuned"),
        "SavedModel": str(out / "saved_model"),
    }


def empty(folder: Path) -> None:
    """Empties a folder of the demo or creates it; exits if the folder is not of the demo."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            sys.exit(f"error: {folder} holds something else than a demo: name another --output")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).touch()


def _title(text: str) -> None:
    print(f"\n== {text}", flush=True)


def _run(module: str, *arguments, **flags) -> None:
    _command("-m", module, *arguments, *(f"--{name}={value}" for name, value in flags.items()))


def _command(*arguments) -> str:
    """Prints and runs a Python command; prints and returns its output."""
    python = Path(sys.executable)
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    words = [str(word) for word in (python, *arguments)]
    print(f"$ {shlex.join(words)}", flush=True)
    lines = []
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    for line in process.stdout:
        if NOTICES.match(line):
            continue
        print(f"  {line}", end="", flush=True)
        lines.append(line)
    if process.wait():
        sys.exit(f"error: this command ended with status {process.returncode}: see above")
    return "".join(lines)


def _validation(model_dir: Path) -> dict[str, float]:
    """Returns the metrics of the last evaluation of a run."""
    lines = (model_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [line for line in map(json.loads, lines) if line["split"] == "validation"][-1]


if __name__ == "__main__":
    main()
