"""BLEU and ROUGE of generated texts, from 0 to 1, with the settings of T5.

| metric | library | settings (Raffel et al. 2020, section 2.3) |
|---|---|---|
| bleu | sacrebleu | of the corpus; smoothing `exp`, tokenization `intl` |
| rouge_1, rouge_2 | rouge-score | F1 of unigrams and bigrams, without stems; mean over the texts |
| rouge_l | rouge-score | F1 of the longest common subsequences of sentences; mean over the texts |

ROUGE is of English: only letters a to z and digits count. A sentence ends at a line break, or at a
point between blanks. Of several right texts, ROUGE takes the one with the best F1.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np

_ROUGE = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeLsum"}


def bleu(texts: Sequence[str], answers: Sequence[Sequence[str]]) -> float:
    """Computes the BLEU of a corpus (Papineni et al. 2002).

    Args:
      texts: the generated texts.
      answers: the right texts of each; their number may differ.

    Returns:
      From 0 to 1.
    """
    import sacrebleu

    # Stream i has the i-th right text of each text, or None.
    count = max(map(len, answers))
    streams = [[right[i] if i < len(right) else None for right in answers] for i in range(count)]
    found = sacrebleu.corpus_bleu(
        list(texts), streams, smooth_method="exp", tokenize="intl", force=True
    )
    return found.score / 100


def rouge(name: str, texts: Sequence[str], answers: Sequence[Sequence[str]]) -> float:
    """Computes the mean ROUGE of texts (Lin 2004).

    Args:
      name: `rouge_1`, `rouge_2` or `rouge_l`.
      texts: the generated texts.
      answers: the right texts of each.

    Returns:
      From 0 to 1.
    """
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer([_ROUGE[name]])
    scores = [
        scorer.score_multi([_sentences(right) for right in each], _sentences(text))
        for text, each in zip(texts, answers, strict=True)
    ]
    return float(np.mean([score[_ROUGE[name]].fmeasure for score in scores]))


def _sentences(text: str) -> str:
    """Returns a text with a line break after each sentence."""
    return text.replace(" . ", " .\n")


# By name: a function of the texts, and of the right texts of each.
CORPUS_METRICS: dict[str, Callable[[Sequence[str], Sequence[Sequence[str]]], float]] = {
    "bleu": bleu,
    **{name: functools.partial(rouge, name) for name in _ROUGE},
}
