"""What the parts work on: text, tokenizers, shards, models; each made once, when it is needed.

All of it is made by the project's own commands from a made-up language of a few hundred words, in a
folder that the next run finds again.
"""

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import environments
from benchmarks.torture import children
from official.utils import atomic, host_seeding

# Published system → kind and size of the vocabulary of its smoke training.
SYSTEMS = {
    "bert": ("wordpiece", 150),
    "roberta": ("byte_bpe", 350),
    "spanbert": ("wordpiece", 150),
    "ernie": ("wordpiece", 150),
    "albert": ("unigram", 100),
    "gpt2": ("byte_bpe", 350),
    "electra": ("wordpiece", 150),
    "deberta_v3": ("unigram", 100),
    "modernbert": ("byte_bpe", 350),
    "xlnet": ("unigram", 100),
    "transformer_xl": ("wordpiece", 150),
}
# The four kinds of tokenizers, each with the size that the table above has for it.
SIZES = {**dict(SYSTEMS.values()), "bpe": 100}
ROWS = 60  # of a table, in each split
SERVED_LENGTH = 128  # tokens that a served encoder reads
_WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in "aeiou"]


def documents(count: int, seed: int = 0) -> list[list[str]]:
    """Documents of a few sentences of made-up words, with capitals and signs."""
    rng = host_seeding.numpy_rng(seed)

    def sentence() -> str:
        words = ["".join(rng.choice(_WORDS, rng.integers(1, 3))) for _ in range(rng.integers(3, 9))]
        return " ".join(words).capitalize() + str(rng.choice([".", "?", " !"]))

    result = [[sentence() for _ in range(rng.integers(2, 9))] for _ in range(count)]
    for lines in result:
        lines[0] += " tada kobu"  # two words that often go together: a phrase
    return result


