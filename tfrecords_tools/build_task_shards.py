r"""Builds a shard folder from the files of a fine-tuning task: all splits, manifest, tokenizer.

A task of `official.tasks`, from the files as distributed:
  python -m tfrecords_tools.build_task_shards --task=sst2 --input=DIR \
      --tokenizer=DIR --output=DIR
Any other task of single texts or pairs (TSV, CSV, JSON Lines, Parquet, or a folder for each label):
  python -m tfrecords_tools.build_task_shards --task=classification \
      --train_file=train.csv --validation_file=dev.csv --text_column=review \
      --label_column=stars --tokenizer=DIR --output=DIR --max_length=256
Ranking: texts with the columns `id` and `text`, TREC's qrels, and a TREC run with the candidates of
each split:
  python -m tfrecords_tools.build_task_shards --task=ranking --input=DIR \
      --queries=queries.tsv --documents=documents.tsv --qrels=qrels \
      --train_file=train.run --validation_file=dev.run --tokenizer=DIR \
      --output=DIR --max_length=256
Questions and spans of a context (SQuAD 1.1 and 2.0, and other files of their form):
  python -m tfrecords_tools.build_task_shards --task=squad2 --input=DIR \
      --tokenizer=DIR --output=DIR --max_length=384 --doc_stride=128
Questions with several choices, as distributed (race, swag, dream) or as JSON Lines with the keys
context, question, choices and answer (choice):
  python -m tfrecords_tools.build_task_shards --task=race --input=RACE \
      --tokenizer=DIR --output=DIR
  python -m tfrecords_tools.build_task_shards --task=choice \
      --train_file=train.jsonl --validation_file=dev.jsonl --tokenizer=DIR \
      --output=DIR --max_length=256
Any task but a ranking as text in and text out, for an encoder-decoder:
  python -m tfrecords_tools.build_task_shards --task=mnli --text_to_text \
      --input=DIR --tokenizer=DIR --output=DIR
Texts whose vectors are learned (the same files): a query, a text that suits it, and others
that do not; and pairs with scores or labels:
  python -m tfrecords_tools.build_task_shards --task=embedding \
      --train_file=train.jsonl --text_column=query --text_pair_column=positive \
      --negative_columns=negatives --tokenizer=DIR --output=DIR
  python -m tfrecords_tools.build_task_shards --task=stsb --embed_as=scores \
      --input=DIR --tokenizer=DIR --output=DIR
Words and tags (CoNLL, CoNLL-U, JSON Lines, and exports of annotation tools):
  python -m tfrecords_tools.build_task_shards --task=tagging \
      --train_file=train.conll --validation_file=dev.conll --tokenizer=DIR \
      --output=DIR
Texts and targets (TSV, CSV, JSON Lines) for an encoder-decoder:
  python -m tfrecords_tools.build_task_shards --task=generation \
      --train_file=train.tsv --validation_file=dev.tsv --text_column=source \
      --label_column=target --prefix='summarize: ' --tokenizer=DIR --output=DIR
With --workers=N or --runner=NAME -- OPTIONS, every command gives the same bytes.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from absl import flags

from official.tasks import GENERIC, KINDS, SPLITS, Task, choice, find
from official.utils import (
    command_help,
    command_line,
    errors,
    flag_table,
    parallel,
    paths,
    runner_flags,
)
from official.utils.errors import UserError
from official.utils.flag_table import Flag
from official.utils.paths import AnyPath
from tfrecords_tools.tasks.plans import (
    embedding,
    labelled_text,
    multiple_choice,
    ranking,
    span,
    tagging,
    text_to_text,
)
from tfrecords_tools.writing import execution
from tfrecords_tools.writing.execution import Execution

if TYPE_CHECKING:
    from official.shards.manifest import Manifest
    from official.tokenizers import Tokenizer

# What messages call the tasks of a kind; others by the name of the kind.
_TASKS = {
    "ranking": "--task=ranking",
    "span": "squad1 and squad2",
    "choice": "race, swag, dream and choice",
}
_NEEDED = "its files: --train_file, --validation_file, --test_file"


def plan(options: flags.FlagValues) -> tuple[Task, dict[str, AnyPath]]:
    """Returns the task and the file of each split that the flags describe.

    Raises:
      UserError: the flags contradict each other, or a file is missing.
    """
    given = {split: getattr(options, f"{split}_file") for split in SPLITS}
    names = {split: name for split, name in given.items() if name}
    if options.task == "ranking":
        task = ranking.plan(options, names)
    elif options.task in (*GENERIC, "generation", "embedding"):
        task = _plan_columns(options, names)
    else:
        task, names = _plan_named(options, given)
    task = embedding.embedded(task, options)
    # As vectors of texts, a named task may be without some of its files.
    names = {split: name for split, name in names.items() if given[split] or split in task.files}
    _check_kind(options, task)
    for module in (embedding, tagging, span, text_to_text):
        task = module.completed(task, options)
    files = {split: paths.join(options.input, name) for split, name in names.items()}
    _check_files(files)
    if task.kind == "ranking":
        ranking.check_files(options)
    return task, files


def _plan_columns(options: flags.FlagValues, names: Mapping[str, str]) -> Task:
    """Returns a task whose columns the flags name; `names` are those of its files."""
    if not options.text_column and options.task != "tagging":
        raise UserError(f"--task={options.task} needs --text_column, the name or index of the text")
    plans = {"generation": text_to_text.plan, "embedding": embedding.plan}
    task = plans.get(options.task, labelled_text.plan)(options)
    if not names:
        raise UserError(f"--task={options.task} needs {_NEEDED}")
    free = {"test", "train"} if options.unlabelled_train else {"test"}
    if task.columns.label is None and task.kind != "embedding" and not set(names) <= free:
        raise UserError(
            "--label_column is missing: only a test file may lack labels, and with "
            "--unlabelled_train the train file"
        )
    return task


def _plan_named(
    options: flags.FlagValues, given: Mapping[str, str | None]
) -> tuple[Task, dict[str, str]]:
    """Returns a task of `official.tasks` and the names of its files; flags may replace them."""
    task = choice() if options.task == "choice" else find(options.task)
    for flag in labelled_text.COLUMNS:
        if options[flag.name].present:
            raise UserError(
                f"--{flag.name} is for --task=classification and --task=regression: "
                f"the columns and labels of {task.name} are known"
            )
    names = {}
    if options.input:
        names = {split: _file_name(task, split, options.input) for split in task.files}
    names |= {split: name for split, name in given.items() if name is not None}
    names = {split: name for split, name in names.items() if name}
    if not names:
        wanted = f"--input=DIR, the folder with {', '.join(task.files.values())}"
        if not task.files:
            wanted = _NEEDED
        raise UserError(f"--task={task.name} needs {wanted}")
    for test in [split for split in names if split.startswith("test")]:
        if given[test] is None and not paths.join(options.input, names[test]).exists():
            names.pop(test)
    if not names:
        raise UserError(f"{options.input} has none of {', '.join(task.files.values())}")
    return task, names


def _file_name(task: Task, split: str, folder: str) -> str:
    """Returns the name of the file of a split that a folder has, or the first of its names."""
    names = (task.files[split], *task.other_files.get(split, ()))
    return next((name for name in names if paths.join(folder, name).exists()), names[0])


def _check_kind(options: flags.FlagValues, task: Task) -> None:
    """Checks that the kind of task has the flags that are given, but for those of text to text."""
    own = KINDS[task.kind].flags
    if options.task == "regression":  # The range of the scores of named tasks is known.
        own = (*own, "score_range")
    for kind, row in KINDS.items():
        for name in row.flags:
            if options[name].present and kind != "text_to_text" and name not in own:
                owners = [_TASKS.get(k, k) for k, other in KINDS.items() if name in other.flags]
                raise UserError(
                    f"--{name} is for {', '.join(owners)}, not for --task={options.task}"
                )
    if options.format in ("conll", "conllu") and task.kind != "tagging":
        raise UserError(f"--format={options.format} is for tagging, not for --task={options.task}")
    if options["format"].present and task.kind == "span":
        raise UserError(
            f"--format is for tasks of TSV, CSV or JSON Lines, not for --task={options.task}"
        )
    if options["format"].present and task.kind == "choice":
        raise UserError(
            f"--format is for tasks of tables: the files of {task.name} have one format"
        )


def _check_files(files: Mapping[str, AnyPath]) -> None:
    """Checks that the files exist and are different."""
    for split, path in files.items():
        if not path.exists():
            raise UserError(
                f"there is no file {path} for the {split} split (--{split}_file names another, "
                f"--{split}_file= leaves the split out)"
            )
        other = [s for s in files if s != split and files[s].resolve() == path.resolve()]
        if other:
            raise UserError(f"{path} is used twice, as the {split} and the {other[0]} split")


def choose_execution(
    argv: list[str], options: flags.FlagValues, files: Mapping[str, AnyPath]
) -> Execution:
    """Returns where the work is done.

    Args:
      argv: what absl leaves of the command line.
      options: the flags.
      files: the file of each split.

    Raises:
      UserError: the flags contradict each other.
    """
    texts = [options.queries, options.documents] if options.task == "ranking" else []
    given = [*files.values(), *(paths.join(options.input, name) for name in texts)]
    return execution.from_flags(argv, lambda: given, options)


_REQUIRED = ("task", "tokenizer", "output")
# The kinds of tasks that the descriptions of flags begin with.
_TOPICS = command_help.Topics(
    "task",
    (
        *("classification", "regression", "span tasks", "choices", "tagging", "ranking"),
        *("embedding", "text to text", "generation"),
    ),
)
_PLACES = (
    Flag(
        "task",
        str,
        None,
        "a task of official.tasks, or classification, regression, tagging, ranking, choice, "
        "generation, embedding",
    ),
    Flag("input", str, "", "folder of the files"),
    Flag("tokenizer", str, None, "tokenizer folder"),
    Flag("output", str, None, "shard folder to create"),
)
_SIZES = (
    Flag(
        "seed",
        int,
        0,
        "seed of the order of training examples, and of the draw of a ranking's triples",
        least=0,
    ),
    Flag(
        "max_length",
        int,
        None,
        "longest sequence in tokens; default: 128, 384 for span tasks, 512 for choices and inputs "
        "of text to text",
        least=1,
    ),
)
_FILES = (
    Flag("train_file", str, None, "file of the train split"),
    Flag("validation_file", str, None, "file of the validation split"),
    Flag(
        "validation_mismatched_file",
        str,
        None,
        "a second validation file: texts unlike those of training (MNLI)",
    ),
    Flag("test_file", str, None, "file of the test split, which may have no labels"),
    Flag(
        "test_mismatched_file",
        str,
        None,
        "a second test file: texts unlike those of training (MNLI)",
    ),
)
_BAD_ROWS = Flag("skip_bad_rows", bool, False, "leave out and count rows that cannot be used")


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags of this command."""
    flag_table.define(_PLACES, values)
    execution.define_flags(values)
    flag_table.define((*_SIZES, *span.FLAGS, *_FILES), values)
    for module in (labelled_text, ranking, embedding, multiple_choice, text_to_text, tagging):
        flag_table.define(module.FLAGS, values)
    flag_table.define([_BAD_ROWS], values)


