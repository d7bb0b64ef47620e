"""Single bits of files are flipped, and files are cut: refused in words, or harmless.

A `Reader` says how a kind of file is read, and what of it is compared. What is read of our files,
which have checksums, is refused or equal to what was written. Files of other tools (`foreign`) have
none, and a flip may leave another valid file. Then what is read may differ where the file says
otherwise, and nowhere else.
"""

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torture import parts
from benchmarks.torture.materials import Materials, smoke_config
from official import config as configs
from official import tokenizers
from official.conversion import converted_model, huggingface, tf1
from official.data import ShardDataset
from official.saving import checkpoints, task_file
from official.shards import manifest
from official.training import reporting
from official.utils.errors import UserError

_CUT = 0.2  # of the damages; the others flip a bit


@dataclasses.dataclass(frozen=True)
class Reader:
    """A folder whose files are damaged, and how it is read.

    Attributes:
      name: for the report.
      folder: the whole one.
      files: patterns of the files that are damaged.
      read: from a folder to what can be compared.
      share: how many of a hundred flips are its.
      foreign: whether the files are another tool's.
      blocks: whether a bit may say where all numbers of a variable are, or in which order their
        bytes: then all of them are others.
    """

    name: str
    folder: Path
    files: tuple[str, ...]
    read: Callable[[Path], Any]
    share: int
    foreign: bool = False
    blocks: bool = False

    def paths(self) -> list[Path]:
        """The files, from the folder on."""
        actual = sorted(p for pattern in self.files for p in self.folder.glob(pattern))
        return [path.relative_to(self.folder) for path in actual]


def readers(materials: Materials) -> list[Reader]:
    """All of them."""
    shards = ("*.tfrecord", "*.npy")
    describing = ("manifest.json", "tokenizer/*")
    stored = ("checkpoints/*/variables.safetensors",)
    state = ("checkpoints/*/state.json", "checkpoints/best.json")
    bert, task, model = materials.shards("bert"), materials.task_shards(), materials.model()
    kinds = {kind: materials.tokenizer(kind) for kind in ("wordpiece", "byte_bpe", "unigram")}
    return [
        Reader("shards", bert, shards, _pretraining_shards, 20),
        Reader("manifest and tokenizer of shards", bert, describing, _pretraining_shards, 10),
        Reader("shards of a task", task, ("*.tfrecord", *describing), _task_shards, 10),
        *(
            Reader(f"tokenizer ({kind})", folder, ("*",), read_tokenizer, 5)
            for kind, folder in kinds.items()
        ),
        Reader("variables of checkpoints", model, stored, _checkpoints, 10),
        Reader("state of checkpoints", model, state, _checkpoints, 12),
        Reader("config.yaml", model, ("config.yaml",), configs.load, 8),
        Reader("task.json", materials.tuned(), ("task.json",), task_file.read, 3),
        Reader("metrics.jsonl", model, ("metrics.jsonl",), _metrics, 1),
        Reader("TF1 checkpoint", materials.tf1(), ("*.ckpt.*",), _tf1, 4),
        Reader("TF1 config and vocabulary", materials.tf1(), ("*.json", "*.txt"), _tf1, 2, True),
        Reader("Hugging Face files", materials.hugging_face(), ("*",), _hugging_face, 5, True),
        *(
            Reader(f"file of torch ({kind})", folder, ("*.bin",), _hugging_face, 3, True)
            for kind, folder in {
                "archive": materials.torch(old=False),
                "old": materials.torch(old=True),
            }.items()
        ),
        Reader("tf_model.h5", materials.keras(), ("*.h5",), _hugging_face, 3, True, True),
    ]


def _pretraining_shards(folder: Path) -> Any:
    return _shards(folder, configs.load(smoke_config("bert")), "train")


def _task_shards(folder: Path) -> Any:
    config = configs.load(smoke_config("bert").parents[1] / "finetune" / "classification.yaml")
    return [_shards(folder, config, split) for split in ("train", "validation", "test")]


def _shards(folder: Path, config: configs.Config, split: str) -> Any:
    source = ShardDataset(folder, config, split)
    rows = [{k: v.numpy() for k, v in batch.items()} for batch in source.dataset(64)]
    return manifest.read(folder), read_tokenizer(folder / "tokenizer"), rows


def read_tokenizer(folder: Path) -> Any:
    """Returns what a tokenizer folder says."""
    tokenizer = tokenizers.load(folder)
    return tokenizer.fingerprint, tokenizer.pieces, tokenizer.special_ids


def _checkpoints(folder: Path) -> Any:
    return [
        [
            checkpoints.load_variables(folder, which, optimizer=True),
            checkpoints.load_state(checkpoints.find(folder, which)),
            checkpoints.best(folder),
        ]
        for which in ("10", "last", "best")
    ]


def _metrics(folder: Path) -> Any:
    # A log: a run that goes on reads which steps stand there.
    reporting.Reporter(folder, total_steps=20, start_step=10)


def _hugging_face(folder: Path) -> Any:
    return _converted(huggingface.read(folder))


def _tf1(folder: Path) -> Any:
    return _converted(tf1.read(folder))


