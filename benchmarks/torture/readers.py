"""How each kind of file is read when its bits are flipped, and what is compared of it.

`ours` are files with checksums: what is read of a damaged one is refused, or equal to what was
written. `foreign` are those of other tools, which carry none: a flip may leave another valid file.
Then what is read may differ where the file says otherwise, and nowhere else.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torture.materials import Materials, smoke_config
from official import config as configs
from official import tokenizers
from official.convert import converted_model, huggingface, tf1
from official.data import ShardDataset
from official.saving import checkpoints, model_folder
from official.shards import manifest
from official.training import reporting


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
        Reader("task.json", materials.tuned(), ("task.json",), model_folder.task, 3),
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
