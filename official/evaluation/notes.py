"""Lines that say how the figures of an evaluation are computed, and what bounds them.

A metric of the same name may be computed in several ways: exact match and F1 follow the rules of
several published evaluations, and BLEU and ROUGE split texts into words by rules that depend on the
language.
"""

from collections.abc import Iterator

from official.data import ShardDataset
from official.data.collection import Measured
from official.data.mixture import Mixture
from official.evaluation import text_metrics
from official.shards import side_texts
from official.shards.manifest import TaskTotals
from official.tasks import answer_rules
from official.utils.errors import UserError


def of_source(source: Measured) -> Iterator[str]:
    """Yields the lines about what is evaluated; of a mixture, about each of its tasks."""
    if isinstance(source, Mixture):
        for each in source.sources:
            yield from of_source(each)
    elif isinstance(source, ShardDataset) and source.manifest.task is not None:
        yield from _of_answers(source)
        yield from _of_texts(source)


def check_best(metric: str, source: Measured) -> None:
    """Checks that the metric that picks the best checkpoint is not 0 for every text.

    Args:
      metric: its name; of one of several tasks with the name of the task before it.
      source: what is evaluated.

    Raises:
      UserError: the right texts themselves have 0.
    """
    for each in source.sources if isinstance(source, Mixture) else [source]:
        if not isinstance(each, ShardDataset) or each.manifest.task is None:
            continue
        name = metric.removeprefix(f"{each.task_name}/")
        if name in each.task.metrics and _shares(each).get(name) == 0:
            raise UserError(
                f"{each.folder}: {text_metrics.described(name, each.task)} is 0 for the right "
                f"texts of the {each.split} split, too, so it cannot pick the best checkpoint: "
                "make the shards with --metrics=chrf, or with --bleu_tokenization or --rouge_words "
                "that suit the language, or give --override=recipe.best_metric=loss"
            )


def _of_answers(source: ShardDataset) -> Iterator[str]:
    """Yields the rule that compares answers, and the share of answers that no span equals."""
    task = source.task
    if "span" not in (task.kind, task.answers):
        return
    yield (
        f"{source.split}: exact match and F1 of answers by the rule "
        f"{task.answer_rule or answer_rules.DEFAULT}"
    )
    counts = source.manifest.totals
    totals = counts.splits.get(source.split) if isinstance(counts, TaskTotals) else None
    if totals and totals.cut_answers and totals.questions:
        share = totals.cut_answers / totals.questions
        yield (
            f"{source.split}: {totals.cut_answers:,} of {totals.questions:,} answers begin or end "
            f"inside a token, so exact match cannot exceed {1 - share:.3f}"
        )


def _of_texts(source: ShardDataset) -> Iterator[str]:
    """Yields the settings of BLEU and ROUGE, and the share of texts that they can tell apart."""
    for name, share in _shares(source).items():
        yield f"{source.split}: {text_metrics.described(name, source.task)}"
        if share < 0.5:
            least = text_metrics.LEAST_WORDS[name]
            yield (
                f"{source.split}: {1 - share:.1%} of the right texts have less than {least} "
                f"word{'s' * (least > 1)} by this rule, and {name} finds nothing in them"
            )


def _shares(source: ShardDataset) -> dict[str, float]:
    """Returns `text_metrics.best_share` of each metric of generated texts that has settings."""
    task = source.task
    names = [name for name in task.metrics if name in text_metrics.LEAST_WORDS]
    if task.answers != "generation" or not names or source.split in task.unlabelled:
        return {}
    references = side_texts.read_references(source.folder, source.split, source.manifest)
    answers = [each.answers or () for each in references.values()]
    return {name: text_metrics.best_share(name, answers, task) for name in names}
