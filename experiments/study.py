"""Runs a study: variants of a pretraining with several seeds, and a verdict on each claim.

  python -m experiments.study --list
  python -m experiments.study --study=configs/studies/mask_rate.yaml --text=train.txt \
      --held_out=held_out.txt --tasks=DATA --output=WORK [--size=mini] [--jobs=2] [--dry_run]

The page of the study says what is compared (see `experiments.study_page`). --dry_run prints the
runs and an estimate of the hours. The same command goes on with a study that was stopped. WORK then
has `results.jsonl`, the table in `report.md`, and `curves.png`.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import NoReturn

from experiments import report, study_page
from experiments.study_runs import RESULTS, Options, Result, Runner, read_results
from official.utils import atomic, signals
from official.utils.errors import UserError

_PAGES = Path(__file__).resolve().parents[1] / "configs" / study_page.FOLDER
# The share of the speed of a large product that a training step reaches; a rough value.
_UTILIZATION = 0.3


def listing() -> str:
    """Returns the text that --list prints."""
    pages = [(path, study_page.load(path)) for path in sorted(_PAGES.glob("*.yaml"))]
    return "\n".join(
        f"{study.name:24} {study.about} ({', '.join(study.sizes)}; "
        f"configs/{study_page.FOLDER}/{path.name})"
        for path, study in pages
    )


def estimate(runner: Runner, earlier: list[Result]) -> str:
    """Returns the runs of a study, and how long its pretraining will take.

    The speed is that of the earlier runs in the same folder, or else that of a large product.
    """
    speeds = [
        runner.plan(result.variant, result.seed, result.rate).flops / result.seconds
        for result in earlier
        if result.variant in runner.study.variants and result.seconds and not result.diverged
    ]
    speed = sum(speeds) / len(speeds) if speeds else _UTILIZATION * _product_speed()
    lines = []
    for variant, flops in runner.expected.items():
        if (first := runner.pretrained_as[variant]) != variant:
            lines.append(f"{variant:24} the runs of {first}, fine-tuned in another way")
            continue
        run = runner.plan(variant, 0, None)
        tokens = sum(phase.steps * phase.tokens for phase in run.phases)
        lines.append(
            f"{variant:24} {runner.num_runs} runs of {sum(p.steps for p in run.phases):,} steps, "
            f"{tokens:,} tokens, {flops / speed / 3600:.1f} h"
        )
    total = sum(runner.expected.values()) / speed / 3600
    source = "the earlier runs" if speeds else "a large product on this machine; a rough value"
    return "\n".join([*lines, f"{total:.1f} h of pretraining in all (by the speed of {source})"])


def _product_speed() -> float:
    """Returns the floating-point operations a second of a large product."""
    import numpy as np

    size = 1024
    x = np.ones((size, size), np.float32)
    x @ x
    started, count = time.monotonic(), 0
    while (seconds := time.monotonic() - started) < 0.5:
        x @ x
        count += 1
    return 2 * size**3 * count / seconds


def run(options: argparse.Namespace) -> None:
    """Runs the command.

    Raises:
      UserError: the page, a config or a folder is not valid, or a command failed.
    """
    study = study_page.load(options.study)
    folders = Options(
        text=options.text.resolve(),
        held_out=options.held_out.resolve(),
        output=options.output.resolve(),
        tasks=options.tasks.resolve() if options.tasks else None,
        jobs=options.jobs,
    )
    runner = Runner(study, options.study, options.size, folders)
    earlier = folders.output / RESULTS
    print(estimate(runner, read_results(earlier) if earlier.exists() else []), flush=True)
    if options.dry_run:
        return
    folders.output.mkdir(parents=True, exist_ok=True)
    results = runner.run()
    text = report.markdown(study, results)
    with atomic.file(folders.output / "report.md") as stream:
        stream.write(text)
    if report.plot(study, results, folders.output / "curves.png"):
        print(f"the curves are in {folders.output / 'curves.png'}")
    print(text)


def _stop(number: int, frame: object) -> NoReturn:
    del frame
    print("stopping; the same command goes on", file=sys.stderr, flush=True)
    sys.exit(128 + number)


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the studies, and end")
    parser.add_argument("--study", help="the page: a YAML file")
    parser.add_argument("--size", default="mini", help="a size of the page (default: mini)")
    parser.add_argument("--text", type=Path, help="the text to pretrain on")
    parser.add_argument("--held_out", type=Path, help="the text of the evaluations")
    parser.add_argument("--tasks", type=Path, help="folder with the folders of the data sets")
    parser.add_argument("--output", type=Path, help="folder to make, or to go on in")
    parser.add_argument("--jobs", type=_positive, default=1, help="runs at the same time")
    parser.add_argument("--dry_run", action="store_true", help="print the runs and their hours")
    options = parser.parse_args(arguments)
    if options.list:
        print(listing())
        return
    for name in ("study", "text", "held_out", "output"):
        if not getattr(options, name):
            parser.error(f"--{name} is missing")
    try:
        with signals.handled(_stop):
            run(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