def _converted(result: converted_model.Converted) -> Any:
    config = configs.to_dict(dataclasses.replace(result.config, name=""))
    tokenizer = result.tokenizer
    return {
        "config": config,
        "pieces": tokenizer.pieces,
        "tokenizer": [tokenizer.special_ids, json.dumps(tokenizer._decides())],
        "variables": dict(result.variables),
    }


def same(a: Any, b: Any) -> bool:
    """Whether two things that were read are equal to the bit."""
    return not differences(a, b)


def differences(a: Any, b: Any, place: str = "") -> list[str]:
    """The places where two things that were read differ, each value and element one."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = dict.fromkeys([*a, *b])
        return [d for key in keys for d in _of_key(a, b, key, f"{place}/{key}")]
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            return [f"{place}: {len(a)} and {len(b)} items"]
        return [
            d
            for i, pair in enumerate(zip(a, b, strict=True))
            for d in differences(*pair, f"{place}/{i}")
        ]
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return [f"{place}: {a.dtype} {a.shape} and {b.dtype} {b.shape}"]
        if a.tobytes() == b.tobytes():
            return []
        unlike = np.frombuffer(a.tobytes(), np.uint8) != np.frombuffer(b.tobytes(), np.uint8)
        elements = np.unique(np.flatnonzero(unlike) // a.dtype.itemsize)
        return [f"{place}: element {i}" for i in elements.tolist()]
    if dataclasses.is_dataclass(a) and type(a) is type(b):
        return differences(vars(a), vars(b), place)
    return [] if type(a) is type(b) and (a == b) else [f"{place}: {a!r} and {b!r}"[:200]]


def _of_key(a: dict, b: dict, key: Any, place: str) -> list[str]:
    if key in a and key in b:
        return differences(a[key], b[key], place)
    return [f"{place}: in one alone"]


class Flips(parts.Part):
    """Flips and truncations over all files that are read."""

    name = "flips"
    things = "single-bit flips and truncations"
    promise = "refused in words, or what is read is equal"
    whole, quick = 10_000, 600

    def __init__(
        self,
        seed: int,
        materials: Materials,
        result: Callable[[Materials], Sequence[Reader]] = readers,
    ):
        super().__init__(seed)
        self._materials, self._made = materials, result
        self._readers: list[tuple[Reader, Path, object]] = []
        self._scratch = tempfile.TemporaryDirectory(prefix="flips-")

    def run(self, case: int) -> parts.Outcome:
        """Damages one file and reads it."""
        outcome = parts.Outcome()
        rng = self.rng(case)
        reader, folder, whole = self._choose(int(rng.integers(100)))
        files = reader.paths()
        file = folder / files[rng.integers(len(files))]
        original = file.read_bytes()
        damaged = bytearray(original)
        if rng.random() < _CUT:
            del damaged[rng.integers(len(original)) :]
            what = f"cut at byte {len(damaged)} of {len(original)}"
        else:
            bit = int(rng.integers(8 * len(original)))
            damaged[bit // 8] ^= 1 << (bit % 8)
            what = f"bit {bit % 8} of byte {bit // 8} flipped"
        what = f"{reader.name}, {file.relative_to(folder)}, {what}"
        file.write_bytes(damaged)
        try:
            converted = reader.read(folder)
        except UserError as error:
            if str(folder) in str(error) or file.name in str(error):
                outcome.add("refused")
            else:
                outcome.fail(f"{what}: the message names no file: {error}")
        except Exception as error:  # noqa: BLE001  (any other is what must not be)
            outcome.fail(f"{what}: {type(error).__name__}: {str(error)[:300]}")
        else:
            unlike = differences(whole, converted)
            if not unlike:
                outcome.add("harmless")
            elif reader.foreign and _is_one(unlike, reader.blocks):
                outcome.add("as the file says")
            else:
                outcome.fail(f"{what}: read otherwise: {'; '.join(unlike[:4])}")
        finally:
            file.write_bytes(original)
        return outcome

    def _choose(self, percent: int) -> tuple[Reader, Path, object]:
        """A reader by its share, the copy of its folder, and what is read of the whole one."""
        if not self._readers:
            for number, reader in enumerate(self._made(self._materials)):
                copy = Path(self._scratch.name) / str(number)
                shutil.copytree(reader.folder, copy)
                self._readers.append((reader, copy, reader.read(copy)))
        total = sum(reader.share for reader, _, _ in self._readers)
        place = percent * total / 100
        for actual in self._readers:
            place -= actual[0].share
            if place < 0:
                return actual
        return self._readers[-1]


def _is_one(unlike: Sequence[str], blocks: bool) -> bool:
    """Whether what differs is one value of a file, wherever it goes, or one variable."""
    if blocks and len({place.partition(":")[0] for place in unlike}) == 1:
        return True
    heads = [place.split("/")[1] for place in unlike]
    # Of two equal lines of a vocabulary, the last one is the piece (as in transformers).
    if heads == ["pieces", "pieces"] and any("'[line" in place for place in unlike):
        return True
    # A piece with another spelling may no longer be a special token.
    return {*heads} == {"config"} or heads in (["pieces", "tokenizer"], heads[:1])
