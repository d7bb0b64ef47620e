"""Runs a study: variants of a pretraining with several seeds, and a verdict on each claim.

  python -m experiments.study --list
  python -m experiments.study --study=configs/studies/mask_rate.yaml --text=train.txt \
      --held_out=held_out.txt --tasks=DATA --output=WORK [--size=mini] [--jobs=2] [--dry_run]

  python -m experiments.study --all --text=train.txt --held_out=held_out.txt --tasks=DATA \
      --output=WORK

runs all published studies whose results are not in experiments/results, the most useful first, adds
the results of each when it ends, and writes docs/findings.md. Without --text it writes that page
of the results that are there. The runs of a study that is stopped are kept in
experiments/results/unfinished, and not made again, also in another --output.

The page of a study says what is compared (see `experiments.study_page`). --dry_run prints the
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

_ROOT = Path(__file__).resolve().parents[1]
_PAGES = _ROOT / "configs" / "studies"
# The order in which --all runs studies: what others rest on, then what is asked most. The others
# follow by name.
_FIRST = (
    "controls", "plateau", "mask_rate", "static_masks", "positions", "input_format", "row_lengths",
    "masking_units", "span_boundary", "data_size", "batch_size",
)  # fmt: skip
_EXAMPLE = "quick"  # a page that shows how a study works


def listing() -> str:
    """Returns the text that --list prints, without the import of TensorFlow."""
    lines = []
    for path in sorted(_PAGES.glob("*.yaml")):
        page = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
        place = f"configs/{_PAGES.name}/{path.name}"
        lines.append(f"{page['name']:24} {page['about']} ({', '.join(page['sizes'])}; {place})")
    return "\n".join(lines)


def run(options: argparse.Namespace, path: str, output: Path) -> None:
    """Runs a study.

    Args:
      options: of the command line.
      path: the page of the study.
      output: the folder of its files.

    Raises:
      UserError: the page, a config or a folder is not valid, or a command failed.
    """
    # These import TensorFlow, which --list and --help do without.
    from experiments import forecast, report, study_page
    from experiments.study_runs import RESULTS, Options, Runner, read_results
    from official.utils import atomic

    study = study_page.load(path)
    folders = Options(
        text=options.text.resolve(),
        held_out=options.held_out.resolve(),
        output=output.resolve(),
        tasks=options.tasks.resolve() if options.tasks else None,
        jobs=options.jobs,
    )
    runner = Runner(study, path, options.size, folders)
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


def run_all(options: argparse.Namespace) -> None:
    """Runs the published studies that have no results yet, and writes the page of all findings.

    Raises:
      UserError: a page, a config or a folder is not valid, or a command failed.
    """
    from experiments import report, study_page
    from experiments.study_runs import RESULTS, read_results
    from official.utils import atomic

    for path in _in_order() if options.text else ():
        study, kept = study_page.load(path), options.results / f"{path.stem}.jsonl"
        if options.size not in study.sizes:
            continue
        if kept.exists():
            pages = {result.page for result in read_results(kept)}
            if pages == {study.fingerprint(options.size)}:
                continue
        print(f"{path.stem}: {study.about}", flush=True)
        made = options.output / path.stem / RESULTS
        unfinished = options.results / "unfinished" / kept.name
        if unfinished.exists() and not made.exists():
            _copy(unfinished, made)
        try:
            run(options, str(path), options.output / path.stem)
        except BaseException:
            if made.exists() and not options.dry_run:
                _copy(made, unfinished)
            raise
        if not options.dry_run:
            _copy(made, kept)
            unfinished.unlink(missing_ok=True)
    if not options.dry_run:
        with atomic.file(options.findings) as stream:
            stream.write(report.findings(options.results))
        print(f"{options.findings} is made of {options.results}")


def _copy(source: Path, target: Path) -> None:
    from official.utils import atomic

    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic.file(target) as stream:
        stream.write(source.read_text(encoding="utf-8"))


def _in_order() -> list[Path]:
    """Returns the pages of the published studies, the most useful first."""
    rank = {name: number for number, name in enumerate(_FIRST)}
    pages = [path for path in _PAGES.glob("*.yaml") if path.stem != _EXAMPLE]
    return sorted(pages, key=lambda path: (rank.get(path.stem, len(rank)), path.stem))


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
    parser.add_argument("--all", action="store_true", help="all published pages without results")
    parser.add_argument("--size", default="mini", help="a size of the page (default: mini)")
    parser.add_argument("--text", type=Path, help="the text to pretrain on")
    parser.add_argument("--held_out", type=Path, help="the text of the evaluations")
    parser.add_argument("--tasks", type=Path, help="folder with the folders of the data sets")
    parser.add_argument("--output", type=Path, help="folder to make, or to go on in")
    parser.add_argument(
        "--results", type=Path, default=_ROOT / "experiments" / "results",
        help="of --all: the folder of NAME.jsonl (default: experiments/results)",
    )  # fmt: skip
    parser.add_argument(
        "--findings", type=Path, default=_ROOT / "docs" / "findings.md",
        help="of --all: the page to write (default: docs/findings.md)",
    )  # fmt: skip
    parser.add_argument("--jobs", type=_positive, default=1, help="runs at the same time")
    parser.add_argument("--dry_run", action="store_true", help="print the runs and their hours")
    options = parser.parse_args(arguments)
    if options.list:
        print(listing())
        return
    if options.all and options.study:
        parser.error("--all runs the published studies: leave --study out")
    needed = ("text", "held_out", "output")
    if options.all:
        needed = needed if options.text else ()
    else:
        needed = ("study", *needed)
    for name in needed:
        if not getattr(options, name):
            parser.error(f"--{name} is missing")
    try:
        with signals.handled(_stop):
            if options.all:
                run_all(options)
            else:
                run(options, options.study, options.output)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
