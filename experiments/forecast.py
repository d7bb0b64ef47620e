"""What a study can show, and how long it takes, before anything runs.

  python -m experiments.forecast --variants=4 --claims=6

prints a table by the number of seeds, in standard deviations of a difference over the seeds.
"""

import argparse
from collections.abc import Sequence

from experiments import claims
from experiments.study_page import Study
from experiments.study_runs import Runner, Speed

_SEEDS = (3, 4, 5, 6, 8, 10, 15, 20)


def hours(runner: Runner, speed: Speed | None) -> str:
    """Returns the runs of a study, and how long its pretraining will take if the speed is known."""
    lines, total = [], 0.0
    for variant, flops in runner.expected.items():
        if (first := runner.pretrained_as[variant]) != variant:
            lines.append(f"{variant:24} the runs of {first}, fine-tuned in another way")
            continue
        run, count = runner.plan(variant, 0, None), runner.num_runs(variant)
        tokens = sum(phase.steps * phase.tokens for phase in run.phases)
        line = f"{variant:24} {count} runs of {sum(p.steps for p in run.phases):,} steps, "
        line += f"{tokens:,} tokens"
        if speed is not None:
            seconds = speed.seconds(flops, count)
            total += seconds
            line += f", {seconds / 3600:.1f} h"
        lines.append(line)
    if speed is not None:
        lines.append(f"{total / 3600:.1f} h of pretraining in all (by the speed of {speed.source})")
    return "\n".join(lines)


def power(study: Study, size: str) -> list[str]:
    """Returns a line for each measure with claims: what the seeds of a size show with 80% power.

    Args:
      study: the page. Measures without `spread` have figures in units of it.
      size: the name of the size.
    """
    seeds, found = study.sizes[size].seeds, []
    for name in dict.fromkeys(claim.by for claim in study.claims):
        measure, compared = study.measures[name], len(claims.compared(study.claims, name))
        first = claims.LEVEL / len(study.claims)
        if seeds < 2:
            found.append(f"{name}: one seed shows nothing")
            continue
        unit = " SD" if measure.spread is None else ""
        error, freedom = _error(measure.spread or 1.0, seeds, compared)
        shown = [claims.shown_difference(error, freedom, level) for level in (claims.LEVEL, first)]
        margins = [claims.shown_margin(error, freedom, level) for level in (claims.LEVEL, first)]
        text = (
            f"{name}: {seeds} seeds of {compared} variants show a difference of {shown[0]:.2g} to "
            f"{shown[1]:.2g}{unit}, and equality within {margins[0]:.2g} to {margins[1]:.2g}{unit}"
        )
        if measure.margin is not None:
            text += f"; the margin is {measure.margin:g}"
            if measure.spread is not None and margins[1] > measure.margin:
                text += ", which so few seeds may not show"
        if measure.spread is None:
            text += " (SD of a difference over the seeds; give it as `spread`)"
        found.append(text)
    return found


def table(variants: int, num_claims: int, seeds: Sequence[int] = _SEEDS) -> str:
    """Returns the power of a study by its seeds as Markdown, in SD of a difference.

    Args:
      variants: the variants that claims by one measure compare.
      num_claims: the claims of the study, over which Holm corrects.
      seeds: the numbers of seeds.
    """
    rows = [
        f"| seeds, {variants} variants | difference, 1 claim | difference, {num_claims} claims | "
        "equality within, 1 claim |",
        "|---:|---:|---:|---:|",
    ]
    for count in seeds:
        error, freedom = _error(1.0, count, variants)
        one = claims.shown_difference(error, freedom)
        all_ = claims.shown_difference(error, freedom, claims.LEVEL / num_claims)
        margin = claims.shown_margin(error, freedom)
        rows.append(f"| {count} | {one:.1f} | {all_:.1f} | {margin:.1f} |")
    return "\n".join(rows)


def _error(spread: float, seeds: int, variants: int) -> tuple[float, int]:
    """Returns the standard error of a difference and its degrees of freedom."""
    return spread / seeds**0.5, (max(variants, 2) - 1) * (seeds - 1)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--variants", type=int, default=2, help="that claims by a measure compare")
    parser.add_argument("--claims", type=int, default=1, help="of the study, for Holm")
    options = parser.parse_args(arguments)
    print(table(options.variants, options.claims))


if __name__ == "__main__":
    main()
