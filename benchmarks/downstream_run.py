"""Runs the commands for one data set of `benchmarks.downstream`: shards, training, prediction."""

import argparse
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path

import yaml

from benchmarks import downstream_files, environments
from benchmarks.downstream_sets import DataSet
from official import tasks


class Run:
    """A data set in its own folder."""

    def __init__(self, data_set: DataSet, options: argparse.Namespace):
        """Creates the folder and prepares the files of the data set."""
        self.set = data_set
        self.options = options
        self.source = Path(options.data, data_set.folder)
        if not self.source.is_dir():
            raise SystemExit(f"error: there is no folder {self.source}: --data is the one above it")
        self.folder = Path(options.output, data_set.name)
        if self.folder.exists() and not options.baselines:
            raise SystemExit(f"error: {self.folder} is there already: name another --output")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.shards = self.folder / "shards"
        self.model = self.folder / "model"
        self.files = dict(data_set.files)
        if data_set.prepare:
            prepare = downstream_files.PREPARE[data_set.prepare]
            self.files = prepare(self.source.resolve(), self.files, self.folder.resolve())
        self.seconds = self.core_seconds = 0.0

    def command(self, module: str, *arguments: str, counted: bool = True) -> str:
        """Runs a command of the project and returns what it printed; ends where it fails.

        Its time counts as the encoder's, unless it is not `counted`.
        """
        words = [module, *map(str, arguments)]
        print("$ python -m", shlex.join(words), flush=True)
        started, before = time.monotonic(), _cores()
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=environments.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        printed = []
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(line)
        if code := process.wait():
            raise SystemExit(f"error: {module} ended with {code}")
        if counted:
            self.seconds += time.monotonic() - started
            self.core_seconds += _cores() - before
        return "".join(printed)

    def path(self, split: str) -> Path:
        """Returns the file of a split."""
        return self.source / (self.files.get(split) or tasks.TASKS[self.set.task].files[split])

    @property
    def tokenizer(self) -> Path:
        """The tokenizer folder of the encoder."""
        return Path(self.options.init, "tokenizer").resolve()

    def make_shards(self) -> None:
        """Builds the shards; those of a ranking are built from its converted files."""
        given = self.set
        arguments = [
            f"--task={given.task}",
            f"--input={self.source.resolve()}",
            *(f"--{split}_file={name}" for split, name in self.files.items()),
            f"--tokenizer={self.tokenizer}",
            f"--output={self.shards.resolve()}",
            f"--max_length={self.length}",
        ]
        if given.task == "ranking":
            arguments[1] = f"--input={self.ranking_data()}"
            arguments += [
                f"--{name}={name}.tsv" for name in ("queries", "documents")
            ] + ["--qrels=qrels"]  # fmt: skip
        if given.task in tasks.TASKS and tasks.TASKS[given.task].kind == "span":
            arguments.append(f"--doc_stride={min(given.stride, self.length * 3 // 4)}")
        self.command("tfrecords_tools.build_task_shards", *arguments)

    def ranking_data(self) -> Path:
        """Returns the queries, the documents, the judgements and the BM25 runs."""
        folder = (self.folder / "data").resolve()
        if not folder.exists():
            self.command(
                "tfrecords_tools.build_ranking_data",
                f"--format={self.set.format}",
                f"--input={self.source.resolve()}",
                f"--output={folder}",
            )
        return folder

    @property
    def length(self) -> int:
        """The length of a sequence: that of the data set, or the positions of the encoder."""
        return min(self.set.length, read_config(self.options.init)["encoder"]["max_positions"])

    def fine_tune(self) -> None:
        """Trains a model on the train split."""
        given = self.set
        buckets = [length for length in given.buckets if length < self.length]
        encoder = read_config(self.options.init)["encoder"]
        encoder |= {"dropout": given.dropout, "attention_dropout": given.dropout}
        overrides = [
            f"recipe.epochs={given.epochs}",
            f"recipe.batch_size={given.batch_size}",
            f"recipe.optimizer.learning_rate={given.learning_rate}",
            f"recipe.bucket_lengths={[*buckets, self.length]}".replace(" ", ""),
            f"recipe.eval_every={given.eval_every}",
            "recipe.eval_batch_size=64",
            "recipe.keep_checkpoints=1",
            "recipe.precision=mixed_bfloat16",
            # The config of the encoder, with the dropout of fine-tuning.
            f"encoder={yaml.safe_dump(encoder, default_flow_style=True, width=9999).strip()}",
            *given.overrides,
            *self.options.override,
        ]
        self.command(
            "official.main",
            f"--mode={'train_and_eval' if given.eval_every else 'train'}",
            f"--config=configs/finetune/{given.config}.yaml",
            f"--data={self.shards.resolve()}",
            f"--init={Path(self.options.init).resolve()}",
            f"--model_dir={self.model.resolve()}",
            *(f"--override={text}" for text in overrides),
        )

    def predict(self, split: str, name: str) -> Path:
        """Writes the predictions of a split, and returns the path of the file or folder."""
        output = self.folder.resolve() / name
        model = self.model
        if self.set.model_of:
            model = Path(self.options.output, self.set.model_of, "model")
            if not model.exists():
                raise SystemExit(
                    f"error: there is no {model}: give --task={self.set.model_of} before "
                    f"--task={self.set.name}, with the same --output"
                )
        self.command(
            "official.main",
            "--mode=predict",
            f"--split={split}",
            f"--data={self.shards.resolve()}",
            f"--model_dir={model.resolve()}",
            f"--output={output}",
        )
        return output


def _cores() -> float:
    """Returns the CPU time of the commands so far, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read_config(init: str) -> dict:
    """Returns the config of a model folder; exits if there is none."""
    path = Path(init, "config.yaml")
    if not path.exists():
        raise SystemExit(f"error: {init} is no model folder: there is no {path}")
    return yaml.safe_load(path.read_text(encoding="utf-8"))
