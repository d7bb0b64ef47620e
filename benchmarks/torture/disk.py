"""Disk full, no inode left and read-only, at any moment of every command that writes.

Where this user may make a mount namespace (`unshare --map-root-user --mount`), the output goes to
a tmpfs of so many pages or inodes, or to one that is read-only. Elsewhere a limit on the size of
files stands for the full disk (RLIMIT_FSIZE), and the other two faults are left out.

A child process in that namespace, this module as a command, runs the commands: one for each line of
JSON (`command`, `fault`, `share`). It answers with the `kind` of its end, or the `problem`.
"""

import functools
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.torture import children, parts
from benchmarks.torture.materials import Materials, smoke_config
from official import config as configs
from official import tokenizers
from official.saving import checkpoints, model_card
from official.utils import atomic
from official.utils.errors import UserError

_NAMESPACE = ["unshare", "--map-root-user", "--mount"]
# What runs out, and how much of it there is, of what the command needs.
FAULTS = [
    ("room", 0.5), ("read_only", 0.0), ("inodes", 0.5),
    *(("room", i / 10) for i in (0, 1, 2, 3, 4, 6, 7, 8, 9)),
    *(("inodes", i / 5) for i in (0, 1, 3, 4)),
]  # fmt: skip
_PAGE = 4096
_PLENTY = 256 << 20
_LOGS = ("metrics.jsonl", "events.out.tfevents")  # which grow line by line
_SECONDS = 600


def commands(materials: Materials) -> dict[str, Callable[[], list[str]]]:
    """The commands that write; OUT is where to. What they read is made when it is needed."""
    text, config = f"--input={materials.text()}", f"--config={smoke_config('bert')}"
    tokenizer = f"--tokenizer={materials.tokenizer('wordpiece')}"
    main = ["official.main"]
    return {
        "train": lambda: [
            *main, "--mode=train", config, f"--data={materials.shards('bert')}", "--model_dir=OUT",
            "--override=recipe.save_every=4",
        ],
        "export": lambda: ["official.export", f"--model_dir={materials.tuned()}", "--output=OUT"],
        "build_shards": lambda: [
            "tfrecords_tools.build_shards", config, text, tokenizer, "--output=OUT", "--workers=1",
            "--num_shards=2",
        ],
        "convert from Hugging Face": lambda: [
            "official.convert", "--source=hf", f"--input={materials.hugging_face()}",
            "--output=OUT",
        ],
        "build_vocab": lambda: [
            "tfrecords_tools.build_vocab", text, "--type=wordpiece", "--vocab_size=150",
            "--output=OUT",
        ],
        "build_task_shards": lambda: [
            "tfrecords_tools.build_task_shards", "--task=sst2", f"--input={materials.labelled()}",
            tokenizer, "--output=OUT",
        ],
        "predict": lambda: [
            *main, "--mode=predict", f"--data={materials.task_shards()}",
            f"--model_dir={materials.tuned()}", "--output=OUT.tsv",
        ],
        "embed": lambda: [
            *main, "--mode=embed", f"--model_dir={materials.model()}",
            f"--texts={materials.text()}", "--output=OUT.npy",
        ],
        "predict for GLUE": lambda: [
            *main, "--mode=predict", f"--data={materials.task_shards()}",
            f"--model_dir={materials.tuned()}", "--submission=OUT",
        ],
        "submission": lambda: [
            "official.commands.submission", f"--input={materials.submission()}", "--output=OUT.zip",
        ],
        "convert to Hugging Face": lambda: [
            "official.convert", "--target=hf", f"--input={materials.tuned()}", "--output=OUT",
        ],
        "build_phrases": lambda: [
            "tfrecords_tools.build_phrases", text, "--output=OUT.txt",
        ],
    }  # fmt: skip


