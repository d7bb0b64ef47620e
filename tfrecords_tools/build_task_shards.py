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
A classification of pairs as a ranking: of the pairs with one first text, the best has a label:
  python -m tfrecords_tools.build_task_shards --task=qnli \
      --rank_pairs=entailment --input=DIR --tokenizer=DIR --output=DIR
A classification of candidates for a pronoun, which a masked LM compares:
  python -m tfrecords_tools.build_task_shards --task=wnli \
      --fill_pronouns=entailment --input=DIR --tokenizer=DIR --output=DIR
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
With --workers=N or --runner=beam -- BEAM_OPTIONS, every command gives the same bytes.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from absl import flags

from official.tasks import (
    GENERIC,
    KINDS,
    SPLITS,
    Columns,
    Task,
    answer_rules,
    best_rows,
    choice,
    conllu,
    embeddings,
    find,
    generic,
    metric_settings,
    named_tasks,
    ranking,
    text_to_text,
)
from official.utils import (
    command_help,
    command_line,
    errors,
    parallel,
    paths,
    runner_flags,
    word_rules,
)
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.writing import execution
from tfrecords_tools.writing.execution import Execution

if TYPE_CHECKING:
    from official.shards.manifest import Manifest
    from official.tokenizers import Tokenizer

# Those that name the columns of a task and what they hold.
GENERIC_FLAGS = ("text_column", "text_pair_column", "label_column", "labels", "metrics", "header")
# What messages call the tasks of a kind; others by the name of the kind.
_TASKS = {
    "ranking": "--task=ranking",
    **best_rows.FLAGS,
    "span": "squad1 and squad2",
    "choice": "race, swag, dream and choice",
}
SMALL_BYTES = 8 << 20  # of files that are done before the processes of workers have started


def plan(options: flags.FlagValues) -> tuple[Task, dict[str, AnyPath]]:
    """Returns the task and the file of each split that the flags describe.

    Raises:
      UserError: the flags contradict each other, or a file is missing.
    """
    given = {split: getattr(options, f"{split}_file") for split in SPLITS}
    if options.task == "ranking":
        task, names = _plan_ranking(options, given)
    else:
        generic_names = (*GENERIC, "generation", "embedding")
        named = _plan_generic if options.task in generic_names else _plan_named
        task, names = named(options, given)
    for kind, flag in best_rows.FLAGS.items():
        if (best := options[flag.removeprefix("--")].value) is not None:
            if options.metrics:
                raise UserError(f"--metrics is not supported with {flag}: remove it")
            task = best_rows.of_task(task, kind, best)
    if options.embed_as:
        task = embeddings.of_task(
            task, options.embed_as, _score_range(options), options.metrics or ()
        )
        names = {
            split: name for split, name in names.items() if given[split] or split in task.files
        }
    _check_kind(options, task)
    if options.task_name:
        task = dataclasses.replace(task, name=options.task_name)
    if task.kind == "tagging":
        task = dataclasses.replace(task, split_words=options.split_words)
    if task.kind == "span":
        task = dataclasses.replace(task, answer_rule=options.answers)
    if options.text_to_text:
        for name in KINDS["choice"].flags:
            if options[name].present:
                raise UserError(f"--{name} is not supported with --text_to_text: remove it")
        task = text_to_text.from_task(task)
    for name in KINDS["text_to_text"].flags:
        if options[name].present and task.kind != "text_to_text":
            raise UserError(f"--{name} is for tasks of text to text: add --text_to_text")
    for name in ("bleu_tokenization", "rouge_words"):
        if options[name].present and options.task != "generation":
            raise UserError(f"--{name} is for --task=generation, not for --task={options.task}")
    if options.punctuation is not None:
        if not task.punctuation:
            raise UserError(
                f"--punctuation={options.punctuation} is for questions with a context (squad1, "
                f"squad2), not for {task.name}: remove it"
            )
        task = dataclasses.replace(task, punctuation=options.punctuation)
    if options.prefix is not None:
        task = dataclasses.replace(task, prefix=options.prefix)
    files = {split: paths.join(options.input, name) for split, name in names.items()}
    _check_files(files)
    for name in ("queries", "documents", "qrels") if task.kind == "ranking" else ():
        path = paths.join(options.input, options[name].value or "")
        if not path.exists():
            raise UserError(f"--{name}: there is no file {path}")
    return task, files


