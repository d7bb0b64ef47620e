"""Reads hostile folders, one for each line of JSON that comes in, and says what came of it.

The address space of this process is limited: what would take more memory than that fails.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from official import config as configs
from official import tokenizers
from official.convert import elmo, huggingface, tf1
from official.data import ShardDataset, each_batch
from official.serving import loaded_model
from official.tasks import tag_files, trec
from official.tasks.task import Columns
from official.utils.errors import UserError
from tfrecords_tools import inspect_shards
from tfrecords_tools.tasks import squad, tables
from tfrecords_tools.text import file_ranges

_COLUMNS, _WORDS = ("sentence", "label"), Columns(text="0", label="-1")
ROOM = 2 << 30  # bytes of addresses beyond those of the start


def _shards(folder: str) -> Any:
    name = Path(__file__).parents[2] / "configs" / "smoke" / "bert.yaml"
    return ShardDataset(folder, configs.load(name), "train")


def _examples(folder: str) -> Any:
    for _ in each_batch(_shards(folder), 64):
        pass


def _verify(folder: str) -> Any:
    problems, _ = inspect_shards.verify_examples(Path(folder))
    if problems:
        raise UserError("; ".join(problems))


READERS = {
    "hf": huggingface.read,
    "tf1": tf1.read,
    "elmo": elmo.read,
    "load": loaded_model.load,
    "tokenizer": tokenizers.load,
    "shards": _shards,
    "examples": _examples,
    "squad": lambda folder: list(squad.read(Path(folder, "train.json"), no_answers=True)),
    "tsv": lambda folder: list(tables.read(Path(folder, "train.tsv"), _COLUMNS)),
    "tsv.gz": lambda folder: list(tables.read(Path(folder, "train.tsv.gz"), _COLUMNS)),
    "jsonl": lambda folder: list(tables.read(Path(folder, "train.jsonl"), _COLUMNS)),
    "jsonl.gz": lambda folder: list(tables.read(Path(folder, "train.jsonl.gz"), _COLUMNS)),
    "conll": lambda folder: list(
        tag_files.read(Path(folder, "train.conll"), Columns(text="0", label="-1"))
    ),
    "run": lambda folder: trec.read_run(Path(folder, "train.run")),
    "qrels": lambda folder: trec.read_qrels(Path(folder, "train.qrels")),
    "verify": _verify,
    "text": lambda folder: list(file_ranges.read_gzipped(Path(folder, "text.txt.gz"), 1 << 20)),
}


def read(folder: str, how: str) -> dict[str, Any]:
    """Reads a folder: whether and how it was refused, in how many MiB and seconds."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
    before, started = _status("VmRSS"), time.monotonic()
    try:
        READERS[how](folder)
        answer = {"read": True}
    except UserError as error:
        answer = {"refused": str(error)[:2000]}
    except Exception as error:  # noqa: BLE001  (what must not be)
        answer = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
    grown = (_status("VmHWM") - before) >> 10
    return {**answer, "mib": grown, "seconds": time.monotonic() - started}


def _status(key: str) -> int:
    """A line of /proc/self/status, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def main() -> None:
    """Answers until the input ends."""
    warm = json.loads(sys.stdin.readline())
    for how, folder in warm.items():
        READERS[how](folder)  # what is imported and set up at the first call
    limit = (_status("VmSize") << 10) + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(read(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
