"""Flags of tasks as text in and text out."""

import dataclasses

from absl import flags

from official.tasks import KINDS, Task, metric_settings
from official.tasks import text_to_text as forms
from official.utils.errors import UserError
from official.utils.flag_table import Flag
from tfrecords_tools.tasks.plans import multiple_choice

_GENERATION = (
    Flag(
        "bleu_tokenization",
        str,
        None,
        "generation: how the metric bleu splits texts into words, by the names of sacrebleu: zh, "
        "ja-mecab, ko-mecab, spm or char for languages without blanks; default: intl, as T5",
        values=tuple(metric_settings.TOKENIZATIONS),
    ),
    Flag(
        "rouge_words",
        str,
        None,
        "generation: what a word of the metrics rouge_1, rouge_2 and rouge_l is: a run of a to z "
        "and digits (english, the default, as T5), or of letters and digits of all scripts, of "
        "which those without blanks have a word for each letter (unicode)",
        values=tuple(metric_settings.WORDS_OF_ROUGE),
    ),
)
FLAGS = (
    Flag(
        "text_to_text",
        bool,
        False,
        "text to text: make inputs and targets for an encoder-decoder, of any task but a ranking",
    ),
    Flag(
        "prefix", str, None, "text to text: what inputs begin with; default: the name of the task"
    ),
    Flag(
        "punctuation",
        str,
        None,
        "text to text, of squad1 and squad2: what has blanks around it, by T5's release since "
        "April 2022 (ascii, the default: the signs of ASCII) or before (non_word: all but ASCII "
        "letters, digits and _)",
        values=sorted(forms.PUNCTUATION),
    ),
    *_GENERATION,
    Flag(
        "max_target_length",
        int,
        None,
        "text to text: longest target in tokens; default: that of the files",
        least=2,
    ),
)


def plan(options: flags.FlagValues) -> Task:
    """Returns a task of texts and targets, whose columns the flags name."""
    for name in ("text_pair_column", "labels"):
        if options[name].present:
            raise UserError(
                f"--{name} is not for --task=generation: its targets are any texts "
                "(--label_column), and its inputs are those of --text_column"
            )
    return forms.generation(
        options.text_column,
        options.label_column,
        options.prefix or "",
        options.metrics or (),
        options.header,
        options.bleu_tokenization,
        options.rouge_words,
    )


def completed(task: Task, options: flags.FlagValues) -> Task:
    """Returns the task, or with --text_to_text its form of text in and text out.

    Raises:
      UserError: it has no such form, or flags are given that are not for it.
    """
    if options.text_to_text:
        for flag in multiple_choice.FLAGS:
            if options[flag.name].present:
                raise UserError(f"--{flag.name} is not supported with --text_to_text: remove it")
        task = forms.from_task(task)
    for name in KINDS["text_to_text"].flags:
        if options[name].present and task.kind != "text_to_text":
            raise UserError(f"--{name} is for tasks of text to text: add --text_to_text")
    for flag in _GENERATION:
        if options[flag.name].present and options.task != "generation":
            raise UserError(
                f"--{flag.name} is for --task=generation, not for --task={options.task}"
            )
    if options.punctuation is not None:
        if not task.punctuation:
            raise UserError(
                f"--punctuation={options.punctuation} is for questions with a context (squad1, "
                f"squad2), not for {task.name}: remove it"
            )
        task = dataclasses.replace(task, punctuation=options.punctuation)
    if options.prefix is not None:
        task = dataclasses.replace(task, prefix=options.prefix)
    return task
