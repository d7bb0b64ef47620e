"""Evaluates an encoder on labeled data sets: shards, fine-tuning, predictions and metrics.

  python -m experiments.downstream --data=DATA --task=sst2 --init=PRETRAINED --output=WORK

is one line of a table: the figure beside those of a majority and of a plain baseline (TF-IDF with
logistic regression, or what `plain_baselines` has for the kind of task) on the same rows. Every
step is a command of the project, printed before it runs; --task may be given many times, and --list
shows what there is. Each result is a line of WORK/results.jsonl too. With --baselines no encoder
learns.
"""

import argparse
import json
from pathlib import Path

from experiments.downstream_kinds import KINDS, Metrics, Run, read_config
from experiments.downstream_sets import SETS, DataSet
from official import tasks

HEADER = (
    "| data set | rows to learn from | rows | metric | ours | majority | plain baseline | which "
    "| minutes of the clock (of a core) |\n|---|---:|---:|---|---:|---:|---:|---|---:|"
)


def measure(data_set: DataSet, options: argparse.Namespace) -> list[dict]:
    """Runs one data set and returns its rows of the table, one for each split evaluated."""
    run = Run(data_set, options)
    kind = tasks.TASKS[data_set.task].kind if data_set.task in tasks.TASKS else data_set.task
    learn = not options.baselines
    if kind != "masked_lm" and (learn or kind == "span"):
        if not run.shards.exists():
            run.make_shards()
        if learn and not data_set.model_of:
            run.fine_tune()
    rows = KINDS[kind](run, learn)
    about = {
        "data_set": data_set.name,
        "metrics": list(data_set.metrics),
        "minutes": run.seconds / 60,
        "core_minutes": run.core_seconds / 60,
        "init": str(options.init),
        "override": options.override,
    }
    return [{**about, **row} for row in rows]


def line(row: dict) -> str:
    """Returns a row as Markdown, with the plain baseline that is best by the first metric."""
    names = row["metrics"]

    def cell(metrics: Metrics) -> str:
        shown = [f"{metrics[name]:.4g}" if name in metrics else "-" for name in names]
        return " / ".join(shown) if metrics else "-"

    best = max if names[0] != "masked_lm" else min
    which = best(row["plain"], key=lambda name: row["plain"][name][names[0]], default="-")
    split = "" if row["split"] in ("validation", "test") else f" ({row['split']})"
    if row["metrics"] == ["masked_lm"]:
        split = f" ({row['split']})"
    cells = [
        row["data_set"] + split,
        f"{row['train']:,}" if row["train"] else "-",
        f"{row['rows']:,}",
        " / ".join(names),
        cell(row["ours"]),
        cell(row["majority"]),
        cell(row["plain"].get(which, {})),
        which,
        f"{row['minutes']:.1f} ({row['core_minutes']:.1f})",
    ]
    return f"| {' | '.join(cells)} |"


def listing() -> str:
    """Returns the text that --list prints."""
    return "\n".join(
        f"{name:10} {data_set.about}; {data_set.folder}, configs/finetune/{data_set.config}.yaml"
        for name, data_set in SETS.items()
    )


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the data sets, and end")
    parser.add_argument("--data", help="folder with the folders of the data sets")
    parser.add_argument("--task", action="append", choices=SETS, help="may be given many times")
    parser.add_argument("--init", help="model folder of the pretrained encoder")
    parser.add_argument("--output", help="folder to make")
    parser.add_argument(
        "--override", action="append", default=[], help="key=value, of the fine-tuning config"
    )
    parser.add_argument("--baselines", action="store_true", help="no encoder learns")
    options = parser.parse_args(arguments)
    if options.list:
        print(listing())
        return
    for name in ("data", "task", "init", "output"):
        if not getattr(options, name):
            parser.error(f"--{name} is missing")
    read_config(options.init)
    rows = []
    for name in options.task:
        rows += measure(SETS[name], options)
        with open(Path(options.output, "results.jsonl"), "a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows if row["data_set"] == name)
        print("\n".join([HEADER, *map(line, rows)]), flush=True)


if __name__ == "__main__":
    main()
