"""Inputs that another program changes at random moments while a command reads them.

A file is cut, written again, extended, replaced or removed once some process of the command has
opened it. The command refuses it by its name, or writes what it writes of a file that stays.
"""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.torture import children, kills, parts
from benchmarks.torture.materials import Materials, smoke_config

POINTS = 10  # of each command
# So much that reading takes a while.
_COPIES = 40  # of the text
_ROWS = 6000  # of a table
_SECONDS = 600.0


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _overwrite(path: Path) -> None:
    """The same number of bytes, a second later."""
    status = path.stat()
    path.write_bytes(path.read_bytes().swapcase())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


def _extend(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


def _replace(path: Path) -> None:
    other = path.with_name("other-file")
    other.write_bytes(path.read_bytes()[:-20])
    os.replace(other, path)


CHANGES: dict[str, Callable[[Path], None]] = {
    "truncated": _cut,
    "overwritten": _overwrite,
    "grown": _extend,
    "replaced": _replace,
    "removed": Path.unlink,
}


def commands(materials: Materials) -> dict[str, Callable[[Path], tuple[list[str], Path]]]:
    """The commands that read: from a folder to the words, and to the file that will be changed.

    What a command reads is copied to this folder, where its output goes too: OUT.
    """

    def of_text(*words: str) -> Callable[[Path], tuple[list[str], Path]]:
        def make(folder: Path) -> tuple[list[str], Path]:
            text = folder / "text.txt"
            text.write_bytes(b"\n".join([materials.text().read_bytes()] * _COPIES))
            return [*words, f"--input={text}"], text

        return make

    def of_texts(*words: str) -> Callable[[Path], tuple[list[str], Path]]:
        def make(folder: Path) -> tuple[list[str], Path]:
            texts = shutil.copy(materials.text(), folder / "texts.txt")
            read = [f"--model_dir={materials.model()}", f"--texts={texts}"]
            return ["official.main", "--mode=embed", *read, *words], texts

        return make

    def of_table(folder: Path) -> tuple[list[str], Path]:
        shutil.copytree(materials.labelled(_ROWS), folder / "labelled")
        table = folder / "labelled" / "train.tsv"
        words = ["--task=sst2", f"--input={table.parent}", tokenizer(), "--output=OUT"]
        return ["tfrecords_tools.build_task_shards", *words], table

    def of_shards(*words: str) -> Callable[[Path], tuple[list[str], Path]]:
        def make(folder: Path) -> tuple[list[str], Path]:
            shutil.copytree(materials.task_shards(_ROWS), folder / "shards")
            (shard,) = (folder / "shards").glob("validation-*.tfrecord")
            return [*words, f"--data={folder / 'shards'}"], shard

        return make

    def tokenizer() -> str:
        return f"--tokenizer={materials.tokenizer('wordpiece')}"

    def shards(*words: str) -> list[str]:
        config = f"--config={smoke_config('bert')}"
        return ["tfrecords_tools.build_shards", config, tokenizer(), "--output=OUT", *words]

    vocabulary = ["tfrecords_tools.build_vocab", "--type=wordpiece", "--vocab_size=150"]
    return {
        "build_vocab": of_text(*vocabulary, "--output=OUT"),
        "build_phrases": of_text("tfrecords_tools.build_phrases", "--output=OUT.txt"),
        "build_shards": of_text(*shards()),
        "build_shards in two processes": of_text(*shards("--workers=2")),
        "build_shards with filters": of_text(*shards("--deduplicate=exact", "--min_words=2")),
        "build_task_shards": of_table,
        "embed": of_texts("--output=OUT.npy"),
        "embed in pieces": of_texts("--output=OUT", "--pieces=npy", "--piece_size=100"),
        "predict": of_shards(
            "official.main", "--mode=predict", "--split=validation",
            f"--model_dir={materials.tuned()}", "--output=OUT.tsv",
        ),
        "teacher_outputs": of_shards(
            "official.commands.teacher_outputs", f"--teacher={materials.tuned()}",
            "--split=validation", "--output=OUT",
        ),
    }  # fmt: skip


class Changes(parts.Part):
    """A case is one change of one input at one moment."""

    name = "changes"
    things = "inputs that change while they are read"
    promise = "refused by name, or the output is that of the file as it was"
    whole, quick = 10 * POINTS, 3

    def __init__(
        self,
        seed: int,
        materials: Materials,
        made: Callable[[Materials], Mapping] = commands,
    ):
        super().__init__(seed)
        self._materials, self._made = materials, made
        self._whole: dict[str, tuple[dict[str, str], float]] = {}

    def run(self, case: int) -> parts.Outcome:
        """Changes a file while a command reads it."""
        outcome, made = parts.Outcome(), self._made(self._materials)
        name, point = list(made)[case % len(made)], case // len(made)
        change = list(CHANGES)[(case + point) % len(CHANGES)]
        if name not in self._whole:
            self._whole[name] = _undisturbed(made[name])
        files, seconds = self._whole[name]
        with tempfile.TemporaryDirectory(prefix="changes-") as scratch:
            folder = Path(scratch)
            words, file = made[name](folder)
            child = _Child(words, folder, file)
            opened = child.opened()
            # Each of the points is in its own tenth of the time of reading.
            time.sleep(seconds * (point % POINTS + self.rng(case).random()) / POINTS)
            late = not opened or not child.runs()
            if not late:
                CHANGES[change](file)
            status, output = child.end()
            actual = _files(folder)
        if problem := _problem(status, output, file, actual, files):
            outcome.fail(f"{name}, {change}: {problem}")
        elif late:
            outcome.add("whole before the change")
        else:
            outcome.add("refused" if status else "whole")
        return outcome


def _undisturbed(make: Callable[[Path], tuple[list[str], Path]]) -> tuple[dict[str, str], float]:
    """Returns the files that a command writes, and the seconds from the opening to the end."""
    with tempfile.TemporaryDirectory(prefix="changes-") as scratch:
        words, file = make(Path(scratch))
        child = _Child(words, Path(scratch), file)
        child.opened()
        started = time.monotonic()
        status, output = child.end()
        if status:
            raise RuntimeError(f"{' '.join(words)}: {output[-500:]}")
        return _files(Path(scratch)), time.monotonic() - started


class _Child:
    """A command and its processes, in a session of their own."""

    def __init__(self, words: Sequence[str], folder: Path, file: Path):
        words = [word.replace("OUT", str(folder / "out")) for word in words]
        self._file = str(file.resolve())
        self._log = folder / "log"
        self._process = children.Fork(words, self._log)

    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def opened(self) -> bool:
        """Waits until a process of the session has the file open; False = it has ended."""
        limit = time.monotonic() + _SECONDS
        while self.runs() and time.monotonic() < limit:
            if self._has_open():
                return True
            time.sleep(0.002)
        return False

    def _has_open(self) -> bool:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.getsid(int(process.name)) != self._process.pid:
                    continue
                if any(os.readlink(fd) == self._file for fd in (process / "fd").iterdir()):
                    return True
            except OSError:
                continue  # it, or a file of it, is gone
        return False

    def end(self) -> tuple[int, str]:
        """Waits for the end; returns the status, and what it has printed."""
        try:
            status = self._process.wait(_SECONDS)
        finally:
            if self.runs():
                os.killpg(self._process.pid, signal.SIGKILL)
        return status, self._log.read_text(errors="replace")


def _files(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of what a command has written, by name."""
    return {name: sha for name, sha in kills.contents(folder).items() if name.startswith("out")}


def _problem(
    status: int, output: str, file: Path, actual: dict[str, str], whole: dict[str, str]
) -> str | None:
    """What is wrong with the end of a command, and with what it has written."""
    if status == 0:
        names = sorted({*whole, *actual})
        unlike = [name for name in names if actual.get(name) != whole.get(name)]
        return f"status 0, and other bytes in {', '.join(unlike)}" if unlike else None
    if status != 2 or "Traceback" in output:
        return f"status {status}: {output[-400:]}"
    # TensorFlow does not say in which shard of a folder a record is damaged.
    if not any(name in output.rpartition("error: ")[2] for name in (file.name, f"{file.parent}: ")):
        return f"the file is not named: {output[-300:]}"
    return None
