"""Hostile folders are refused in words, in bounded memory and time, and run nothing.

A child process, this module as a command, reads the folders: one for each line of JSON that comes
in, and says what came of it. Its address space is limited: what would take more memory than that
fails.
"""

import functools
import json
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.torture import children, hostile_folders, hostile_weights, parts
from benchmarks.torture.materials import Materials
from official import config as configs
from official import tokenizers
from official.conversion import elmo, huggingface, tf1
from official.data import ShardDataset, each_batch
from official.serving import loaded_model
from official.tasks import tag_files, trec
from official.tasks.task import Columns
from official.utils import input_files
from official.utils.errors import UserError
from tfrecords_tools import inspect_shards
from tfrecords_tools.tasks import span, tables
from tfrecords_tools.text import file_ranges

_MAX_MIB = 256
_MAX_SECONDS = 20.0
ROOM = 2 << 30  # bytes of addresses beyond those of the start
CASES = (
    *hostile_folders.CASES,
    *hostile_weights.TORCH_CASES,
    *hostile_weights.ELMO_CASES,
    *hostile_folders.EXAMPLE_CASES,
    *hostile_folders.TASK_CASES,
)


def copy(case: hostile_folders.Case, materials: Materials, folder: Path) -> None:
    """Makes the hostile folder."""
    sources = {
        "hf": materials.hugging_face,
        "tf1": materials.tf1,
        "model": materials.tuned,
        "shards": lambda: materials.shards("bert"),
        "unigram": lambda: materials.tokenizer("unigram"),
        "byte_bpe": lambda: materials.tokenizer("byte_bpe"),
        "text": materials.labelled,
        "elmo": materials.elmo,
        "tasks": materials.tasks,
    }
    shutil.copytree(sources[case.source](), folder)
    case.spoil(folder)


class Hostile(parts.Part):
    """Each hostile folder is one case."""

    name = "hostile"
    things = "hostile folders"
    promise = f"refused in words, within {_MAX_MIB} MiB; no code runs"
    whole = quick = len(CASES)

    def __init__(
        self,
        seed: int,
        materials: Materials,
        cases: Sequence[hostile_folders.Case] = CASES,
        child: str = "benchmarks.torture.hostile",
    ):
        super().__init__(seed)
        self._materials, self._cases, self._module = materials, cases, child
        self.child: subprocess.Popen | None = None

    def run(self, case: int) -> parts.Outcome:
        """Makes a folder and has it read by a child process."""
        outcome, hostile = parts.Outcome(), self._cases[case % len(self._cases)]
        with tempfile.TemporaryDirectory(prefix="hostile-") as scratch:
            folder = Path(scratch) / "folder"
            copy(hostile, self._materials, folder)
            answer = self._ask({"folder": str(folder), "how": hostile.how})
            if list(Path(scratch).rglob(hostile_folders.TRACE)):
                answer = {"error": "hostile code ran"}
        if problem := _problem(answer, hostile, str(folder)):
            outcome.fail(f"{hostile.name}: {problem}")
        else:
            outcome.add("refused" if "refused" in answer else "read without what is hostile in it")
        return outcome

    def _ask(self, question: dict) -> dict:
        """The child's answer; one that is late or dies is replaced."""
        if self.child is None or self.child.poll() is not None:
            self.child = children.start(
                children.command(self._module), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            shards = functools.partial(self._materials.shards, "bert")
            good = {
                "hf": self._materials.hugging_face,
                "tf1": self._materials.tf1,
                "elmo": self._materials.elmo,
                "load": self._materials.tuned,
                **dict.fromkeys(("shards", "examples", "verify"), shards),
            }
            needed = {case.how for case in self._cases}
            self._send({how: str(make()) for how, make in good.items() if how in needed}, 120.0)
        return self._send(question, 3 * _MAX_SECONDS)

    def _send(self, question: dict, seconds: float) -> dict:
        print(json.dumps(question), file=self.child.stdin, flush=True)
        ready, _, _ = select.select([self.child.stdout], [], [], seconds)
        answer = self.child.stdout.readline() if ready else ""
        if answer:
            return json.loads(answer)
        self.child.kill()
        status = self.child.wait()
        return {"error": f"the process died ({status})" if ready else f"no end after {seconds} s"}


def _problem(answer: dict, hostile: hostile_folders.Case, folder: str) -> str | None:
    """What is wrong with an answer."""
    if "error" in answer:
        return answer["error"]
    if "read" in answer and not hostile.harmless:
        return "read as if it were good"
    if "refused" in answer and folder not in answer["refused"]:
        return f"the message names no file: {answer['refused']}"
    if answer["mib"] > _MAX_MIB:
        return f"took {answer['mib']:,} MiB"
    if answer["seconds"] > _MAX_SECONDS:
        return f"took {answer['seconds']:.0f} s"
    return None


_COLUMNS, _WORDS = ("sentence", "label"), Columns(text="0", label="-1")


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
    "squad": lambda folder: list(span.read(Path(folder, "train.json"), no_answers=True)),
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
    "text": lambda folder: list(
        file_ranges.read_packed(input_files.seen(Path(folder, "text.txt.gz")), 1 << 20)
    ),
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