def build(
    options: flags.FlagValues,
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: "Tokenizer",
    max_length: int,
    where: Execution,
    report: Callable[[str], None],
) -> "Manifest":
    """Builds the folder that the flags describe.

    Args:
      options: the flags.
      task: the task; see `plan`.
      files: the file of each split.
      tokenizer: the tokenizer.
      max_length: the length of the longest sequence in tokens.
      where: where the work is done.
      report: is called with lines of progress and the summaries.

    Raises:
      UserError: files, rows or options cannot be used.
    """
    from tfrecords_tools.tasks import builder

    for note in tokenizer.notes:
        report(note)
    # The attributes of a builder have the names of flags.
    names = {field.name for field in dataclasses.fields(builder.builder_of(task))}
    names -= {"task", "files", "rows", "tokenizer", "max_length", "report"}
    chosen = {name: options[name].value for name in names}
    return builder.build(
        task, files, tokenizer, options.output, max_length, execution=where, report=report, **chosen
    )


def main(argv: list[str]) -> None:
    """Runs the command line."""
    options = flags.FLAGS
    errors.require(options, *_REQUIRED)
    task, files = plan(options)
    where = choose_execution(argv, options, files)
    if where.workers:
        # TensorFlow is slow to load. The process that workers are forked from loads it meanwhile.
        parallel.start("tfrecords_tools.tasks.splits")

    from official import tokenizers  # TensorFlow is slow to load, so the flags are checked first.

    started = time.monotonic()
    built = build(
        options,
        task,
        files,
        tokenizers.load(options.tokenizer),
        options.max_length or KINDS[task.kind].max_length,
        where,
        lambda line: print(line, flush=True),
    )
    print(
        f"{options.output}: {task.name}, {built.totals.examples:,} examples, "
        f"{built.totals.tokens:,} tokens, {time.monotonic() - started:.1f} s"
    )


run = command_line.Command(main, define_flags, _REQUIRED, _TOPICS, runner_flags.USAGE)


if __name__ == "__main__":
    run()
