"""SIGKILLs of builds at random moments: the same command goes on to the same bytes."""

import contextlib
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import environments
from benchmarks.torture import parts
from benchmarks.torture.materials import SYSTEMS, Materials, command, environment, smoke_config
from official.utils import atomic, checksums

KILLS = 5  # of a build
COPIES = 300  # of the text, so that a build takes some seconds
_SYSTEMS = ("bert", "spanbert", "gpt2", "xlnet")
_START = "at the start"
_WAIT = 600.0  # the most seconds to the end


class Part(parts.Part):
    """A case is a build that is killed some times, and then goes on to its end."""

    name = "builds"
    things = "SIGKILLs of builds of shards"
    promise = "the same command ends with the bytes of a build that nobody killed"
    whole, quick = 100 // KILLS, 1
    in_children = True

    def __init__(self, seed: int, materials: Materials):
        super().__init__(seed)
        self._materials = materials
        self._whole: dict[str, tuple[dict[str, str], float]] = {}

    def run(self, case: int) -> parts.Outcome:
        """Kills a build, and compares its end."""
        outcome, rng = parts.Outcome(), self.rng(case)
        system = _SYSTEMS[case % len(_SYSTEMS)]
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
            while late and process.poll() is None and reached(folder) == _START:
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
            said = process.communicate(timeout=_WAIT)[0]
            if process.returncode:
                return f"status {process.returncode}: {said[-600:]}"
        if contents(folder / "out") != self._whole[system][0]:
            return "other bytes than those of a build that nobody killed"
        if left := [path.name for path in folder.glob(".*")]:
            return f"left behind: {', '.join(left)}"
        shutil.rmtree(folder / "out")
        return None

    def _start(self, system: str, folder: Path, output: str) -> subprocess.Popen:
        kind = SYSTEMS[system][0]
        words = command(
            "tfrecords_tools.build_shards", f"--config={smoke_config(system)}",
            f"--input={folder}/text.txt", f"--tokenizer={self._materials.tokenizer(kind)}",
            f"--output={folder / output}", "--workers=2",
        )  # fmt: skip
        return subprocess.Popen(
            words,
            cwd=environments.ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _write_text(self, path: Path) -> None:
        text = self._materials.text().read_bytes()
        path.write_bytes(b"\n".join([text] * COPIES))


def reached(folder: Path) -> str:
    """Returns what a build was doing when it was killed."""
    if any(folder.glob(f"{atomic.PREFIX}out-*/*.tfrecord")):
        return "while shards were written"
    if any(folder.glob(".unfinished-out/runs/*.counts")):
        return "while text was read"
    return _START


def contents(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file below a folder, by its name."""
    return {
        str(path.relative_to(folder)): checksums.hash_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