class FullDisks(parts.Part):
    """A case is one fault in one command, and the same command without it."""

    name = "disk"
    things = "writes to a disk that is full or read-only"
    promise = "an error in words, nothing half-written, the same command then succeeds"
    whole, quick = 12 * len(FAULTS), 3

    def __init__(
        self,
        seed: int,
        materials: Materials,
        result: Callable[[Materials], dict[str, Callable[[], list[str]]]] = commands,
    ):
        super().__init__(seed)
        self._materials, self._made = materials, result
        self.child: subprocess.Popen | None = None

    def run(self, case: int) -> parts.Outcome:
        """Runs a command under a fault."""
        outcome = parts.Outcome()
        made = self._made(self._materials)
        name = list(made)[case % len(made)]
        fault, share = FAULTS[case // len(made) % len(FAULTS)]
        question = {"command": made[name](), "fault": fault, "share": share}
        answer = self._ask(question)
        if problem := answer.get("problem"):
            outcome.fail(f"{name}, {fault} {share}: {problem}")
        else:
            outcome.add(answer["kind"])
        return outcome

    def _ask(self, question: dict) -> dict:
        if self.child is None or self.child.poll() is not None:
            child = children.command("benchmarks.torture.disk")
            allowed = not subprocess.run(
                [*_NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True
            ).returncode
            words = [*_NAMESPACE, *child, "tmpfs"] if allowed else [*child, "limit"]
            self.child = children.start(words, stdin=subprocess.PIPE, stderr=None)
        print(json.dumps(question), file=self.child.stdin, flush=True)
        return json.loads(self.child.stdout.readline())


class Disk:
    """A place for the output of one command, of which there can be little.

    Args:
      kind: `tmpfs`, or `limit` where nothing can be mounted.
    """

    def __init__(self, kind: str):
        self._kind = kind
        self._scratch = tempfile.TemporaryDirectory(prefix="disk-")
        self.path = Path(self._scratch.name)
        self._limit = resource.RLIM_INFINITY
        if kind == "tmpfs":
            _run("mount", "-t", "tmpfs", "-o", f"size={_PLENTY}", "tmpfs", str(self.path))

    def used(self) -> dict[str, int]:
        """Bytes and inodes that are taken; of a limit, the bytes of the largest file."""
        actual = os.statvfs(self.path)
        if self._kind == "tmpfs":
            room = (actual.f_blocks - actual.f_bfree) * actual.f_frsize
            return {"room": room, "inodes": actual.f_files - actual.f_ffree - 1}
        sizes = [path.stat().st_size for path in self.path.rglob("*") if path.is_file()]
        return {"room": max(sizes), "inodes": 0}

    def shrink(self, fault: str, amount: int) -> None:
        """Leaves so much of something."""
        if self._kind == "limit":
            self._limit = amount
        elif fault == "room":
            pages = max(1, amount // _PAGE)
            _run("mount", "-o", f"remount,size={pages * _PAGE}", str(self.path))
            if not amount // _PAGE:
                (self.path / ".filler").write_bytes(bytes(_PAGE))
        elif fault == "inodes":
            # The root has one, and a tmpfs has two at least.
            _run("mount", "-o", f"remount,nr_inodes={max(2, amount + 1)}", str(self.path))
            if not amount:
                (self.path / ".filler").touch()
        else:
            _run("mount", "-o", "remount,ro", str(self.path))

    def grow(self) -> None:
        """Leaves plenty of everything."""
        self._limit = resource.RLIM_INFINITY
        if self._kind == "tmpfs":
            options = f"remount,rw,size={_PLENTY},nr_inodes=100000"
            _run("mount", "-o", options, str(self.path))
            (self.path / ".filler").unlink(missing_ok=True)

    def run(self, command: list[str]) -> tuple[int, str]:
        """Runs a command that writes to this disk; returns its status and its output."""
        words = [word.replace("OUT", str(self.path / "out")) for word in command]
        limits = self._limit, resource.RLIM_INFINITY
        with tempfile.TemporaryDirectory(prefix="log-") as scratch:
            log = Path(scratch, "log")
            os.mkfifo(log)  # which has no limit on its size
            with open(os.open(log, os.O_RDONLY | os.O_NONBLOCK), errors="replace") as stream:
                limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
                status = children.Fork(words, log, before=limit).wait(_SECONDS)
                return status, stream.read()

    def files(self) -> dict[str, str]:
        """The SHA-256 of each file, by name; logs are left out."""
        return {
            str(path.relative_to(self.path)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.path.rglob("*"))
            if path.is_file() and not path.name.startswith((*_LOGS, ".filler"))
        }

    def close(self) -> None:
        """Gives it back."""
        if self._kind == "tmpfs":
            _run("umount", str(self.path))
        self._scratch.cleanup()


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")


_WHOLE: dict[str, tuple[dict[str, int], dict[str, str]]] = {}


def _whole(kind: str, command: list[str]) -> tuple[dict[str, int], dict[str, str]]:
    """What a command takes where there is plenty, and the files that it makes."""
    key = " ".join(command)
    if key not in _WHOLE:
        disk = Disk(kind)
        status, output = disk.run(command)
        if status:
            raise RuntimeError(f"{key}: {output[-500:]}")
        _WHOLE[key] = disk.used(), disk.files()
        disk.close()
    return _WHOLE[key]


def answer(kind: str, command: list[str], fault: str, share: float) -> dict[str, Any]:
    """Runs a command under a fault and then without it."""
    if kind == "limit" and fault != "room":
        return {"kind": "not tried: no mount namespace here"}
    needed, files = _whole(kind, command)
    disk = Disk(kind)
    try:
        disk.shrink(fault, int(share * needed.get(fault, 0)))
        status, output = disk.run(command)
        if problem := find_problem(status, output, disk, files):
            return {"problem": problem}
        disk.grow()
        again, output = disk.run(command)
        if again:
            return {"problem": f"the same command fails afterwards: {output[-300:]}"}
        if problem := _other_files(disk.files(), files, command):
            return {"problem": f"afterwards: {problem}"}
        return {"kind": "succeeded all the same" if status == 0 else "refused"}
    finally:
        disk.close()


def find_problem(status: int, output: str, disk: Disk, files: dict[str, str]) -> str | None:
    """What is wrong with the end of a command and with what it left."""
    if status not in (0, 2) or "Traceback" in output:
        return f"status {status}: {output[-400:]}"
    if status == 2 and not output.rpartition("error: ")[2].strip():
        return f"no message: {output[-300:]}"
    for name, digest in disk.files().items():
        if any(part.startswith(atomic.PREFIX) for part in Path(name).parts):
            return f"left behind: {name}"
        if name.endswith(f"/{model_card.FILE}"):
            continue  # of an earlier checkpoint, maybe
        if files.get(name) != digest and "checkpoints/" not in name:
            return f"half-written: {name}"
    return _damaged(disk.path / "out")


def _damaged(folder: Path) -> str | None:
    """What is not whole in a model folder, if it is one."""
    try:
        if (folder / "config.yaml").exists():
            configs.load(folder / "config.yaml")
        if (folder / "tokenizer").exists() and any((folder / "tokenizer").iterdir()):
            tokenizers.load(folder / "tokenizer")
        for path in (folder / "checkpoints").glob("step-*"):
            checkpoints.load_variables(folder, str(int(path.name.removeprefix("step-"))))
        if (card := folder / model_card.FILE).exists():
            text = card.read_text(encoding="utf-8")
            if not (text.startswith(model_card.MARK) and text.endswith("```\n")):
                return f"half-written: {card.name}"
    except UserError as error:
        return str(error)
    return None


def _other_files(actual: dict[str, str], files: dict[str, str], command: list[str]) -> str | None:
    """Which files are not those of a command that nothing went wrong with."""
    if actual.keys() != files.keys():
        return f"other files: {', '.join(sorted(actual.keys() ^ files.keys())[:4])}"
    if command[0] == "official.export":
        return None  # TensorFlow does not write the same graph in the same bytes each time
    unlike = [name for name, digest in files.items() if actual[name] != digest]
    return f"other bytes in {', '.join(unlike[:4])}" if unlike else None


def main(kind: str) -> None:
    """Answers until the input ends."""
    for line in sys.stdin:
        try:
            result = answer(kind, **json.loads(line))
        except (RuntimeError, TimeoutError) as error:
            result = {"problem": f"not tried: {error}"}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
