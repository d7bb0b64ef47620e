"""Hostile folders are refused in words, in bounded memory and time, and run nothing."""

import json
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import environments
from benchmarks.torture import (
    folders,
    hostile_elmo,
    hostile_examples,
    hostile_tasks,
    hostile_torch,
    parts,
    spoiling,
)
from benchmarks.torture.materials import Materials, environment

_MAX_MIB = 256
_MAX_SECONDS = 20.0
CASES = (
    *folders.CASES,
    *hostile_torch.CASES,
    *hostile_elmo.CASES,
    *hostile_examples.CASES,
    *hostile_tasks.CASES,
)


class Part(parts.Part):
    """Each hostile folder is one case."""

    name = "hostile"
    things = "hostile folders"
    promise = f"refused in words, within {_MAX_MIB} MiB; no code runs"
    whole = quick = len(CASES)
    in_children = True

    def __init__(
        self,
        seed: int,
        materials: Materials,
        cases: Sequence[folders.Case] = CASES,
        child: str = "benchmarks.torture.hostile_child",
    ):
        super().__init__(seed)
        self._materials, self._cases, self._module = materials, cases, child
        self.child: subprocess.Popen | None = None
        self._peak = 0

    def run(self, case: int) -> parts.Outcome:
        """Makes a folder and has it read by a child process."""
        outcome, hostile = parts.Outcome(), self._cases[case % len(self._cases)]
        with tempfile.TemporaryDirectory(prefix="hostile-") as scratch:
            folder = Path(scratch) / "folder"
            folders.copy(hostile, self._materials, folder)
            answer = self._ask({"folder": str(folder), "how": hostile.how})
            if list(Path(scratch).rglob(spoiling.TRACE)):
                answer = {"error": "hostile code ran"}
        if problem := _problem(answer, hostile, str(folder)):
            outcome.fail(f"{hostile.name}: {problem}")
        else:
            outcome.add("refused" if "refused" in answer else "read without what is hostile in it")
        return outcome

    def _ask(self, question: dict) -> dict:
        """The child's answer; one that is late or dies is replaced."""
        if self.child is None or self.child.poll() is not None:
            self.child = subprocess.Popen(
                [sys.executable, "-m", self._module],
                cwd=environments.ROOT,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            good = {
                "hf": str(self._materials.hugging_face()),
                "tf1": str(self._materials.tf1()),
                "elmo": str(self._materials.elmo()),
                "load": str(self._materials.tuned()),
                "shards": str(self._materials.shards("bert")),
                "examples": str(self._materials.shards("bert")),
                "verify": str(self._materials.shards("bert")),
            }
            self._send(good, 120.0)
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


def _problem(answer: dict, hostile: folders.Case, folder: str) -> str | None:
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