class Materials:
    """The folder of materials."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()

    @contextlib.contextmanager
    def _made(self, name: str) -> Iterator[Path | None]:
        """Yields where to make something, or None where it is there; one process makes it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = self.folder / f".{name.replace('/', '-')}.lock"
        with open(lock, "w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if (self.folder / name).exists():
                yield None
                return
            yield self.folder / name

    def text(self) -> Path:
        """Text of 300 documents."""
        with self._made("text.txt") as path:
            if path:
                with atomic.file(path) as stream:
                    stream.write("\n\n".join("\n".join(lines) for lines in documents(300)) + "\n")
        return self.folder / "text.txt"

    def labelled(self, count: int = ROWS) -> Path:
        """A folder with train.tsv, dev.tsv and test.tsv of SST-2's form, of so many rows each."""
        folder_name = f"labelled-{count}"
        with self._made(folder_name) as path:
            if path:
                with atomic.folder(path) as folder:
                    for number, name in enumerate(("train", "dev", "test")):
                        rows = [lines[0] for lines in documents(count, seed=number + 1)]
                        head = "index\tsentence" if name == "test" else "sentence\tlabel"
                        row = "{i}\t{s}" if name == "test" else "{s}\t{y}"
                        lines = [
                            row.format(i=i, s=s, y=int("ta" in s.split()[0]))
                            for i, s in enumerate(rows)
                        ]
                        (folder / f"{name}.tsv").write_text("\n".join([head, *lines]) + "\n")
        return self.folder / folder_name

    def tokenizer(self, kind: str) -> Path:
        """A tokenizer folder of a kind of `SIZES`."""
        name = f"tokenizer-{kind}"
        with self._made(name) as path:
            if path:
                from tfrecords_tools.vocabulary import builder

                builder.build(str(self.text()), path, kind, SIZES[kind])
        return self.folder / name

    def fuzzed_tokenizer(self, kind: str) -> Path:
        """A tokenizer folder of a kind of `SIZES`, learned from fuzzed lines."""
        name = f"fuzzed-{kind}"
        with self._made(name) as path:
            if path:
                from benchmarks.torture import lines
                from tfrecords_tools.vocabulary import builder

                text = path.with_name("fuzzed.txt")
                result = lines.lines(host_seeding.numpy_rng(1), 20_000)
                text.write_bytes(b"\n".join(filter(lines.is_utf8, result)))
                lower = kind == "wordpiece"
                # SentencePiece has all characters but the rarest 2% in its vocabulary.
                size = 20_000 if kind in ("unigram", "bpe") else 5000
                builder.build(str(text), path, kind, size, lower, coverage=0.98)
        return self.folder / name

    def served(self, kind: str, objective: str) -> Path:
        """A SavedModel of a tiny encoder with a fuzzed tokenizer: of vectors, or of answers."""
        name = f"served-{kind}-{objective}"
        with self._made(name) as path:
            if path:
                _export_served(self.fuzzed_tokenizer(kind), objective, path)
        return self.folder / name

    def phrases(self) -> Path:
        """A lexicon of phrases."""
        with self._made("phrases.txt") as path:
            if path:
                from tfrecords_tools.vocabulary import phrases

                phrases.build(str(self.text()), path)
        return self.folder / "phrases.txt"

    def shards(self, system: str) -> Path:
        """The shard folder of a system's smoke training."""
        name = f"shards-{system}"
        with self._made(name) as path:
            if path:
                from official import config
                from tfrecords_tools.pretraining import builder
                from tfrecords_tools.pretraining.settings import Settings

                settings = Settings.from_config(
                    config.load(smoke_config(system)),
                    self.tokenizer(SYSTEMS[system][0]),
                    phrases=self.phrases() if system == "ernie" else None,
                )
                builder.build(
                    settings, str(self.text()), path, num_shards=2, report=lambda line: None
                )
        return self.folder / name

    def task_shards(self, count: int = ROWS) -> Path:
        """The shard folder of a classification in three splits, of so many rows each."""
        name = f"shards-task-{count}"
        with self._made(name) as path:
            if path:
                from official import tasks, tokenizers
                from tfrecords_tools.tasks import builder as task_builder

                task = tasks.find("sst2")
                source = self.labelled(count)
                task_builder.build(
                    task,
                    {split: source / file for split, file in task.files.items()},
                    tokenizers.load(self.tokenizer("wordpiece")),
                    path,
                    max_length=64,
                    report=lambda line: None,
                )
        return self.folder / name

    def submission(self) -> Path:
        """A folder with all files that GLUE takes."""
        with self._made("submission") as path:
            if path:
                from official import tasks

                with atomic.folder(path) as folder:
                    for task in tasks.TASKS.values():
                        value = task.values[0] if task.values else "1.000"
                        for split in task.submissions.values():
                            rows = (f"{row}\t{value}\n" for row in range(split.rows))
                            (folder / split.file).write_text("index\tprediction\n" + "".join(rows))
        return self.folder / "submission"

    def model(self) -> Path:
        """A BERT that was pretrained for a few steps and evaluated."""
        return self._trained(
            "model-bert",
            f"--config={smoke_config('bert')}",
            f"--data={self.shards('bert')}",
            f"--validation_data={self.shards('bert')}",
            "--override=recipe.eval_every=10",
            "--override=recipe.eval_batches=1",
        )

    def tuned(self) -> Path:
        """The same BERT, which has learned a classification."""
        return self._trained(
            "model-task",
            f"--config={environments.ROOT}/configs/finetune/classification.yaml",
            f"--data={self.task_shards()}",
            f"--init={self.model()}",
            "--override=recipe.bucket_lengths=[]",
        )

    def _trained(self, name: str, *options: str) -> Path:
        with self._made(name) as path:
            if path:
                with atomic.folder(path) as folder:
                    children.run(
                        "official.main",
                        "--mode=train_and_eval",
                        *options,
                        f"--model_dir={folder / 'model'}",
                    )
                    for child in (folder / "model").iterdir():
                        child.rename(folder / child.name)
                    (folder / "model").rmdir()
        return self.folder / name

    def hugging_face(self) -> Path:
        """The pretrained BERT as Hugging Face's tools have it."""
        with self._made("hf-bert") as path:
            if path:
                from official.conversion import huggingface

                huggingface.write(self.model(), path, "last")
        return self.folder / "hf-bert"

    def torch(self, old: bool) -> Path:
        """The same with a file of torch, in its format or in the old one."""
        name = f"torch-bert-{'old' if old else 'archive'}"
        with self._made(name) as path:
            if path:
                from benchmarks.torture import foreign_files

                with atomic.folder(path) as folder:
                    shutil.copytree(self.hugging_face(), folder, dirs_exist_ok=True)
                    write = foreign_files.old_torch if old else foreign_files.torch_archive
                    foreign_files.to_torch(folder, write)
        return self.folder / name

    def keras(self) -> Path:
        """The same as classes of TensorFlow have saved it."""
        with self._made("keras-bert") as path:
            if path:
                from benchmarks.torture import foreign_files

                with atomic.folder(path) as folder:
                    shutil.copytree(self.hugging_face(), folder, dirs_exist_ok=True)
                    foreign_files.to_keras(folder)
        return self.folder / "keras-bert"

    def tf1(self) -> Path:
        """The same as a folder of the TF1 release: bert_config.json, vocab.txt, a checkpoint."""
        with self._made("tf1-bert") as path:
            if path:
                from benchmarks.torture import foreign_files

                with atomic.folder(path) as folder:
                    foreign_files.write_tf1(self.model(), folder)
        return self.folder / "tf1-bert"

    def elmo(self) -> Path:
        """A folder of ELMo's release: options.json, weights.hdf5 and a vocabulary."""
        with self._made("elmo") as path:
            if path:
                from benchmarks.torture import foreign_files

                with atomic.folder(path) as folder:
                    foreign_files.write_elmo(folder)
        return self.folder / "elmo"

    def tasks(self) -> Path:
        """A folder with a small file of each format of tasks."""
        with self._made("tasks") as path:
            if path:
                from benchmarks.torture import hostile_folders

                with atomic.folder(path) as folder:
                    hostile_folders.write_tasks(folder)
        return self.folder / "tasks"


def smoke_config(system: str) -> Path:
    """The config of a system's smoke training."""
    return environments.ROOT / "configs" / "smoke" / f"{system}.yaml"


def _export_served(tokenizer: Path, objective: str, output: Path) -> None:
    """Exports an encoder with first weights.

    Args:
      tokenizer: its folder.
      objective: `vectors` for the encoder alone, `answer` for questions and contexts.
      output: the folder of the SavedModel.
    """
    from official import config as configs
    from official import tokenizers
    from official.saving import checkpoints, model_folder
    from official.serving.export import saved_model

    loaded = tokenizers.load(tokenizer)
    config = configs.from_dict(
        {
            "name": "served",
            "encoder": {
                "type": "transformer",
                "vocab_size": loaded.vocab_size,
                "hidden_size": 8,
                "num_layers": 1,
                "num_heads": 1,
                "intermediate_size": 8,
                "max_positions": SERVED_LENGTH,
                "initializer_range": 1.0,  # so that another id gives quite another vector
            },
            "objectives": [{"type": "span_answer"}] if objective == "answer" else [],
        }
    )
    with tempfile.TemporaryDirectory() as scratch:
        model_dir = Path(scratch)
        configs.save(config, model_dir / "config.yaml")
        loaded.save(model_dir / "tokenizer")
        variables = model_folder.build(config).variables_by_path()
        arrays = {path: np.asarray(variable) for path, variable in variables.items()}
        checkpoints.save(model_dir, 0, arrays, {})
        saved_model.export(model_dir, output)
