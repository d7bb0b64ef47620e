r"""Trains a config once for each combination of some values, and compares the results.

  python -m official.main --mode=train_and_eval --config=FILE --data=SHARDS --init=MODEL \
      --model_dir=SWEEP --sweep=seed=0,1,2,3,4 --sweep=recipe.optimizer.learning_rate=2e-5,3e-5,5e-5

Each run is the same command with `--override=key=value`, in a folder of its own such as
`SWEEP/learning_rate=2e-5,seed=0` and in a process of its own. Its metrics are those of its best
checkpoint. Runs that differ only in the seed are one setting, for which the median, the range and
the standard deviation are reported. The best setting is the one with the best median. `sweep.json`
contains everything. It is written after each run, so the same command continues a sweep that was
stopped, and a command with more values adds to it. `sweep.tsv` contains the table.

A run in `sweep.json` is a dictionary with `settings` and `folder`, and with `failed` or the keys
that `best_result` returns.
"""

import dataclasses
import itertools
import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from official import config as configs
from official.data import mixture
from official.saving import checkpoints, metrics_log, run_lock, task_file
from official.training import run as training
from official.training.commands import Commands, diverged
from official.training.hooks import best_metric, rank
from official.utils import atomic, signals
from official.utils.errors import UserError
from official.utils.paths import AnyPath

FILE = "sweep.json"
TABLE = "sweep.tsv"
# The flags that must not change while a sweep is continued.
_FIXED = ("data", "validation_data", "init", "checkpoint")
SEED = "seed"  # the key whose values make runs of the same setting
_SPREAD = ("median", "min", "max", "std")

