"""SIGKILLs at random moments: the same command goes on to the same bits.

Trainings are killed inside saves too, with one worker and with two; builds of shards while they
read text and while they write.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.torture import children, flips, parts
from benchmarks.torture.materials import SYSTEMS, Materials, smoke_config
from official.saving import checkpoints
from official.utils import atomic, checksums

KILLS = 5  # of a run
STEPS = 90
_START = 5.0  # seconds; a kill of a process that starts comes within them
_AFTER = 1.0  # seconds after a new checkpoint; other kills come within them
_WAIT = 600.0  # the most seconds to a new checkpoint, or to the end
_OVERRIDES = {
    "steps": STEPS, "save_every": 2, "report_every": 15, "eval_every": 30, "eval_batches": 1,
}  # fmt: skip
COPIES = 300  # of the text, so that a build takes some seconds
_BUILDS = ("bert", "spanbert", "gpt2", "xlnet")
_AT_START = "at the start"


class Trainings(parts.Part):
    """A case is a run that is killed some times, and then goes on to its end."""

    name = "kills"
    things = "SIGKILLs of trainings"
    promise = "the run ends with the bits of one that nobody killed"
    whole, quick = 2 * len(SYSTEMS), 1  # each system with one worker and with two

    def __init__(
        self,
        seed: int,
        materials: Materials,
        spoil: Callable[[Path], None] = lambda model_dir: None,
    ):
        super().__init__(seed)
        self._materials, self._spoil = materials, spoil

    def run(self, case: int) -> parts.Outcome:
        """Kills a run, and compares its end."""
        outcome, rng = parts.Outcome(), self.rng(case)
        system = list(SYSTEMS)[case * 7 % len(SYSTEMS)]
        count = 1 + case % 2
        whole = self._whole(system, count)
        left = KILLS
        while left > 0:
            with tempfile.TemporaryDirectory(prefix="kills-") as scratch:
                run = Run(self._materials, system, count, Path(scratch) / "model")
                problem, left = self._torment(run, left, rng, outcome)
                self._spoil(run.model_dir)
                problem = problem or unlike(whole, run.model_dir)
                if problem:
                    outcome.fail(f"{system}, {count} worker(s): {problem}", 0)
                    return outcome
        return outcome

    def _torment(
        self, run: "Run", left: int, rng: np.random.Generator, outcome: parts.Outcome
    ) -> tuple[str | None, int]:
        """Kills a run until there were enough kills or it has ended; then lets it end.

        Returns:
          What went wrong, and how many kills are left.
        """
        saves = 0
        for _ in range(left):
            inside = not saves  # one of each run, at least
            run.start()
            with contextlib.ExitStack() as stack:
                stack.callback(run.kill)
                where = run.wait(rng, inside)
                if where == "ended":
                    break
                run.kill(first=int(rng.integers(run.count + 1)), pause=float(rng.uniform(0, 2)))
            if run.in_a_save():
                where, saves = "in a save", saves + 1
            outcome.add(f"{where}, {run.count} worker(s)")
            left -= 1
        return run.end(), left

    def _whole(self, system: str, count: int) -> Path:
        """The model folder of a run that nobody kills."""
        name = f"whole-{system}-{count}"
        with self._materials._made(name) as path:
            if path:
                with atomic.folder(path) as folder:
                    run = Run(self._materials, system, count, folder / "model")
                    if problem := run.end():
                        raise RuntimeError(f"{system} without a kill: {problem}")
        return self._materials.folder / name / "model"


class Run:
    """A training in one or two processes.

    Args:
      materials: has the shards.
      system: whose smoke training it is.
      count: how many workers.
      model_dir: the model folder.
    """

    def __init__(self, materials: Materials, system: str, count: int, model_dir: Path):
        shards = materials.shards(system)
        self.count, self.model_dir = count, model_dir
        self._checkpoints = model_dir / "checkpoints"
        self.words = [
            "official.main",
            "--mode=train_and_eval",
            f"--config={smoke_config(system)}",
            f"--data={shards}",
            f"--validation_data={shards}",
            f"--model_dir={model_dir}",
            *(f"--override=recipe.{key}={value}" for key, value in _OVERRIDES.items()),
        ]
        if count > 1:
            self.words.append("--distribution_strategy=multi_worker")
        self._log = model_dir.with_suffix(".log")
        self._processes: list[children.Fork] = []

    def start(self) -> None:
        """Starts the same command, as ever."""
        self.model_dir.parent.mkdir(parents=True, exist_ok=True)
        self._log.write_text("")
        self._newest = checkpoints.last_step(self.model_dir) or 0
        self._processes = [
            children.Fork(self.words, self._log, worker) for worker in children.workers(self.count)
        ]

    def wait(self, rng: np.random.Generator, inside: bool) -> str:
        """Waits for the moment of the next kill; says what it is, or that the run has ended."""
        if not inside and rng.random() < 1 / 3:
            moment = time.monotonic() + rng.uniform(0, _START)
            while self._runs() and time.monotonic() < moment:
                time.sleep(0.01)
            return "elsewhere" if self._runs() else "ended"
        limit = time.monotonic() + _WAIT
        while self._runs() and (checkpoints.last_step(self.model_dir) or 0) <= self._newest:
            if time.monotonic() > limit:
                break
            time.sleep(0.005)
        moment = time.monotonic() + rng.uniform(0, _AFTER)
        while self._runs() and time.monotonic() < moment:
            time.sleep(0.001)
        while inside and self._runs() and not self.in_a_save():
            time.sleep(0.0005)
        if inside:
            time.sleep(rng.uniform(0, 0.005))
        return "elsewhere" if self._runs() else "ended"

    def kill(self, first: int | None = None, pause: float = 0.0) -> None:
        """Kills the processes: one a while before the others, or all of them."""
        if first is not None and first < self.count > 1:
            self._processes[first].kill()
            time.sleep(pause)
        for process in self._processes:
            process.kill()
            process.wait()

    def in_a_save(self) -> bool:
        """Whether something half-written lies among the checkpoints."""
        # (`rglob` fails where a folder is removed while it looks.)
        return any(
            name.startswith(atomic.PREFIX)
            for _, folders, files in os.walk(self._checkpoints)
            for name in (*folders, *files)
        )

    def end(self) -> str | None:
        """Starts the command again and lets it end; says what went wrong."""
        self.start()
        try:
            for process in self._processes:
                process.wait(_WAIT)
        except TimeoutError:
            return f"no end after {_WAIT:.0f} s: {self._said()}"
        finally:
            self.kill()
        if any(statuses := [process.poll() for process in self._processes]):
            return f"status {statuses}: {self._said()}"
        return "something half-written is left" if self.in_a_save() else None

    def _runs(self) -> bool:
        return all(process.poll() is None for process in self._processes)

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-600:]


def unlike(whole: Path, killed: Path) -> str | None:
    """How the end of a run differs from that of one that nobody killed."""
    ends = []
    for folder in (whole, killed):
        path = checkpoints.find(folder, "last")
        ends.append(
            {
                "variables": checkpoints.load_variables(folder, "last", optimizer=True),
                "figures": checkpoints.load_state(path)["figures"],
                "best": checkpoints.best(folder),
                "step": path.name,
            }
        )
    unlike = flips.differences(*ends)
    return f"other ends: {'; '.join(unlike[:3])} ({len(unlike)} places)" if unlike else None


class Builds(parts.Part):
    """A case is a build that is killed some times, and then goes on to its end."""

    name = "builds"
    things = "SIGKILLs of builds of shards"
    promise = "the same command ends with the bytes of a build that nobody killed"
    whole, quick = 100 // KILLS, 1

    def __init__(self, seed: int, materials: Materials):
        super().__init__(seed)
        self._materials = materials
        self._whole: dict[str, tuple[dict[str, str], float]] = {}

    def run(self, case: int) -> parts.Outcome:
        """Kills a build, and compares its end."""
        outcome, rng = parts.Outcome(), self.rng(case)
        system = _BUILDS[case % len(_BUILDS)]
        with tempfile.TemporaryDirectory(prefix="builds-") as scratch:
            folder = Path(scratch)
            self._write_text(folder / "text.txt")
            if system not in self._whole:
                started = time.monotonic()
                self._start(system, folder, "whole").communicate(timeout=_WAIT)
                self._whole[system] = contents(folder / "whole"), time.monotonic() - started
            left = KILLS
            while left and not outcome.failures:
                left -= self._torment(system, folder, left, rng, outcome)
                if problem := self._end(system, folder):
                    outcome.fail(f"{system}: {problem}", 0)
        return outcome

    def _torment(
        self,
        system: str,
        folder: Path,
        left: int,
        rng: np.random.Generator,
        outcome: parts.Outcome,
    ) -> int:
        """Kills a build until it has ended, or `left` times; returns the number of kills."""
        for number in range(left):
            process = self._start(system, folder, "out")
            late = rng.random() < 0.75
            while late and process.poll() is None and reached(folder) == _AT_START:
                time.sleep(0.01)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0, 0.5) * self._whole[system][1])
            process.kill()
            process.communicate()
            if process.returncode == 0:
                return number
            outcome.add(reached(folder))
        return left

    def _end(self, system: str, folder: Path) -> str | None:
        """Lets the build end, and removes it; says what went wrong."""
        if not (folder / "out").exists():
            process = self._start(system, folder, "out")
            output = process.communicate(timeout=_WAIT)[0]
            if process.returncode:
                return f"status {process.returncode}: {output[-600:]}"
        if contents(folder / "out") != self._whole[system][0]:
            return "other bytes than those of a build that nobody killed"
        if left := [path.name for path in folder.glob(".*")]:
            return f"left behind: {', '.join(left)}"
        shutil.rmtree(folder / "out")
        return None

    def _start(self, system: str, folder: Path, output: str) -> subprocess.Popen:
        kind = SYSTEMS[system][0]
        words = children.command(
            "tfrecords_tools.build_shards", f"--config={smoke_config(system)}",
            f"--input={folder}/text.txt", f"--tokenizer={self._materials.tokenizer(kind)}",
            f"--output={folder / output}", "--workers=2",
        )  # fmt: skip
        return children.start(words)

    def _write_text(self, path: Path) -> None:
        text = self._materials.text().read_bytes()
        path.write_bytes(b"\n".join([text] * COPIES))


def reached(folder: Path) -> str:
    """Returns what a build was doing when it was killed."""
    if any(folder.glob(f"{atomic.PREFIX}out-*/*.tfrecord")):
        return "while shards were written"
    if any(folder.glob(".unfinished-out/runs/*.counts")):
        return "while text was read"
    return _AT_START


def contents(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file below a folder, by its name."""
    return {
        str(path.relative_to(folder)): checksums.hash_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
