"""Trains a config once for each combination of some values, and says how the results spread.

  python -m official.main --mode=train_and_eval --config=FILE --data=SHARDS --init=MODEL \
      --model_dir=SWEEP --sweep=seed=0,1,2,3,4 --sweep=recipe.optimizer.learning_rate=2e-5,3e-5,5e-5

Each run is the same command with `--override=key=value` in a folder of its own, such as
`SWEEP/learning_rate=2e-5,seed=0`, and a process of its own. The metrics are those of its best
checkpoint. Runs that differ in nothing but the seed are one setting, of which the median, the range
and the standard deviation are given; the best setting is that of the best median. `sweep.json` has
everything, and is written after each run, so that the same command goes on where it was stopped and
one with more values adds to it; `sweep.tsv` has the table.
"""

import dataclasses
import itertools
import json
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from official import config as configs
from official.saving import checkpoints, model_folder
from official.training.best_metric import best_metric
from official.utils import atomic
from official.utils.errors import UserError

FILE = "sweep.json"
TABLE = "sweep.tsv"
SEED = "seed"  # the key whose values make runs of the same setting
_SPREAD = ("median", "min", "max", "std")


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What is swept over: the values of each key, the seed's last."""

    values: Mapping[str, tuple[Any, ...]]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> "Sweep":
        """Reads `key=value,value,...`, each value as YAML.

        Raises:
          UserError: that is not what a text says, or a key or value is there twice.
        """
        values: dict[str, tuple[Any, ...]] = {}
        for text in texts:
            key, equals, listed = text.partition("=")
            try:
                found = yaml.safe_load(f"[{listed}]")
            except yaml.YAMLError:
                found = None
            if not key or not equals or not found:
                raise UserError(f"--sweep={text}: expected key.subkey=value,value,...")
            if key in values:
                raise UserError(f"--sweep={text}: {key} is swept over twice: list all its values")
            if repeated := [value for value in found if found.count(value) > 1]:
                raise UserError(f"--sweep={text}: {repeated[0]} is there twice")
            values[key] = tuple(found)
        return cls(dict(sorted(values.items(), key=lambda item: item[0] == SEED)))

    def runs(self) -> list[dict[str, Any]]:
        """The combinations: the value of each key."""
        return [
            dict(zip(self.values, chosen, strict=True))
            for chosen in itertools.product(*self.values.values())
        ]

    def short(self, key: str) -> str:
        """The last part of a key, or the whole of it where another one ends alike."""
        last = key.rpartition(".")[2]
        alike = [other for other in self.values if other.rpartition(".")[2] == last]
        return last if len(alike) == 1 else key

    def name(self, settings: Mapping[str, Any]) -> str:
        """What a combination is called, and its folder."""
        named = (f"{self.short(key)}={_text(value)}" for key, value in settings.items())
        return ",".join(named) or "as in the config"


def overrides(settings: Mapping[str, Any]) -> list[str]:
    """The `--override` options of a combination, without their name."""
    return [f"{key}={json.dumps(value)}" for key, value in settings.items()]