Settings = Mapping[str, Any]  # a value of any YAML type for each key
Record = Mapping[str, Any]  # as in `sweep.json`


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The values of each key. Those of the seed come last."""

    values: Mapping[str, tuple[Any, ...]]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> "Sweep":
        """Parses `key=value,value,...`. Each value is YAML.

        Raises:
          UserError: a text has another form, or a key or value is given twice.
        """
        values: dict[str, tuple[Any, ...]] = {}
        for text in texts:
            key, equals, listed = text.partition("=")
            try:
                parsed = yaml.safe_load(f"[{listed}]")
            except yaml.YAMLError:
                parsed = None
            if not key or not equals or not parsed:
                raise UserError(f"--sweep={text}: expected key.subkey=value,value,...")
            if key in values:
                raise UserError(f"--sweep={text}: {key} is swept over twice: list all its values")
            if repeated := [value for value in parsed if parsed.count(value) > 1]:
                raise UserError(f"--sweep={text}: {repeated[0]} is given twice")
            values[key] = tuple(parsed)
        return cls(dict(sorted(values.items(), key=lambda item: item[0] == SEED)))

    def runs(self) -> list[dict[str, Any]]:
        """Returns all combinations: a value for each key."""
        return [
            dict(zip(self.values, chosen, strict=True))
            for chosen in itertools.product(*self.values.values())
        ]

    def short(self, key: str) -> str:
        """Returns the last part of a key, or the whole key if another key ends with that part."""
        last = key.rpartition(".")[2]
        same = [other for other in self.values if other.rpartition(".")[2] == last]
        return last if len(same) == 1 else key

    def name(self, settings: Settings) -> str:
        """Returns the name of a combination, which is also that of its folder."""
        named = (f"{self.short(key)}={as_name(value)}" for key, value in settings.items())
        return ",".join(named) or "as in the config"


def overrides(settings: Settings) -> list[str]:
    """Returns the values of `--override` for a combination."""
    return [f"{key}={json.dumps(value)}" for key, value in settings.items()]


def as_name(value: Any) -> str:
    """Returns a value as a part of a file name."""
    return re.sub(r"[^\w.+-]+", "_", str(value))


def train(
    texts: Sequence[str],
    config: str,
    config_overrides: Sequence[str],
    flags: Mapping[str, Any],
    model_dir: AnyPath,
    report: Callable[[str], None] = print,
) -> None:
    """Runs `official.main --mode=train_and_eval` for each combination of values.

    Args:
      texts: the values of `--sweep`.
      config: the config file.
      config_overrides: the values of `--override` for all runs.
      flags: the values of the other flags of the command.
      model_dir: the folder of all runs.
      report: takes the lines to print.

    Raises:
      UserError: a combination is not a config, or does not go with the data; see also `run`.
    """
    sweep = Sweep.parse(texts)
    data, held_out = (
        flags[name] and mixture.parse(flags[name]) for name in ("data", "validation_data")
    )
    for settings in sweep.runs():
        combined = configs.load(config, [*config_overrides, *overrides(settings)])
        folder = model_dir / sweep.name(settings)
        try:
            training.check(combined, data, folder, validation_data=held_out, init=flags["init"])
        except UserError as error:
            raise UserError(f"{sweep.name(settings)}: {error}") from None
    about = {name: flags[name] for name in _FIXED}
    about["config"] = configs.to_dict(configs.load(config, config_overrides))

    def command(folder: AnyPath, changes: list[str]) -> list[str]:
        given = {name: value for name, value in {"config": config, **flags}.items() if value}
        return [
            *(sys.executable, "-m", "official.main", "--mode=train_and_eval"),
            f"--model_dir={folder}",
            *(f"--{name}={value}" for name, value in given.items()),
            *(f"--override={override}" for override in [*config_overrides, *changes]),
        ]

    run(sweep, model_dir, about, command, report)


def run(
    sweep: Sweep,
    model_dir: AnyPath,
    about: Mapping[str, Any],
    command: Callable[[AnyPath, list[str]], list[str]],
    report: Callable[[str], None] = print,
    result: Callable[[AnyPath], dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Runs the combinations that have not been run, and writes `sweep.json` and `sweep.tsv`.

    Args:
      sweep: the combinations.
      model_dir: the folder of all runs.
      about: what all runs share, as values that JSON can hold: the config and the data folders.
      command: returns the command line of a run for its folder and its overrides.
      report: takes the lines to print.
      result: reads the metrics from the folder of a finished run; None = `best_result`.

    Returns:
      The summary of each setting, as in `sweep.json`.

    Raises:
      UserError: the folder belongs to another sweep, or another process runs this one; two runs
        would have the same folder; a run ended before it began to train.
    """
    result, commands = result or best_result, Commands()
    folders = [model_dir / sweep.name(settings) for settings in sweep.runs()]
    if len(set(folders)) < len(folders):
        raise UserError("--sweep: two combinations would have the same folder: name plain values")
    with run_lock.held(model_dir, report):
        record = _open(model_dir, about)
        for folder, settings in zip(folders, sweep.runs(), strict=True):
            done = next((r for r in record["runs"] if r["settings"] == settings), None)
            if done is not None and "figures" in done:
                report(f"{folder}: run already")
                continue
            report(f"{folder}:")
            with signals.handled(commands.stop):
                status = commands.run(command(folder, overrides(settings)))
            if commands.stopped is not None:
                sys.exit(128 + commands.stopped)
            entry: dict[str, Any] = {"settings": settings, "folder": folder.name}
            if status and not (folder / "config.yaml").exists():
                raise UserError(
                    f"{folder}: ended with status {status} before it trained: see above"
                )
            entry |= {"failed": status} if status else result(folder)
            record["runs"] = [r for r in record["runs"] if r["settings"] != settings] + [entry]
            record["settings"] = summarize(record["runs"])
            with atomic.file(model_dir / FILE) as stream:
                json.dump(record, stream, indent=1, ensure_ascii=False)
    selected = [r for r in record["runs"] if r["settings"] in sweep.runs()]
    summary = summarize(selected)
    write_table(sweep, summary, model_dir / TABLE)
    for line in table(sweep, summary, selected):
        report(line)
    return summary


