"""Metrics of a corpus of generated texts: BLEU by sacrebleu, ROUGE by rouge-score.

All of them are percentages, with the settings of T5 (Raffel et al., 2020, section 2.3): BLEU with
the international tokenization, and the mean F of ROUGE over stems. The packages are imported when a
metric is computed.
"""

import importlib
import types
from collections.abc import Sequence

import numpy as np

from official.utils.errors import UserError

# The names of rouge-score.
_ROUGE = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL", "rouge_l_sum": "rougeLsum"}
METRICS = ("bleu", *_ROUGE)


def check(names: Sequence[str]) -> None:
    """Checks that the packages of metrics are installed.

    Raises:
      UserError: one is missing.
    """
    for name in names:
        if name in METRICS:
            _package(name)


def compute(name: str, texts: Sequence[str], right: Sequence[str]) -> float:
    """Computes a metric.

    Args:
      name: one of `METRICS`. `rouge_l_sum` compares texts line by line.
      texts: the generated texts.
      right: the target of each.

    Raises:
      UserError: the package of the metric is not installed.
    """
    package = _package(name)
    if name == "bleu":
        found = package.corpus_bleu(list(texts), [list(right)], tokenize="intl")
        return float(found.score)
    scorer = package.RougeScorer([_ROUGE[name]], use_stemmer=True)
    scores = [
        scorer.score(target, text)[_ROUGE[name]].fmeasure
        for text, target in zip(texts, right, strict=True)
    ]
    return 100 * float(np.mean(scores))


def _package(name: str) -> types.ModuleType:
    module, project = "rouge_score.rouge_scorer", "rouge-score"
    if name == "bleu":
        module = project = "sacrebleu"
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"the metric {name} needs the package {project}, which is not here ({error}): "
            "pip install -r requirements.txt"
        ) from error
