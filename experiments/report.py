"""Tables, plots and verdicts of studies, and the page of all findings.

  python -m experiments.report --results=experiments/results --output=docs/findings.md

reads `NAME.jsonl` of each study from the folder, which `experiments.study` writes, and the page of
the study. Only results for variants of the page, and of one size, are used. The whole findings page
is generated.
"""

import argparse
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from experiments import claims, study_page
from experiments.claims import Values
from experiments.study_page import Study
from experiments.study_runs import Result, read_results
from official.utils import atomic
from official.utils.errors import UserError

_PAGES = Path(__file__).resolve().parents[1] / "configs" / study_page.FOLDER


def chosen(study: Study, results: Sequence[Result]) -> list[Result]:
    """Returns the runs with the learning rate that was chosen for their variant.

    Each seed of a variant has one such run. The others differ in the learning rate alone.

    Raises:
      UserError: a variant has two runs of a seed with different settings.
    """
    found: dict[tuple[str, int], Result] = {}
    for result in results:
        if result.variant not in study.variants:
            continue
        key = (result.variant, result.seed)
        if key in found and found[key].rate == result.rate:
            raise UserError(
                f"{study.name}: two runs of {result.variant} with seed {result.seed} have other "
                f"settings ({found[key].id}, {result.id}): remove the older one"
            )
        found.setdefault(key, result)  # the chosen run comes first
    return list(found.values())


def measured(study: Study, results: Iterable[Result]) -> dict[str, dict[str, Values]]:
    """Returns measure → variant → value by seed; NaN for a run that diverged."""
    table: dict[str, dict[str, dict[int, float]]] = {name: {} for name in study.measures}
    known = {(name, r.variant) for r in results for name in r.measures}
    for result in results:
        for name in study.measures:
            if (name, result.variant) in known:
                values = table[name].setdefault(result.variant, {})
                values[result.seed] = result.measures.get(name, math.nan)
    return {name: dict(by_variant) for name, by_variant in table.items()}


def markdown(study: Study, results: Sequence[Result]) -> str:
    """Returns the section of a study: its table, verdicts, the paper's figures and the settings."""
    runs = chosen(study, results)
    values = measured(study, runs)
    lines = [f"## {_title(study)}", ""]
    if study.source:
        lines += [f"{study.source}.", ""]
    lines += [*_table(study, runs, values), ""]
    if study.claims:
        lines += [*_verdicts(study, values), ""]
    if study.paper:
        lines += [*_paper(study), ""]
    if study.note:
        lines += [" ".join(study.note.split()), ""]
    return "\n".join([*lines, *_settings(study, results, runs)]) + "\n"


def _table(
    study: Study, runs: Sequence[Result], values: Mapping[str, Mapping[str, Values]]
) -> list[str]:
    base = next(iter(study.variants))
    names = [name for name in study.measures if values[name]]
    head = ["variant", "runs"]
    for name in names:
        better = "higher" if study.measures[name].higher else "lower"
        head += [f"{name} ({better} is better)", f"better than {base} by (95%)"]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for variant in study.variants:
        own = [run for run in runs if run.variant == variant]
        diverged = sum(run.diverged for run in own)
        cells = [variant, f"{len(own)}" + (f", {diverged} diverged" if diverged else "")]
        for name in names:
            of = values[name].get(variant, {})
            cells.append(_mean(of))
            if variant == base:
                cells.append("")
            else:
                higher = study.measures[name].higher
                cells.append(_interval(claims.compare(of, values[name].get(base, {}), higher)))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _mean(values: Values) -> str:
    mean, error = claims.summary(values)
    if math.isnan(mean):
        return "-"
    return f"{mean:.4g}" + ("" if math.isnan(error) else f" ± {error:.2g}")


def _interval(difference: claims.Difference) -> str:
    if not difference.pairs:
        return "-"
    interval = f" ({difference.low:+.3g} to {difference.high:+.3g})" if difference.pairs > 1 else ""
    return f"{difference.mean:+.3g}{interval}"


def _verdicts(study: Study, values: Mapping[str, Mapping[str, Values]]) -> list[str]:
    lines = ["| claim | by | verdict | p of each step |", "|---|---|---|---|"]
    judged = claims.judge(study.claims, values, study.higher())
    for claim, (verdict, parts) in zip(study.claims, judged, strict=True):
        text = f"**{verdict.verdict}**" + (f" ({verdict.reason})" if verdict.reason else "")
        tests = ", ".join(
            "-" if math.isnan(part.p_value) else f"{part.p_value:.2g}" for part in parts
        )
        lines.append(f"| {_order(claim)} | {claim.by} | {text} | {tests} |")
    return lines


def _order(claim: claims.Claim) -> str:
    margin = f", within {claim.margin:g}" if claim.margin else ""
    return claim.order.replace(">=", "≥") + margin


def _paper(study: Study) -> list[str]:
    assert study.paper is not None
    figures = study.paper.figures
    if not figures:
        return [f"The paper: {study.paper.where}."]
    lines = [f"| the paper ({study.paper.where}) | {' | '.join(figures)} |"]
    lines.append(f"|---|{'---:|' * len(figures)}")
    for variant in study.variants:
        cells = [f"{by[variant]:g}" if variant in by else "-" for by in figures.values()]
        if any(cell != "-" for cell in cells):
            lines.append(f"| {variant} | {' | '.join(cells)} |")
    return lines