def run(
    sweep: Sweep,
    model_dir: Path,
    about: Mapping[str, Any],
    command: Callable[[Path, list[str]], list[str]],
    report: Callable[[str], None] = print,
    result: Callable[[Path], dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Runs what has not been run, and writes `sweep.json` and `sweep.tsv`.

    Args:
      sweep: the combinations.
      model_dir: the folder of all runs.
      about: what all of them share, as plain values: the config and where the data is.
      command: gives the command line of a run from its folder and overrides.
      report: takes the lines for people.
      result: reads the metrics of a finished run's folder; None = `best_result`.

    Returns:
      The settings' metrics, as in `sweep.json`.

    Raises:
      UserError: the folder is of another sweep, two runs would have the same folder, or a run
        ended before it had begun to train.
    """
    result = result or best_result
    folders = [model_dir / sweep.name(settings) for settings in sweep.runs()]
    if len(set(folders)) < len(folders):
        raise UserError("--sweep: two combinations would have the same folder: name plain values")
    record = _open(model_dir, about)
    for folder, settings in zip(folders, sweep.runs(), strict=True):
        done = next((r for r in record["runs"] if r["settings"] == settings), None)
        if done is not None and "figures" in done:
            report(f"{folder}: run already")
            continue
        report(f"{folder}:")
        status = _process(command(folder, overrides(settings)))
        entry = {"settings": settings, "folder": folder.name}
        if status and not (folder / "config.yaml").exists():
            raise UserError(f"{folder}: ended with status {status} before it trained: see above")
        entry |= {"failed": status} if status else result(folder)
        record["runs"] = [r for r in record["runs"] if r["settings"] != settings] + [entry]
        record["settings"] = _settings(record["runs"])
        with atomic.file(model_dir / FILE) as stream:
            json.dump(record, stream, indent=1, ensure_ascii=False)
    wanted = [r for r in record["runs"] if r["settings"] in sweep.runs()]
    summary = _settings(wanted)
    _write_table(sweep, summary, model_dir / TABLE)
    for line in table(sweep, summary, wanted):
        report(line)
    return summary


def best_result(model_dir: Path) -> dict[str, Any]:
    """Reads the metrics of a finished run's best checkpoint.

    Returns:
      `metric`: the one that decides; `higher`: whether more of it is better; `metrics`: the names
      to compare, the deciding one first; `step` and `figures` of the checkpoint.
    """
    task = model_folder.task_description(model_dir)
    metric, higher = best_metric(configs.load(model_dir), task)
    found = checkpoints.load_state(checkpoints.find(model_dir, "best"))
    return {
        "metric": metric,
        "higher": higher,
        "metrics": list(dict.fromkeys([metric, *(task.metrics if task else ())])),
        "step": found["step"],
        "figures": found["figures"],
    }


def table(sweep: Sweep, summary: Sequence[Mapping], runs: Sequence[Mapping]) -> list[str]:
    """The lines for people: each setting's spread, the best one, and the runs that failed."""
    failed = [r["folder"] for r in runs if "failed" in r]
    lines = [f"failed, and not counted: {', '.join(failed)}"] if failed else []
    if not summary:
        return lines
    metric = summary[0]["metric"]
    rows = [["setting", "runs", f"{metric}: median", *_SPREAD[1:]]]
    for found in summary:
        numbers = [_number(found["spread"][metric][name], 4) for name in _SPREAD]
        rows.append([sweep.name(found["settings"]), str(found["runs"]), *numbers])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    pick = max if summary[0]["higher"] else min
    best = pick(summary, key=lambda found: found["spread"][metric]["median"])
    best_run = pick((r for r in runs if "figures" in r), key=lambda r: r["figures"][metric])
    return [
        *lines,
        f"best setting: {sweep.name(best['settings'])} (median {metric} "
        f"{best['spread'][metric]['median']:.4f}); best run: {best_run['folder']} "
        f"({best_run['figures'][metric]:.4f})",
    ]


def _open(model_dir: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the folder's runs, which must have all in common that these have."""
    about = json.loads(json.dumps(about))
    path = model_dir / FILE
    if not path.exists():
        return {"about": about, "runs": [], "settings": []}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: damaged ({error}): remove it; the same command then reads the metrics of "
            "the runs that have ended, and runs the others"
        ) from None
    theirs, ours = (dict(configs.flatten(a)) for a in (record["about"], about))
    changed = [
        f"{key}: {theirs.get(key)} there, {ours.get(key)} now"
        for key in {**theirs, **ours}
        if theirs.get(key) != ours.get(key)
    ]
    if changed:
        raise UserError(
            f"{path}: this folder is of a sweep with another command ({'; '.join(changed[:4])}"
            f"{'; ...' if len(changed) > 4 else ''}). Name another --model_dir"
        )
    return record


def _settings(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The spread of each metric over the runs of each setting."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for found in runs:
        if "figures" in found:
            rest = {key: value for key, value in found["settings"].items() if key != SEED}
            groups.setdefault(json.dumps(rest), []).append(found)
    return [
        {
            "settings": json.loads(key),
            "runs": len(group),
            "metric": group[0]["metric"],
            "higher": group[0]["higher"],
            "spread": {
                metric: spread([found["figures"][metric] for found in group])
                for metric in group[0]["metrics"]
            },
        }
        for key, group in groups.items()
    ]


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Median, range and standard deviation of some runs; of one run there is no deviation."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
    }


def _write_table(sweep: Sweep, summary: Sequence[Mapping[str, Any]], path: Path) -> None:
    keys = [key for key in sweep.values if key != SEED]
    metrics = list(summary[0]["spread"]) if summary else []
    header = [sweep.short(key) for key in keys] + ["runs"]
    header += [f"{metric}_{name}" for metric in metrics for name in _SPREAD]
    with atomic.file(path) as stream:
        stream.write("\t".join(header) + "\n")
        for found in summary:
            cells = [_text(found["settings"][key]) for key in keys] + [str(found["runs"])]
            for metric in metrics:
                numbers = (found["spread"][metric][name] for name in _SPREAD)
                cells += [_number(number, 6) for number in numbers]
            stream.write("\t".join(cells) + "\n")


def _process(command: Sequence[str]) -> int:
    """Runs a command to its end; what asks this process to stop asks that one, and ends both."""
    asked: list[int] = []
    child = subprocess.Popen(command)

    def stop(number: int, frame: Any) -> None:
        asked.append(number)
        child.send_signal(number)

    previous = {s: signal.signal(s, stop) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        status = child.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if asked:
        sys.exit(128 + asked[0])
    return status


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _text(value: Any) -> str:
    return re.sub(r"[^\w.+-]+", "_", str(value))
