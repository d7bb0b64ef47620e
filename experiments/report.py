"""Tables, plots and verdicts of studies, and the page of all findings.

  python -m experiments.report --results=experiments/results --output=docs/findings.md

reads `NAME.jsonl` of each study from the folder, which `experiments.study` writes, and the page of
the study. Only results for variants of the page, and of one size, are used. The whole findings page
is generated.
"""

import argparse
import collections
import dataclasses
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

_SENTENCES = 10
_PAGES = Path(__file__).resolve().parents[1] / "configs" / study_page.FOLDER


def chosen(study: Study, results: Sequence[Result]) -> list[Result]:
    """Returns the runs that count: each seed of a variant with the chosen learning rate.

    The others have the tuning seed, or differ in the learning rate alone.

    Raises:
      UserError: a variant has two runs of a seed with different settings.
    """
    found: dict[tuple[str, int], Result] = {}
    for result in results:
        size = study.sizes[result.size]
        tuning = len(size.rates) > 1 and result.seed == size.tuning_seed
        if result.variant not in study.variants or tuning:
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


@dataclasses.dataclass(frozen=True)
class Judged:
    """The verdict of a link, with what a reader needs beside it.

    Attributes:
      claim: the claim of the link.
      verdict: the result of its tests.
      worth: the share of the steps of the base that is worth as much as the difference, by the
        control with twice the steps; NaN without such a control.
      exploratory: why the verdict is not that of a test which was settled before the runs; an empty
        text = it is.
    """

    claim: claims.Claim
    verdict: claims.Verdict
    worth: float
    exploratory: str


def judged(study: Study, results: Sequence[Result]) -> list[Judged]:
    """Returns the verdicts of all links of a study, in the order of its page."""
    runs = chosen(study, results)
    values, scales = measured(study, runs), study.scales()
    void = claims.failed_controls(study.controls, values, scales)
    found = []
    for claim, parts in zip(
        study.claims, claims.judge(study.claims, values, scales, void), strict=True
    ):
        why = _exploratory(study, runs, claim.by)
        doubled = _doubled(study, claim.by, values)
        for part in parts:
            worth = math.nan
            if doubled > 0 and not math.isnan(part.difference.mean):
                worth = 2 ** (part.difference.mean / doubled) - 1
            found.append(Judged(claim, part, worth, why))
    return found


def _exploratory(study: Study, runs: Sequence[Result], measure: str) -> str:
    """Returns why the verdicts by a measure are exploratory; an empty text = they are not."""
    if any(run.page != study.fingerprint(run.size) for run in runs):
        return "the page is younger than its runs"
    if not any(control.by == measure for control in study.controls):
        return f"{measure} has no control"
    return ""


def _doubled(study: Study, measure: str, values: Mapping[str, Mapping[str, Values]]) -> float:
    """Returns what twice the steps of the base are worth by a measure; NaN if that is unknown.

    A loss falls by about as much with each doubling, at the lengths of these runs.
    """
    base = next(iter(study.variants))
    for control in study.controls:
        for link in control.links if control.by == measure else ():
            first = study.variants[link.first]
            if link.second == base and first == dataclasses.replace(
                study.variants[base], budget=2 * study.variants[base].budget
            ):
                of = values[measure]
                higher = study.measures[measure].higher
                return claims.compare(of.get(link.first, {}), of.get(base, {}), higher).mean
    return math.nan


def counted(verdicts: Iterable[Judged]) -> str:
    """Returns how many links have each verdict, in words."""
    count = collections.Counter(each.verdict.verdict for each in verdicts)
    return ", ".join(f"{count[verdict]} {verdict}" for verdict in claims.VERDICTS)


def markdown(study: Study, results: Sequence[Result]) -> str:
    """Returns the section of a study: its table, verdicts, the paper's figures and the settings."""
    runs = chosen(study, results)
    values = measured(study, runs)
    lines = [f"## {_title(study)}", ""]
    if study.source:
        lines += [f"{study.source}.", ""]
    lines += [*_table(study, runs, values), ""]
    if study.claims:
        lines += [*_verdicts(judged(study, results)), ""]
    if study.controls:
        lines += [*_controls(study, values), ""]
    if study.paper:
        lines += [*_paper(study), ""]
    if study.note:
        lines += [" ".join(study.note.split()), ""]
    return "\n".join([*lines, *_settings(study, results, runs)]) + "\n"


def _table(
    study: Study, runs: Sequence[Result], values: Mapping[str, Mapping[str, Values]]
) -> list[str]:
    names = [name for name in study.measures if values[name]]
    head = ["variant", "runs"]
    for name in names:
        head.append(f"{name} ({'higher' if study.measures[name].higher else 'lower'} is better)")
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for variant in study.variants:
        own = [run for run in runs if run.variant == variant]
        diverged = sum(run.diverged for run in own)
        cells = [variant, f"{len(own)}" + (f", {diverged} diverged" if diverged else "")]
        cells += [_mean(values[name].get(variant, {})) for name in names]
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
    low, high = difference.interval()
    interval = f" ({low:+.3g} to {high:+.3g})" if difference.pairs > 1 else ""
    return f"{difference.mean:+.3g}{interval}"


