"""Runs a study: variants of a pretraining with several seeds, and a verdict on each claim.

  python -m experiments.study --list
  python -m experiments.study --study=configs/studies/mask_rate.yaml --text=train.txt \
      --held_out=held_out.txt --tasks=DATA --output=WORK [--size=mini] [--jobs=2] [--dry_run]

The page of the study says what is compared (see `experiments.study_page`). --dry_run prints the
runs, what they can show, and an estimate of the hours: by the earlier runs in WORK, or else by a
short training of the first variant in a temporary folder. The same command goes on with a study
that was stopped. WORK then has `results.jsonl`, the table in `report.md`, and `curves.png`.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import yaml

from official.utils import signals
from official.utils.errors import UserError

_PAGES = Path(__file__).resolve().parents[1] / "configs" / "studies"


def listing() -> str:
    """Returns the text that --list prints, without the import of TensorFlow."""
    lines = []
    for path in sorted(_PAGES.glob("*.yaml")):
        page = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
        place = f"configs/{_PAGES.name}/{path.name}"
        lines.append(f"{page['name']:24} {page['about']} ({', '.join(page['sizes'])}; {place})")
    return "\n".join(lines)


def run(options: argparse.Namespace) -> None:
    """Runs the command.

    Raises:
      UserError: the page, a config or a folder is not valid, or a command failed.
    """
    # These import TensorFlow, which --list and --help do without.
    from experiments import forecast, report, study_page
    from experiments.study_runs import RESULTS, Options, Runner, read_results
    from official.utils import atomic

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
    speed = runner.speed(read_results(earlier) if earlier.exists() else [])
    if speed is None and options.dry_run:
        with tempfile.TemporaryDirectory() as folder:
            speed = runner.trial(Path(folder))
    print(forecast.hours(runner, speed), flush=True)
    print("\n".join(forecast.power(study, options.size)), flush=True)
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