def _settings(study: Study, results: Sequence[Result], runs: Sequence[Result]) -> list[str]:
    # Variants may share a pretraining run.
    seconds = {result.id: result.seconds for result in results}
    hours = sum(seconds.values()) / 3600
    rates = {run.variant: run.rate for run in runs if run.rate is not None}
    lines = [
        f"`python -m experiments.study --study=configs/{study_page.FOLDER}/{study.name}.yaml "
        f"--size={results[0].size} --text=TEXT --held_out=HELD_OUT"
        + (" --tasks=DIR" if any(m.task for m in study.measures.values()) else "")
        + " --output=DIR`",
        "",
        f"Config `{study.sizes[results[0].size].config}`. "
        f"{len(seconds)} runs, {hours:.1f} hours of pretraining. Steps of a run: "
        f"{_by_variant({run.variant: run.steps for run in runs})}. "
        f"Tokens: {_by_variant({run.variant: run.tokens for run in runs})}.",
    ]
    if rates:
        grid = sorted({result.rate for result in results if result.rate is not None})
        lines.append(
            f"Learning rates {', '.join(f'{rate:g}' for rate in grid)} were tried with seed 0. "
            f"Chosen: {', '.join(f'{name} {rate:g}' for name, rate in rates.items())}."
        )
    if commits := sorted({result.commit for result in results if result.commit}):
        lines.append(f"Commit {', '.join(commits)}.")
    return lines


def _by_variant(numbers: Mapping[str, int]) -> str:
    """Returns the number that all variants share, or else the number of each."""
    if len(set(numbers.values())) == 1:
        return f"{next(iter(numbers.values())):,}"
    return ", ".join(f"{variant} {number:,}" for variant, number in numbers.items())


def plot(study: Study, results: Sequence[Result], path: Path) -> bool:
    """Draws the curves over the tokens: a line for each variant, with the range of its runs.

    Returns:
      Whether there was anything to draw.
    """
    import matplotlib
    import numpy as np

    from official.plots import figures

    runs = [run for run in chosen(study, results) if run.curve]
    if not runs:
        return False
    colors = matplotlib.colormaps["tab10"]
    with figures.style():
        figure = figures.new(7.0, 4.2, layout="constrained")
        axes = figure.subplots()
        for number, variant in enumerate(study.variants):
            curves = [run.curve for run in runs if run.variant == variant]
            if not curves:
                continue
            shared = sorted(set.intersection(*({x for x, _ in curve} for curve in curves)))
            values = np.array([[dict(curve)[x] for x in shared] for curve in curves])
            color = colors(number % 10)
            axes.plot(shared, values.mean(0), "o-", markersize=3, color=color, label=variant)
            axes.fill_between(shared, values.min(0), values.max(0), color=color, alpha=0.2)
        axes.set_xlabel("tokens")
        axes.set_ylabel(next(iter(study.held_out), "loss"))
        axes.grid(alpha=0.3)
        axes.legend()
        figures.save(figure, path)
    return True


def _title(study: Study) -> str:
    return f"{study.about[0].upper()}{study.about[1:]}"


def _summary(study: Study, results: Sequence[Result]) -> tuple[list[str], list[str]]:
    """Returns a row for each claim of a study, with a link to its section.

    Returns:
      Rows of the claims that a test has decided, with the difference of each step, and rows of the
      others, with the reason.
    """
    values = measured(study, chosen(study, results))
    # The anchor that Markdown gives to the title of the section.
    anchor = re.sub(r"[^\w -]", "", study.about.lower()).replace(" ", "-")
    decided, others = [], []
    for claim, (verdict, parts) in zip(
        study.claims, claims.judge(study.claims, values, study.higher()), strict=True
    ):
        row = f"| [{_title(study)}](#{anchor}) | {_order(claim)} | {claim.by} |"
        if verdict.verdict == claims.OPEN:
            others.append(f"{row} {verdict.reason} |")
        else:
            steps = ", ".join(_interval(part.difference) for part in parts if part.difference)
            decided.append(f"{row} {verdict.verdict} | {steps} |")
    return decided, others


def findings(folder: Path) -> str:
    """Returns the page of all studies whose results are in a folder.

    Raises:
      UserError: the folder has no results, or those of a study without a page.
    """
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise UserError(f"{folder}: there are no results (NAME.jsonl) in it")
    sections = []
    decided = ["| study | claim | by | verdict | difference (95%) |", "|---|---|---|---|---|"]
    others = ["| study | claim | by | why |", "|---|---|---|---|"]
    for file in files:
        study = study_page.load(_PAGES / f"{file.stem}.yaml")
        results = read_results(file)
        sections.append(markdown(study, results))
        for table, rows in zip((decided, others), _summary(study, results), strict=True):
            table += rows
    intro = (
        "# Findings\n\n"
        "What papers report, beside what this project measures at the size that each section "
        f"names. {len(decided) - 2} claims are decided by a test, which the first table has, and "
        f"{len(others) - 2} are not, which the [last table](#not-resolved) has. Tables of variants "
        "have the mean of the runs ± its standard error, and the paired difference to the first "
        "variant with its 95% interval. A claim *holds*, or *the reverse holds*, if a two-sided "
        f"paired t-test over the seeds says so (p < {claims.LEVEL}, corrected by Holm over all "
        "claims of a study); else it is *not resolved*: it may be true, and these runs do not say. "
        "[Studies](studies.md) explains the tests; `python -m experiments.report` makes this page "
        "from `experiments/results`.\n"
    )
    end = ["## Not resolved", "", *others, ""]
    return "\n".join([intro, "## What is decided", "", *decided, "", *sections, *end])


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    parser.add_argument("--output", type=Path, default=Path("docs/findings.md"))
    options = parser.parse_args(arguments)
    try:
        page = findings(options.results)
    except UserError as error:
        parser.error(str(error))
    with atomic.file(options.output) as stream:
        stream.write(page)


if __name__ == "__main__":
    main()