def _plan_ranking(
    options: flags.FlagValues, given: Mapping[str, str | None]
) -> tuple[Task, dict[str, str]]:
    """Returns the ranking task and the names of its runs."""
    for name in ("queries", "documents"):
        if not options[name].value:
            raise UserError(f"--task=ranking needs --{name}, the file with their ids and texts")
    for name in GENERIC_FLAGS:
        if name not in ("metrics", "header") and options[name].present:
            raise UserError(
                f"--{name} is not for --task=ranking: its files have the columns id and text"
            )
    task = ranking(options.metrics or ())
    names = {split: name for split, name in given.items() if name}
    if not names:
        raise UserError(
            "--task=ranking needs TREC runs with the candidates: --train_file, "
            "--validation_file, --test_file"
        )
    if "train" in names and not options.qrels:
        raise UserError("--qrels is missing: training needs to know what is relevant")
    return task, names


def _plan_generic(
    options: flags.FlagValues, given: Mapping[str, str | None]
) -> tuple[Task, dict[str, str]]:
    """Returns a task whose columns the flags name, and the names of its files."""
    if not options.text_column and options.task != "tagging":
        raise UserError(f"--task={options.task} needs --text_column, the name or index of the text")
    if options.task == "generation":
        task = _plan_generation(options)
    elif options.task == "embedding":
        task = _plan_embedding(options)
    else:
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
            task = dataclasses.replace(task, score_range=_score_range(options))
    names = {split: name for split, name in given.items() if name}
    if not names:
        raise UserError(
            f"--task={options.task} needs its files: --train_file, --validation_file, --test_file"
        )
    free = {"test", "train"} if options.unlabelled_train else {"test"}
    if task.columns.label is None and task.kind != "embedding" and not set(names) <= free:
        raise UserError(
            "--label_column is missing: only a test file may lack labels, and with "
            "--unlabelled_train the train file"
        )
    return task, names


def _plan_generation(options: flags.FlagValues) -> Task:
    """Returns a task of texts and targets, whose columns the flags name."""
    for name in ("text_pair_column", "labels"):
        if options[name].present:
            raise UserError(
                f"--{name} is not for --task=generation: its targets are any texts "
                "(--label_column), and its inputs are those of --text_column"
            )
    return text_to_text.generation(
        options.text_column,
        options.label_column,
        options.prefix or "",
        options.metrics or (),
        options.header,
        options.bleu_tokenization,
        options.rouge_words,
    )


def _plan_embedding(options: flags.FlagValues) -> Task:
    """Returns a task of the vectors of texts, whose columns the flags name."""
    if options["labels"].present:
        raise UserError(
            "--labels is not for --task=embedding: for texts with labels use "
            "--task=classification with --embed_as"
        )
    return embeddings.of_columns(
        Columns(
            options.text_column, options.text_pair_column, options.label_column, options.header
        ),
        options.negative_columns or (),
        _score_range(options),
        options.metrics or (),
    )


def _score_range(options: flags.FlagValues) -> tuple[float, float] | None:
    """Returns the lowest and the highest score; None = not given."""
    if not options.score_range:
        return None
    try:
        low, high = map(float, options.score_range)
    except ValueError:
        raise UserError(
            f"--score_range={','.join(options.score_range)}: expected two numbers, such as 0,5"
        ) from None
    return low, high


