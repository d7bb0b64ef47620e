"""Tasks as text in and text out (Raffel et al., 2020, sections 2.4 and 3.1, appendix D).

The input is the name of the task and its fields in alphabetical order, each after its name:
`mnli hypothesis: ... premise: ...`. The target is the word of the label, a number, or a text. A
generated text that is no answer of the task is wrong, and is never replaced by the nearest answer.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from official.tasks import metric_settings
from official.tasks.kinds import METRICS
from official.tasks.task import Columns, Task
from official.utils.errors import UserError
from official.utils.names import listed, nearest

# The kinds of tasks that have a form of text to text. Their answers are labels, numbers, parts of a
# text, or choices by number.
FORMS = ("classification", "regression", "span", "choice")
# The metrics of generated texts that are neither labels nor numbers nor answers to a question.
TEXT_METRICS = tuple(
    name
    for name in METRICS["text_to_text"]
    if name.startswith(("exact_match", "bleu", "chrf", "rouge"))
)
_SETTINGS = {"bleu": "bleu_tokenization", "rouge": "rouge_words"}  # the flag of each metric
# The target of a question without an answer.
NO_ANSWER = "unanswerable"
# The characters that have blanks around them in questions, contexts and answers. The release of T5
# had 'non_word' until April 2022, for its published models too: all but ASCII letters, digits and
# the underscore, so accented letters and other scripts fall apart. Since then it has 'ascii', the
# signs of ASCII with the underscore.
PUNCTUATION = {"ascii": re.compile(r"[!-/:-@\[-`{-~]"), "non_word": re.compile(r"[^0-9A-Za-z_]")}
_WHITE = re.compile(r"[\t\n\f\r ]+")
# The class and the score of a text that is not an answer.
WRONG = -1

# The names of the fields of tasks whose columns have other names.
_FIELDS = {
    "cola": ("sentence",),
    "sst2": ("sentence",),
    "mrpc": ("sentence1", "sentence2"),
    "mnli": ("premise", "hypothesis"),
    "ax": ("premise", "hypothesis"),
}
# AX has no training file: it is answered by a model of MNLI.
_PREFIXES = {"ax": "mnli", "squad1": "", "squad2": ""}
_COLUMN_NAME = re.compile(r"[A-Za-z_]\w*")


def from_task(task: Task) -> Task:
    """Returns the form of text to text of a task.

    Raises:
      UserError: the task or its kind has no such form, or one label begins another.
    """
    if task.kind == "text_to_text":
        return task
    if task.name == "wnli":
        raise UserError(
            "--text_to_text: wnli has no form of text to text, since T5 leaves it out: its "
            "validation file has sentences of the training file with the other label"
        )
    if task.kind not in FORMS:
        raise UserError(
            f"--text_to_text is not supported for {task.name}, a task of the kind {task.kind}; it "
            f"is supported for {', '.join(FORMS)}"
        )
    if task.kind == "classification":
        check_labels(task.labels)
    return dataclasses.replace(
        task,
        kind="text_to_text",
        answers=task.kind,
        prefix=_PREFIXES.get(task.name, task.name),
        fields=field_names(task),
        punctuation="ascii" if task.kind == "span" else "",
        metrics=tuple(dict.fromkeys(name.removeprefix("best_") for name in task.metrics)),
    )


def generation(
    source: str,
    target: str | None,
    prefix: str = "",
    metrics: Sequence[str] = (),
    header: bool = True,
    bleu_tokenization: str | None = None,
    rouge_words: str | None = None,
) -> Task:
    """Returns a task of the user's texts and targets.

    Args:
      source: the column of the texts.
      target: the column of the targets; None if the file has none.
      prefix: what stands before each text, with its blank, such as "summarize: ".
      metrics: the metrics; empty = the defaults.
      header: whether the first line of a file names the columns.
      bleu_tokenization: how BLEU splits texts into words; one of
        `metric_settings.TOKENIZATIONS`.
      rouge_words: what a word of ROUGE is; one of `metric_settings.WORDS_OF_ROUGE`.

    Raises:
      UserError: a metric is not for texts, or a setting is for another metric.
    """
    for name in metrics:
        if name not in TEXT_METRICS:
            raise UserError(
                f"texts have no metric {name!r}{nearest(name, TEXT_METRICS)}: their metrics are "
                f"{listed(TEXT_METRICS)}"
            )
    measured = {metric: any(name.startswith(metric) for name in metrics) for metric in _SETTINGS}
    for (metric, flag), value in zip(
        _SETTINGS.items(), (bleu_tokenization, rouge_words), strict=True
    ):
        if value and not measured[metric]:
            raise UserError(
                f"--{flag}={value} is for the metric {metric}: name it in --metrics, or remove the "
                "flag"
            )
    if measured["bleu"]:
        bleu_tokenization = bleu_tokenization or metric_settings.TOKENIZATION
    if measured["rouge"]:
        rouge_words = rouge_words or metric_settings.ROUGE_WORDS
    return Task(
        name="generation",
        kind="text_to_text",
        columns=Columns(source, None, target, header),
        metrics=tuple(metrics) or ("exact_match",),
        answers="generation",
        prefix=prefix,
        bleu_tokenization=bleu_tokenization or "",
        rouge_words=rouge_words or "",
    )


def field_names(task: Task) -> tuple[str, ...]:
    """Returns the names of a task's texts in its inputs, in the order of its columns."""
    if task.kind == "span":
        return "question", "context"
    if task.kind == "choice":
        return "context", "question"
    if task.name in _FIELDS:
        return _FIELDS[task.name]
    both = task.columns.text, task.columns.text_pair
    columns = [column for column in both if column is not None]
    if all(_COLUMN_NAME.fullmatch(column) for column in columns):
        return tuple(columns)
    return ("text",) if len(columns) == 1 else ("sentence1", "sentence2")