def _verdicts(verdicts: Sequence[Judged]) -> list[str]:
    lines = [
        "| claim | by | verdict | difference (95%) | worth of the steps | p, level |",
        "|---|---|---|---|---:|---|",
    ]
    for each in verdicts:
        part = each.verdict
        tested = not math.isnan(part.p_value)
        test = f"{part.p_value:.2g}, {part.level:.2g}" if tested else "-"
        lines.append(
            f"| {part.link} | {each.claim.by} | {_words(each)} | {_interval(part.difference)} | "
            f"{_worth(each)} | {test} |"
        )
    return lines


def _words(each: Judged) -> str:
    """Returns a verdict in bold, with what makes it weaker."""
    part = each.verdict
    text = f"**{part.verdict}**" + (", as claimed" if part.agrees else "")
    notes = [part.reason] if part.reason else []
    if not math.isnan(part.smallest):
        notes.append(f"these runs would show {part.smallest:.2g}")
    if each.exploratory:
        notes.append(f"exploratory: {each.exploratory}")
    return text + (f" ({'; '.join(notes)})" if notes else "")


def _worth(each: Judged) -> str:
    return "-" if math.isnan(each.worth) else f"{each.worth:+.0%}"


def _controls(study: Study, values: Mapping[str, Mapping[str, Values]]) -> list[str]:
    """Returns what the controls say, in a line."""
    scales, texts = study.scales(), []
    for control in study.controls:
        for part in claims.judge([control], values, scales)[0]:
            agrees = "as known" if part.agrees else f"**{part.verdict}**, so it gives no verdicts"
            texts.append(f"{part.link} by {control.by} {_interval(part.difference)}, {agrees}")
    return [f"Controls: {'; '.join(texts)}."]


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
    size = study.sizes[results[0].size]
    margins = [
        f"A difference of {measure.margin:g} in {name} counts as none: {measure.because}."
        for name, measure in study.measures.items()
        if measure.margin is not None
    ]
    lines = [
        *margins,
        *([""] if margins else []),
        f"`python -m experiments.study --study=configs/{study_page.FOLDER}/{study.name}.yaml "
        f"--size={results[0].size} --text=TEXT --held_out=HELD_OUT"
        + (" --tasks=DIR" if any(m.task for m in study.measures.values()) else "")
        + " --output=DIR`",
        "",
        f"Config `{size.config}`. "
        f"{len(seconds)} runs, {hours:.1f} hours of pretraining. Steps of a run: "
        f"{_by_variant({run.variant: run.steps for run in runs})}. "
        f"Tokens: {_by_variant({run.variant: run.tokens for run in runs})}.",
    ]
    rates = {run.variant: run.rate for run in runs if run.rate is not None}
    if rates:
        lines.append(_rates(results, rates))
    if commits := sorted({result.commit for result in results if result.commit}):
        lines.append(f"Commit {', '.join(commits)}.")
    return lines


def _rates(results: Sequence[Result], rates: Mapping[str, float]) -> str:
    """Returns which learning rates were tried and chosen."""
    tried = collections.defaultdict[str, set[float]](set)
    for result in results:
        if result.rate is not None:
            tried[result.variant].add(result.rate)
    grid = sorted(set.union(*tried.values()))
    texts = []
    for variant, rate in rates.items():
        own = tried[variant]
        edge = len(own) > 1 and rate in (min(own), max(own))
        texts.append(f"{variant} {rate:g}" + (" (the last one tried)" if edge else ""))
    seeds = sorted({r.seed for r in results if r.rate != rates.get(r.variant)})
    with_seed = f" with seed {seeds[0]}" if seeds else ""
    return (
        f"Learning rates {', '.join(f'{rate:g}' for rate in grid)} were tried{with_seed}. "
        f"Chosen: {', '.join(texts)}."
    )


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