def _plan_named(
    options: flags.FlagValues, given: Mapping[str, str | None]
) -> tuple[Task, dict[str, str]]:
    """Returns a task of `official.tasks` and the names of its files; flags may replace them."""
    task = choice() if options.task == "choice" else find(options.task)
    for name in GENERIC_FLAGS:
        if options[name].present:
            raise UserError(
                f"--{name} is for --task=classification and --task=regression: "
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
            wanted = "its files: --train_file, --validation_file, --test_file"
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
    where = execution.from_flags(argv, options)
    texts = [options.queries, options.documents] if options.task == "ranking" else []
    given = [*files.values(), *(paths.join(options.input, name) for name in texts)]
    if options.workers is None and where.beam is None and _are_small(given):
        return Execution()
    return where


def _are_small(given: Iterable[AnyPath]) -> bool:
    """Returns whether files, and the files in folders, have fewer than `SMALL_BYTES` together."""
    size = 0
    for path in given:
        for file in path.rglob("*") if path.is_dir() else [path]:
            size += file.stat().st_size
            if size >= SMALL_BYTES:
                return False
    return True


_REQUIRED = ("task", "tokenizer", "output")
# The kinds of tasks that the descriptions of flags begin with.
_TOPICS = command_help.Topics(
    "task",
    (
        *("classification", "regression", "span tasks", "choices", "tagging", "ranking"),
        *("embedding", "text to text", "generation"),
    ),
)


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags of this command."""
    text = functools.partial(flags.DEFINE_string, flag_values=values)
    number = functools.partial(flags.DEFINE_integer, flag_values=values)
    boolean = functools.partial(flags.DEFINE_bool, flag_values=values)
    names = functools.partial(flags.DEFINE_list, flag_values=values)
    one_of = functools.partial(flags.DEFINE_enum, flag_values=values)

    text(
        "task",
        None,
        "a task of official.tasks, or classification, regression, tagging, ranking, choice, "
        "generation, embedding",
    )
    text("input", "", "folder of the files")
    text("tokenizer", None, "tokenizer folder")
    text("output", None, "shard folder to create")
    execution.define_flags(values, "the number of cores, or 1 for files of less than 8 MB")
    seeds = "seed of the order of training examples, and of the draw of a ranking's triples"
    number("seed", 0, seeds, 0)
    number(
        "max_length",
        None,
        "longest sequence in tokens; default: 128, 384 for span tasks, 512 for choices and inputs "
        "of text to text",
        1,
    )
    number(
        "doc_stride",
        128,
        "span tasks: tokens from the start of a window of a long context to the next",
    )
    number("max_query_length", 64, "span tasks: largest number of tokens of a question")
    one_of(
        "answers",
        answer_rules.DEFAULT,
        list(answer_rules.RULES),
        "span tasks: how exact match and F1 compare answers: as the evaluation of SQuAD (of "
        "English), MLQA (mlqa: and the language), KorQuAD 1.0 or CMRC 2018 does, or by characters",
    )

    text("train_file", None, "file of the train split")
    text("validation_file", None, "file of the validation split")
    text(
        "validation_mismatched_file",
        None,
        "a second validation file: texts unlike those of training (MNLI)",
    )
    text("test_file", None, "file of the test split, which may have no labels")
    text("test_mismatched_file", None, "a second test file: texts unlike those of training (MNLI)")

    text("text_column", None, "name or index (from 0) of the column with the text")
    text("text_pair_column", None, "name or index of the column with the second text of a pair")
    text("label_column", None, "name or index of the column with the label or score")
    names("labels", None, "labels by id; default: those of the train file, sorted")
    names("metrics", None, "metrics of official.tasks; the first selects the best checkpoint")
    boolean("header", True, "the first line of TSV and CSV names the columns")
    one_of(
        "format",
        None,
        ["tsv", "csv", "jsonl", "parquet", "trec", "conll", "conllu"],
        "format of the files; default: by the file name",
    )
    boolean(
        "unlabelled_train",
        False,
        "read no labels of the train file: its text is for a teacher to label",
    )

    text("queries", None, "ranking: file with the columns id and text of the queries")
    text("documents", None, "ranking: file with the columns id and text of the documents")
    text("qrels", None, "ranking: relevance judgments in TREC's format")
    number("negatives", 4, "ranking: number of triples of each relevant document", 1)
    text(
        "rank_pairs",
        None,
        "classification of pairs (qnli): the label that the best of the pairs with the same first "
        "text has; the pairs are ranked",
    )
    text(
        "fill_pronouns",
        None,
        "classification of sentences and of their clauses with a candidate in place of a pronoun "
        "(wnli): the label of the right candidate; a masked LM compares the candidates",
    )

    one_of(
        "embed_as",
        None,
        list(embeddings.OF_KINDS),
        "embedding: learn vectors of texts from pairs with scores (stsb); from pairs that have the "
        "positive label, which is entailment or else the second one, and pairs that have not "
        "(binary: qqp, mrpc), with the labels too (labels: mnli); from those that have it (pairs; "
        "of single texts, two with one label); or from these with a contradiction (triples: mnli)",
    )
    names(
        "negative_columns",
        None,
        "embedding: columns of texts that do not suit the query; in JSON Lines and Parquet, lists "
        "of texts too",
    )
    names(
        "score_range",
        None,
        "embedding: lowest and highest score in the files, which become 0 and 1; default: 0,1, of "
        "stsb 0,5; regression: the same, of scores that stay as they are (-1 outside is no score)",
    )
    text(
        "task_name",
        None,
        "embedding: name of the task, in metrics of several; default: that of --task",
    )

    boolean(
        "choice_first",
        False,
        "choices: put question and choice before the context, as RoBERTa does; default: behind it",
    )
    number(
        "max_choice_length",
        None,
        "choices: cut question and choice at this number of tokens (RoBERTa: 128); default: no cut",
        1,
    )

    boolean(
        "text_to_text",
        False,
        "text to text: make inputs and targets for an encoder-decoder, of any task but a ranking",
    )
    text("prefix", None, "text to text: what inputs begin with; default: the name of the task")
    one_of(
        "punctuation",
        None,
        sorted(text_to_text.PUNCTUATION),
        "text to text, of squad1 and squad2: what has blanks around it, by T5's release since "
        "April 2022 (ascii, the default: the signs of ASCII) or before (non_word: all but ASCII "
        "letters, digits and _)",
    )
    one_of(
        "bleu_tokenization",
        None,
        list(metric_settings.TOKENIZATIONS),
        "generation: how the metric bleu splits texts into words, by the names of sacrebleu: zh, "
        "ja-mecab, ko-mecab, spm or char for languages without blanks; default: intl, as T5",
    )
    one_of(
        "rouge_words",
        None,
        list(metric_settings.WORDS_OF_ROUGE),
        "generation: what a word of the metrics rouge_1, rouge_2 and rouge_l is: a run of a to z "
        "and digits (english, the default, as T5), or of letters and digits of all scripts, of "
        "which those without blanks have a word for each letter (unicode)",
    )
    number(
        "max_target_length",
        None,
        "text to text: longest target in tokens; default: that of the files",
        2,
    )

    boolean(
        "repair_tags",
        False,
        "tagging: repair and count tags that do not follow BIO or BIOES, IOB1 too, and widen spans "
        "that cut a word",
    )
    rules = "; ".join(f"{name} = {what}" for name, what in word_rules.RULES.items())
    one_of(
        "split_words",
        word_rules.DEFAULT,
        list(word_rules.RULES),
        f"tagging: how texts are split into words, here and when the model reads texts: {rules}",
    )
    one_of(
        "nested_spans",
        "refuse",
        ["refuse", "innermost", "outermost"],
        "tagging: which of nested spans are kept; the others are counted",
    )
    one_of(
        "multiword_tokens",
        conllu.WORDS,
        list(conllu.MULTIWORD),
        "tagging, of CoNLL-U: what is read of words that stand as one in the text (al = a + il): "
        "the words, or the one on the surface, whose tag is that of its line, or those of the "
        "words joined by + (of entities: the first one)",
    )
    boolean("skip_bad_rows", False, "leave out and count rows that cannot be used")


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