def input_text(prefix: str, fields: Mapping[str, str]) -> str:
    """Returns the input of an example, with its fields in alphabetical order.

    Args:
      prefix: the name of the task; empty = none.
      fields: the texts by the names of the fields.
    """
    parts = [prefix] if prefix else []
    return " ".join([*parts, *(f"{name}: {fields[name]}" for name in sorted(fields))])


def question_text(question: str, context: str, punctuation: str) -> str:
    """Returns the input of a question and its context: the question is first."""
    question, context = spaced(question, punctuation), spaced(context, punctuation)
    return f"question: {question} context: {context}"


def spaced(text: str, punctuation: str) -> str:
    """Puts blanks around punctuation, and makes each run of ASCII white space one blank.

    Args:
      text: any text.
      punctuation: a key of `PUNCTUATION`.
    """
    return _WHITE.sub(" ", PUNCTUATION[punctuation].sub(r" \g<0> ", text)).strip(" ")


def number_text(score: float) -> str:
    """Returns a score as text: the nearest multiple of 0.2, half to even, with one decimal.

    It is rounded in float32, the dtype of scores in shards and in the release. Five times the
    float32 of 3.1, which is less than 3.1, is 15.5 there, but not in float64.
    """
    fifths = np.round(np.float32(score) * np.float32(5))
    return f"{fifths / np.float32(5) + np.float32(0):.1f}"  # The sum has no -0.0.


def choice_name(number: int) -> str:
    """Returns the name of a choice, from 0: `choice1`, `choice2` and so on."""
    return f"choice{number + 1}"


def label_names(answers: str | None, labels: Sequence[str]) -> tuple[str, ...]:
    """Returns the text of each label; empty if the answers are not labels."""
    if answers == "choice":
        return tuple(choice_name(number) for number in range(len(labels)))
    return tuple(labels) if answers == "classification" else ()


def read_label(text: str, labels: Sequence[str]) -> int:
    """Returns the class whose label a text is, or `WRONG`."""
    return labels.index(text) if text in labels else WRONG


def read_number(text: str) -> float:
    """Returns the number that a text is for Python, as in the release of T5, or `WRONG`.

    Unlike there, NaN and infinity do not count as numbers: a single one makes correlations
    undefined.
    """
    try:
        number = float(text)
    except ValueError:
        return float(WRONG)
    return number if math.isfinite(number) else float(WRONG)


def check_labels(labels: Sequence[str]) -> None:
    """Checks that a text that ends too early cannot be taken for another label.

    Raises:
      UserError: a label begins another one.
    """
    for label in labels:
        longer = [other for other in labels if other != label and other.startswith(label)]
        if longer:
            raise UserError(
                f"label {label!r} begins {listed(longer)}: an answer that ends too early would be "
                "taken for it: give the labels other names"
            )