def findings(folder: Path) -> str:
    """Returns the page of all studies whose results are in a folder.

    Raises:
      UserError: the folder has no results, or those of a study without a page.
    """
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise UserError(f"{folder}: there are no results (NAME.jsonl) in it")
    sections: list[str] = []
    verdicts: list[tuple[Study, Judged]] = []
    for file in files:
        study = study_page.load(_PAGES / f"{file.stem}.yaml")
        results = read_results(file)
        sections.append(markdown(study, results))
        verdicts += ((study, each) for each in judged(study, results))
    settled = [pair for pair in verdicts if not pair[1].exploratory]
    others = [pair for pair in verdicts if pair[1].exploratory]
    lines = ["# Findings", "", f"Verdicts: {counted(each for _, each in settled)}", ""]
    if others:
        lines += [f"Exploratory: {counted(each for _, each in others)}", ""]
    lines += [_INTRODUCTION, "## What is known", ""]
    known = sorted(filter(_is_decided, settled), key=_size, reverse=True)
    lines += [f"{n}. {_sentence(*pair)}" for n, pair in enumerate(known[:_SENTENCES], 1)]
    lines += ["", *_HEAD, *(_row(*pair) for pair in filter(_is_decided, settled)), ""]
    if found := [_row(*pair) for pair in filter(_is_decided, others)]:
        lines += ["## What was explored", "", *_HEAD, *found, ""]
    lines += [*sections, "## Open and void", ""]
    lines += [f"{_HEAD[0]} what would decide it |", f"{_HEAD[1]}---|"]
    rest = [pair for pair in verdicts if not _is_decided(pair)]
    return "\n".join([*lines, *(f"{_row(*pair)} {_deciding(*pair)} |" for pair in rest), ""])


def _is_decided(pair: tuple[Study, Judged]) -> bool:
    return pair[1].verdict.verdict in (claims.BETTER, claims.WORSE, claims.EQUIVALENT)


def _size(pair: tuple[Study, Judged]) -> float:
    """Returns the share of the steps that a difference is worth, either way, to sort by."""
    worth = pair[1].worth
    return -1.0 if math.isnan(worth) else abs(worth)


def _sentence(study: Study, each: Judged) -> str:
    """Returns a decided link in words."""
    part, measure = each.verdict, study.measures[each.claim.by]
    first, second, by = (
        study.words.get(name, f"`{name}`")
        for name in (part.link.first, part.link.second, each.claim.by)
    )
    unit = "" if measure.higher else " nats"
    low, high = sorted(map(abs, part.difference.interval()))
    if part.verdict == claims.EQUIVALENT:
        says = f"{by} is within {measure.margin:g}{unit} of that with {second}"
        bounds = _interval(part.difference)
    else:
        higher = (part.difference.mean > 0) == measure.higher
        says = f"{by} is {abs(part.difference.mean):.3g}{unit} {'higher' if higher else 'lower'}"
        says += f" than with {second}"
        bounds = f"95%: {low:.3g} to {high:.3g}"
    worth = "" if math.isnan(each.worth) else f", worth {abs(each.worth):.0%} of the steps"
    claimed = "as claimed" if part.agrees else "unlike the claim"
    return f"With {first}, {says} ({bounds}){worth}: {claimed}. [{_title(study)}]({_anchor(study)})"


def _deciding(study: Study, each: Judged) -> str:
    """Returns what would decide a link that is open or void."""
    part = each.verdict
    if part.verdict == claims.VOID:
        return "a measure whose controls come out"
    if part.difference.pairs < 2:
        return "more than one seed"
    margin = study.measures[each.claim.by].margin
    pairs = claims.deciding_pairs(part.difference, margin, part.level)
    if pairs is None:
        return f"more than {claims.MOST_PAIRS} seeds, or a larger margin"
    return f"{pairs} seeds, if the difference is as found"


_HEAD = (
    "| study | link | by | verdict | difference (95%) | worth of the steps |",
    "|---|---|---|---|---|---:|",
)
_INTRODUCTION = (
    "What papers report, beside what this project measures at the size that each section names. "
    "Each link of a claim has a verdict of its own, by the runs of both variants with the same "
    "seeds. *better* and *worse*: the two-sided t-test says that the means differ. *equivalent*: "
    "they differ by less than the margin that the page gives, by both one-sided tests. *open*: "
    "neither; the row has the smallest difference that as many runs show with 80% power. *void*: "
    "the measure does not show what is known, such as that twice the steps are better. All tests "
    f"of a study have the level {claims.LEVEL}, corrected by Holm over its claims. The worth of a "
    "difference is the share of the steps of the base that gives as much, by the control with "
    "twice the steps. A verdict is *exploratory* if its page was changed after the runs, or if the "
    "measure has no control. [Studies](studies.md) explains the tests; "
    "`python -m experiments.report` makes this page from `experiments/results`.\n"
)


def _row(study: Study, each: Judged) -> str:
    """Returns a row of the tables of all studies, with a link to the section."""
    part = each.verdict
    return (
        f"| [{_title(study)}]({_anchor(study)}) | {part.link} | {each.claim.by} | {_words(each)} | "
        f"{_interval(part.difference)} | {_worth(each)} |"
    )


def _anchor(study: Study) -> str:
    """Returns the link to a section: the anchor that Markdown gives to its title."""
    return "#" + re.sub(r"[^\w -]", "", study.about.lower()).replace(" ", "-")


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
