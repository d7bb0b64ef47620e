"""Flags of tasks whose columns the user names: texts with labels or scores, and tags."""

import dataclasses

from absl import flags

from official.tasks import Task, generic, named_tasks
from official.utils.flag_table import Flag
from tfrecords_tools.tasks.plans import embedding

# Those that name the columns of a task and what they hold.
COLUMNS = (
    Flag("text_column", str, None, "name or index (from 0) of the column with the text"),
    Flag(
        "text_pair_column",
        str,
        None,
        "name or index of the column with the second text of a pair",
    ),
    Flag("label_column", str, None, "name or index of the column with the label or score"),
    Flag("labels", list, None, "labels by id; default: those of the train file, sorted"),
    Flag(
        "metrics",
        list,
        None,
        "metrics of official.tasks; the first selects the best checkpoint",
    ),
    Flag("header", bool, True, "the first line of TSV and CSV names the columns"),
)
FLAGS = (
    *COLUMNS,
    Flag(
        "format",
        str,
        None,
        "format of the files; default: by the file name",
        values=("tsv", "csv", "jsonl", "parquet", "trec", "conll", "conllu"),
    ),
    Flag(
        "unlabelled_train",
        bool,
        False,
        "read no labels of the train file: its text is for a teacher to label",
    ),
    Flag(
        "weight_column",
        str,
        None,
        "texts with labels or scores: name or index of the column with the weight of the row in "
        "the loss, 0 or more; test files need none",
    ),
    Flag(
        "windows",
        int,
        None,
        "single texts: read a text that is longer than --max_length in up to so many windows of "
        "this length, whose outputs the head joins; default: longer texts are cut",
        least=2,
    ),
    Flag(
        "window_overlap",
        int,
        None,
        "the number of tokens that two neighboring windows share; default: a quarter of the text "
        "of a window",
        least=0,
    ),
)


def plan(options: flags.FlagValues) -> Task:
    """Returns the task of the columns that the flags name."""
    default_label = named_tasks.CONLL_COLUMNS.label if options.task == "tagging" else None
    task = generic(
        options.task,
        text=options.text_column or named_tasks.CONLL_COLUMNS.text,
        text_pair=options.text_pair_column,
        label=options.label_column or default_label,
        labels=[label.strip() for label in options.labels or ()],
        metrics=() if options.embed_as else options.metrics or (),
        header=options.header,
    )
    if options.task == "regression":
        task = dataclasses.replace(task, score_range=embedding.score_range(options))
    return task
