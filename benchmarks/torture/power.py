"""Power cuts of builds and trainings: what was not synced is lost, and the same command goes on."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.torture import children, kills, parts, power_disk
from benchmarks.torture.materials import SYSTEMS, Materials, smoke_config
from benchmarks.torture.power_disk import Disk
from official.saving import metrics_log

CUTS = 5  # of a build or a run
COPIES = 100  # of the text, so that a build has several items
_BUILDS = ("bert", "spanbert", "xlnet", "gpt2")
_TRAININGS = ("bert", "transformer_xl")
_WAIT = 600.0  # the most seconds to the end


class PowerCuts(parts.Part):
    """A case is a build or a training whose power is cut some times, and that then goes on.

    Args:
      seed: of the cuts.
      materials: what is read.
      work: `(case, folder)` → the command line, which writes below the folder, and what says how
        its end differs from that of the same command under another folder.
    """

    name = "power"
    things = "power cuts of builds and trainings"
    promise = "the same command ends with the bytes of one without a cut"
    whole, quick = 100 // CUTS, 1

    def __init__(
        self,
        seed: int,
        materials: Materials,
        work: Callable[[int, Path], tuple[Sequence[str], Callable]] | None = None,
    ):
        super().__init__(seed)
        self._materials, self._work = materials, work or self._real

    def run(self, case: int) -> parts.Outcome:
        """Cuts the power of a command, and compares its end."""
        outcome, rng = parts.Outcome(), self.rng(case)
        with tempfile.TemporaryDirectory(prefix="power-") as scratch:
            whole, events, problem = self._end(case, Path(scratch, "whole"))
            left = CUTS
            while left and not problem:
                root = Path(scratch, "cut")
                left, problem = self._torment(case, root, events, left, rng, outcome)
                problem = problem or self._work(case, root)[1](whole, root)
                shutil.rmtree(root)
                shutil.rmtree(_store(root))
            if problem:
                outcome.fail(f"{' '.join(self._work(case, whole)[0][:2])}: {problem}", 0)
        return outcome

    def _torment(
        self,
        case: int,
        root: Path,
        events: int,
        left: int,
        rng: np.random.Generator,
        outcome: parts.Outcome,
    ) -> tuple[int, str | None]:
        """Cuts the power until the command has ended, or `left` times; then lets it end."""
        root.mkdir()
        disk = Disk(root, _store(root))
        disk.begin()
        while left and not _ended(root):
            status, output = _run(self._work(case, root)[0], disk, int(rng.integers(1, events + 1)))
            if status != -signal.SIGKILL:
                return left, None if status == 0 else _problem(status, output)
            disk.cut(rng)
            outcome.add(_reached(root))
            left -= 1
        return left, None if _ended(root) else self._end(case, root)[2]

    def _end(self, case: int, root: Path) -> tuple[Path, int, str | None]:
        """Lets a command end; returns its folder, the number of its calls, and a problem."""
        root.mkdir(exist_ok=True)
        disk = Disk(root, _store(root))
        disk.begin()
        status, output = _run(self._work(case, root)[0], disk, 0)
        return root, disk.events, _problem(status, output) if status else None

    def _real(self, case: int, root: Path) -> tuple[Sequence[str], Callable]:
        if case % 2:
            system = _TRAININGS[case // 2 % len(_TRAININGS)]
            run = kills.Run(self._materials, system, 1, root / "model")
            return run.words, _unlike_trainings
        system = _BUILDS[case // 2 % len(_BUILDS)]
        text = self._materials.folder / "power.txt"
        if not text.exists():
            text.write_bytes(b"\n".join([self._materials.text().read_bytes()] * COPIES))
        words = [
            "tfrecords_tools.build_shards", f"--config={smoke_config(system)}", f"--input={text}",
            f"--tokenizer={self._materials.tokenizer(SYSTEMS[system][0])}", f"--output={root}/out",
            "--workers=2",
        ]  # fmt: skip
        return words, unlike_files


def unlike_files(whole: Path, cut: Path) -> str | None:
    """Says how two folders differ."""
    expected, actual = kills.contents(whole), kills.contents(cut)
    names = [n for n in {**expected, **actual} if expected.get(n) != actual.get(n)]
    return f"other bytes than without a cut: {', '.join(names[:4])}" if names else None


def _unlike_trainings(whole: Path, cut: Path) -> str | None:
    ends = [_metrics(folder / "model") for folder in (whole, cut)]
    if ends[0] != ends[1]:
        return "metrics.jsonl differs from that of a training without a cut"
    return kills.unlike(whole / "model", cut / "model")


def _metrics(model_dir: Path) -> list[tuple]:
    """Returns the reports. Those of the train split are means since the last start, and no more."""
    return [
        (r.step, r.split, r.metrics if r.split == "validation" else None)
        for r in metrics_log.read(model_dir)
    ]


def _store(root: Path) -> Path:
    return root.with_name(f"{root.name}-synced")


def _ended(root: Path) -> bool:
    """Whether a build has given its output its name: the same command would refuse to write it."""
    return (root / "out").exists()


def _reached(root: Path) -> str:
    """Returns what a command was doing when its power was cut."""
    if any(root.glob("model/checkpoints/step-*")):
        return "in a training with a checkpoint"
    return kills.reached(root)


def _problem(status: int, output: str) -> str:
    return f"status {status}: {output[-600:]}"


def _run(words: Sequence[str], disk: Disk, limit: int) -> tuple[int, str]:
    """Runs a command to its end, or to the call whose number is `limit`."""
    with tempfile.NamedTemporaryFile(prefix="power-", suffix=".log") as log:
        process = children.Fork(words, Path(log.name), disk.environment(limit), power_disk.install)
        try:
            status = process.wait(_WAIT)
        finally:
            _end_group(process)
        return status, log.read().decode(errors="replace")


def _end_group(process: children.Fork) -> None:
    """Kills what is left of the processes of a command, and waits until none runs."""
    limit = time.monotonic() + 10
    try:
        while time.monotonic() < limit:
            os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.01)
    except ProcessLookupError:
        pass