def best_result(model_dir: AnyPath) -> dict[str, Any]:
    """Reads the metrics of a finished run's best checkpoint.

    Returns:
      `metric`: the one that decides; `higher`: whether a higher value is better; `metrics`: the
      names to compare, the deciding one first; `step` and `figures` of the checkpoint.
    """
    task = task_file.description(model_dir)
    metric, higher = best_metric(configs.load(model_dir), task)
    state = checkpoints.load_state(checkpoints.find(model_dir, "best"))
    return {
        "metric": metric,
        "higher": higher,
        "metrics": list(dict.fromkeys([metric, *(task.metrics if task else ())])),
        "step": state["step"],
        "figures": state["figures"],
        **metrics_log.SCALE,
    }


def summarize(runs: Sequence[Record]) -> list[dict[str, Any]]:
    """Returns for each setting the number of its runs and the spread of each metric."""
    groups: dict[str, list[Record]] = {}
    for run in runs:
        if "figures" in run:
            rest = {key: value for key, value in run["settings"].items() if key != SEED}
            groups.setdefault(json.dumps(rest), []).append(run)
    return [
        {
            "settings": json.loads(key),
            "runs": len(group),
            "metric": group[0]["metric"],
            "higher": group[0]["higher"],
            "loss": statistics.median(map(_loss, group)),
            "spread": {
                metric: spread([run["figures"][metric] for run in group])
                for metric in group[0]["metrics"]
            },
        }
        for key, group in groups.items()
    ]


def _loss(run: Record) -> float:
    """Returns the loss of a run, which tells runs with the same metric apart."""
    return run["figures"].get("loss", math.inf)


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Returns median, range and standard deviation. A single run has no deviation."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
    }


def table(sweep: Sweep, summary: Sequence[Record], runs: Sequence[Record]) -> list[str]:
    """Returns lines to print: the spread of each setting, the best one, and the failed runs."""
    failed = [
        run["folder"] + (" (diverged)" if diverged(run["failed"]) else "")
        for run in runs
        if "failed" in run
    ]
    lines = [f"failed, and not counted: {', '.join(failed)}"] if failed else []
    if not summary:
        return lines
    metric = summary[0]["metric"]
    rows = [["setting", "runs", f"{metric}: median", *_SPREAD[1:]]]
    for setting in summary:
        numbers = [_number(setting["spread"][metric][name], 4) for name in _SPREAD]
        rows.append([sweep.name(setting["settings"]), str(setting["runs"]), *numbers])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    higher = summary[0]["higher"]
    best = max(summary, key=lambda s: rank(s["spread"][metric]["median"], s["loss"], higher))
    best_run = max(
        (run for run in runs if "figures" in run),
        key=lambda run: rank(run["figures"][metric], _loss(run), higher),
    )
    return [
        *lines,
        f"best setting: {sweep.name(best['settings'])} (median {metric} "
        f"{best['spread'][metric]['median']:.4f}); best run: {best_run['folder']} "
        f"({best_run['figures'][metric]:.4f})",
    ]


def write_table(sweep: Sweep, summary: Sequence[Record], path: AnyPath) -> None:
    """Writes a TSV file with a line for each setting."""
    keys = [key for key in sweep.values if key != SEED]
    metrics = list(summary[0]["spread"]) if summary else []
    header = [sweep.short(key) for key in keys] + ["runs"]
    header += [f"{metric}_{name}" for metric in metrics for name in _SPREAD]
    with atomic.file(path) as stream:
        stream.write("\t".join(header) + "\n")
        for setting in summary:
            cells = [as_name(setting["settings"][key]) for key in keys] + [str(setting["runs"])]
            for metric in metrics:
                numbers = (setting["spread"][metric][name] for name in _SPREAD)
                cells += [_number(number, 6) for number in numbers]
            stream.write("\t".join(cells) + "\n")


def _open(model_dir: AnyPath, about: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the record of the folder's runs, which must share what these runs share."""
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
            f"{path}: this folder belongs to a sweep with another command ({'; '.join(changed[:4])}"
            f"{'; ...' if len(changed) > 4 else ''}). Name another --model_dir"
        )
    return record


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
