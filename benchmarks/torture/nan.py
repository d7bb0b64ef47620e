"""A NaN on one of two replicas: all leave out the same step, and no weight is touched."""

import json
import subprocess
import sys

from benchmarks import environments
from benchmarks.torture import nan_child, parts, workers
from benchmarks.torture.materials import SYSTEMS, Materials, environment

_WAYS = ("mirrored", "multi_worker")


class Part(parts.Part):
    """A case is a system under a strategy, and trains past a NaN on either replica."""

    name = "nan"
    things = "steps with a NaN on one of two replicas"
    promise = "left out by all replicas, no weight touched"
    whole, quick = len(SYSTEMS) * len(_WAYS), 2
    in_children = True

    def __init__(
        self, seed: int, materials: Materials, child: str = "benchmarks.torture.nan_child"
    ):
        super().__init__(seed)
        self._materials, self._child = materials, child

    def run(self, case: int) -> parts.Outcome:
        """Trains in child processes and looks at each step."""
        outcome = parts.Outcome()
        system = list(SYSTEMS)[case // len(_WAYS) % len(SYSTEMS)]
        way = _WAYS[case % len(_WAYS)]
        command = [sys.executable, "-m", self._child, system]
        command += [str(self._materials.shards(system)), way]
        configs = workers.configs(2) if way == "multi_worker" else [{}]
        processes = [
            subprocess.Popen(
                command,
                cwd=environments.ROOT,
                env={**environment(), **config},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for config in configs
        ]
        said = [process.communicate(timeout=600) for process in processes]
        for process, (_, errors) in zip(processes, said, strict=True):
            if process.returncode:
                outcome.fail(f"{system}, {way}: status {process.returncode}: {errors[-300:]}")
                return outcome
        for step, problem in _steps([_lines(output) for output, _ in said]):
            where = f"{system}, {way}, step {step}"
            outcome.fail(f"{where}: {problem}") if problem else outcome.add("left out by all")
        return outcome


def _lines(output: str) -> list[dict]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def _steps(said: list[list[dict]]) -> list[tuple[int, str | None]]:
    """What came of each poisoned step: its number, and what is wrong."""
    actual = []
    for step in range(nan_child.STEPS):
        now = [lines[step] for lines in said]
        before = [lines[step - 1] for lines in said] if step else now
        digests = {digest for line in now for digest in line["digests"]}
        changed = step == 0 or now[0]["digests"] != before[0]["digests"]
        poisoned = step in nan_child.POISONED
        problem = None
        if len(digests) > 1:
            problem = "the replicas have different weights"
        elif any(line["step"] != step + 1 for line in now):
            problem = f"the replicas are at step {[line['step'] for line in now]}"
        elif any(line["finite"] == poisoned for line in now):
            problem = "the gradient is finite" if poisoned else "the gradient is not finite"
        elif changed == poisoned:
            problem = "weights were changed" if poisoned else "no weight was changed"
        if poisoned or problem:
            actual.append((step, problem))
    return actual
