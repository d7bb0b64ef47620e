"""Compares the runs of a sweep: the median and the spread of each setting, and the best setting.

A run is a dictionary with `settings` and `folder`, and with `failed` or the keys that
`official.training.sweep.best_result` returns. A setting is the values of all keys but the seed.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from official.training.sweep_values import SEED, Sweep, as_name
from official.utils import atomic
from official.utils.paths import AnyPath

Record = Mapping[str, Any]  # as in `sweep.json`

_SPREAD = ("median", "min", "max", "std")


def summarise(runs: Sequence[Record]) -> list[dict[str, Any]]:
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
            "spread": {
                metric: spread([run["figures"][metric] for run in group])
                for metric in group[0]["metrics"]
            },
        }
        for key, group in groups.items()
    ]


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
    failed = [run["folder"] for run in runs if "failed" in run]
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
    pick = max if summary[0]["higher"] else min
    best = pick(summary, key=lambda setting: setting["spread"][metric]["median"])
    best_run = pick((run for run in runs if "figures" in run), key=lambda r: r["figures"][metric])
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


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
