"""Fine-tunes a pretrained model on data in Python: `official.finetune` and its twins.

The data become the shards of a task in a temporary folder, as `tfrecords_tools.build_task_shards`
makes them, and `official.training.train` trains on these with the settings of a published config.
The same call with the same data goes on where a run was stopped.

| function | data | objective |
|---|---|---|
| `finetune` | texts with labels or scores | classification, multi-label, regression |
| `finetune_pairs` | pairs of texts with labels or scores | the same |
| `finetune_tags` | words of sentences with their tags | token classification |
| `finetune_questions` | questions about contexts, with their answers | span answers |

Data are lists, or anything with `tolist()`, such as columns of pandas and arrays. A table, which is
anything with `columns`, may be given in their place.
"""

import collections
import dataclasses
import importlib
import itertools
import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from official import config as configs
from official import tokenizers, training
from official.conversion import huggingface
from official.conversion.run import convert
from official.saving import checkpoints, metrics_log, model_folder, served_model
from official.serving import loaded_model
from official.tasks import answer_rules, kinds, listed, nearest
from official.utils import paths
from official.utils.errors import UserError

# Fewer examples than these are few (Mosbach et al., 2021, section 6, for RTE, MRPC and CoLA).
FEW = 10_000
_FEW_EPOCHS, _FEW_BATCH = 20, 16
# Encoders that are narrower than the base models learn faster (Turc et al., 2019; for ELECTRA Clark
# et al., 2020, table 7).
_BASE_SIZE = 768
_SMALL_RATE, _SMALL_RATES = 1e-4, {"electra": 3e-4}
_WARMUP = 0.1  # the largest share of the steps: DeBERTa's cards have a number of them, for MNLI
_EVAL_EVERY = 500  # steps, of larger data
_BUCKETS = (16, 32, 64, 128, 256, 512)
# Tasks whose shards have the columns that `finetune` names.
_LABELLED = ("classification", "multi_label", "regression")
_BUILDER = "tfrecords_tools.build_task_shards"  # imported when it is used, as those of `KINDS`

Report = Callable[[str], None]
Data = Sequence[Any]


@dataclasses.dataclass(frozen=True)
class _Rows:
    """The examples of a split.

    Attributes:
      columns: the values by the name of their column; all have the same length.
    """

    columns: Mapping[str, list]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, numbers: Sequence[int]) -> "_Rows":
        """Returns some of the examples."""
        return _Rows({name: [values[i] for i in numbers] for name, values in self.columns.items()})


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of `finetune` and its twins.

    Attributes:
      validation: the share of the examples that chooses the best checkpoint and is measured, drawn
        by `seed`; or other data in the form of the arguments, as (texts, labels) or (table,). 0 =
        none.
      max_length: longer texts are cut to this number of tokens. None = 128, 384 for questions, or
        what the encoder takes if that is less.
      epochs: passes over the data. None = as published for the family of the model (see
        docs/fine-tuning.md), and 20 for fewer than `FEW` examples (Mosbach et al., 2021).
      batch_size: examples of a step. None = as published.
      learning_rate: the highest learning rate. None = as published.
      seed: decides the share of `validation`, the order of the examples, the initial weights of the
        head and dropout.
      override: further settings, as `--override` takes them: `["recipe.optimizer.type=lamb"]`.
      report: takes the lines that say what is done.
    """

    validation: float | tuple = 0.1
    max_length: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    seed: int = 0
    override: Sequence[str] = ()
    report: Report = print

    def overrides(self) -> list[str]:
        """Returns the settings that are set, as overrides of a config."""
        served_model.check_list(self.override, "override")
        settings = {
            "recipe.epochs": self.epochs,
            "recipe.batch_size": self.batch_size,
            "recipe.optimizer.learning_rate": self.learning_rate,
        }
        named = [f"{name}={value!r}" for name, value in settings.items() if value is not None]
        return [*named, *self.override]


def finetune(
    texts: Data,
    labels: Data | None = None,
    *,
    init: str | os.PathLike,
    model_dir: str | os.PathLike,
    columns: tuple[str, str] = ("text", "label"),
    task: str | None = None,
    **settings: Any,
) -> loaded_model.LoadedModel:
    """Fine-tunes a model to classify or to score texts; `classify` or `score` of the result does.

    Labels that are texts, whole numbers or booleans are classes. Those that are other numbers are
    scores, and a regression learns them. Where the label of each text is a list (or a tuple or a
    set), a text has all labels in it, any number of them.

    Example:
    ```python
    model = official.finetune(
        ["It is bad.", "It is good."] * 50,
        ["bad", "good"] * 50,
        init="run/pretrained",
        model_dir="run/classifier",
    )
    model.classify(["Is it good?"])
    ```

    Args:
      texts: N texts, or a table that has them and the labels.
      labels: N labels; None if `texts` is a table.
      init: the model folder to start from, or a folder of Hugging Face, which is converted first.
      model_dir: the model folder to make.
      columns: of a table, the columns of the texts and of the labels.
      task: 'classification', 'multi_label' or 'regression'; None = by the labels.
      **settings: fields of `Settings`, such as `epochs=3`.

    Returns:
      The model, loaded: `official.load(model_dir)`.

    Raises:
      UserError: the data cannot be used, or the model folders do not fit them.
      official.training.Stopped: Ctrl-C or SIGTERM; a checkpoint is saved, and the same call goes
        on.
    """
    names = ("text", "label")
    data = dict(zip(names, (texts, labels), strict=True))
    rows = _rows(data, columns)
    return _labeled(rows, columns, task, _Run(init, model_dir, Settings(**settings)))


def finetune_pairs(
    first: Data,
    second: Data | None = None,
    labels: Data | None = None,
    *,
    init: str | os.PathLike,
    model_dir: str | os.PathLike,
    columns: tuple[str, str, str] = ("text", "text_b", "label"),
    task: str | None = None,
    **settings: Any,
) -> loaded_model.LoadedModel:
    """Fine-tunes a model on pairs of texts: `classify(first, second)` or `score(first, second)`.

    The result and the errors are those of `finetune`.

    Example:
    ```python
    model = official.finetune_pairs(
        first,
        second,
        labels,
        init="run/pretrained",
        model_dir="run/pairs",
    )
    ```

    Args:
      first: the first texts of N pairs, or a table that has all three.
      second: the second texts.
      labels: N labels or scores.
      init: as in `finetune`.
      model_dir: as in `finetune`.
      columns: of a table, the columns of these.
      task: as in `finetune`.
      **settings: as in `finetune`.
    """
    names = ("text", "text_b", "label")
    rows = _rows(dict(zip(names, (first, second, labels), strict=True)), columns)
    return _labeled(rows, columns, task, _Run(init, model_dir, Settings(**settings)))


def finetune_tags(
    words: Data,
    tags: Data | None = None,
    *,
    init: str | os.PathLike,
    model_dir: str | os.PathLike,
    columns: tuple[str, str] = ("words", "tags"),
    **settings: Any,
) -> loaded_model.LoadedModel:
    """Fine-tunes a model to tag words: `tag` of the result does.

    The result and the errors are those of `finetune`.

    Example:
    ```python
    model = official.finetune_tags(
        [["Ada", "lived", "in", "London"]],
        [["B-PER", "O", "O", "B-LOC"]],
        init="run/pretrained",
        model_dir="run/tagger",
    )
    ```

    Args:
      words: for each of N sentences the list of its words, or a table that has both.
      tags: for each sentence the list of the tags of its words, such as `B-PER` and `O`.
      init: as in `finetune`.
      model_dir: as in `finetune`.
      columns: of a table, the columns of these.
      **settings: as in `finetune`.
    """
    rows = _rows({"words": words, "tags": tags}, columns)
    _check_words(rows)
    run = _Run(init, model_dir, Settings(**settings))
    return run.train("tagging", "tagging", rows, columns)


def finetune_questions(
    questions: Data,
    contexts: Data | None = None,
    answers: Data | None = None,
    *,
    init: str | os.PathLike,
    model_dir: str | os.PathLike,
    columns: tuple[str, str, str] = ("question", "context", "answer"),
    answer_rule: str = answer_rules.DEFAULT,
    **settings: Any,
) -> loaded_model.LoadedModel:
    """Fine-tunes a model to answer questions by spans of contexts: `answer` of the result does.

    The result and the errors are those of `finetune`.

    Example:
    ```python
    model = official.finetune_questions(
        ["Where is it?"],
        ["It is in the box."],
        ["in the box"],
        init="run/pretrained",
        model_dir="run/questions",
    )
    ```

    Args:
      questions: N questions, or a table that has all three.
      contexts: the text that each question is about, of any length.
      answers: for each question a part of its context, of which the first occurrence is learned;
        or (the answer, the position of its first character); or None or "" if the context does not
        answer it.
      init: as in `finetune`.
      model_dir: as in `finetune`.
      columns: of a table, the columns of these.
      answer_rule: how exact match and F1 compare answers, of which F1 chooses the weights: a key of
        `official.tasks.answer_rules.RULES`. That of SQuAD is of English.
      **settings: as in `finetune`.
    """
    if answer_rule not in answer_rules.RULES:
        raise UserError(
            f"answer_rule: {answer_rule!r} is not known{nearest(answer_rule, answer_rules.RULES)}: "
            f"expected one of {listed(answer_rules.RULES)}"
        )
    names = ("question", "context", "answer")
    rows = _with_starts(
        _rows(dict(zip(names, (questions, contexts, answers), strict=True)), columns)
    )
    run = _Run(init, model_dir, Settings(**settings))
    task = "squad2" if any(answer is None for answer in rows.columns["answer"]) else "squad1"
    return run.train(task, task, rows, columns, [f"--answers={answer_rule}"])


def _labeled(
    rows: _Rows, columns: Sequence[str], task: str | None, run: "_Run"
) -> loaded_model.LoadedModel:
    """Fine-tunes on texts or pairs with labels or scores."""
    kind = _kind(rows.columns["label"], task)
    if kind == "regression":
        _check_scores(rows.columns["label"])
    elif kind == "multi_label":
        if not any(_lists(rows.columns["label"])):
            raise UserError("label: no text has a label")
    elif len(set(_classes(rows.columns["label"]))) < 2:
        label = rows.columns["label"][0]
        raise UserError(f"label: all are {label!r}: expected at least two classes")
    return run.train(kind, run.family or kind, rows, columns)


class _Run:
    """Fine-tunes from a model folder.

    Attributes:
      family: the name of the config with the settings of the model's family, for texts with labels;
        None = those of BERT.
    """

    def __init__(self, init: str | os.PathLike, model_dir: str | os.PathLike, settings: Settings):
        self._model_dir, self._settings = paths.path(model_dir), settings
        self._report = report = settings.report
        self._temporary = tempfile.TemporaryDirectory(prefix="garden-")
        self._init = _model_folder(paths.path(init), Path(self._temporary.name), report)
        self._config = model_folder.config_of(self._init)
        types = {objective.type for objective in self._config.objectives}
        self.family = None
        if getattr(self._config.encoder, "disentangled", None) is not None:
            self.family = "deberta"
        elif getattr(self._config.encoder, "local_attention", None) is not None:
            self.family = "modernbert"
        elif types & {"generator", "replaced_tokens"}:
            self.family = "electra"
        elif getattr(self._config.encoder, "position_offset", 0):
            self.family = "roberta"

    def train(
        self,
        task: str,
        name: str,
        rows: _Rows,
        columns: Sequence[str],
        flags: Sequence[str] = (),
    ) -> loaded_model.LoadedModel:
        """Fine-tunes on the rows of a task with the config `configs/finetune/NAME.yaml`.

        `flags` are more flags of `build_task_shards`.
        """
        with self._temporary as folder:
            rows, held_out = self._split(task, rows, columns)
            length = self._max_length(task)
            data = self._shards(Path(folder), task, rows, held_out, length, flags)
            config = self._config_of(task, name, len(rows), length)
            training.train(
                config, data, self._model_dir, evaluate=held_out is not None, init=self._init,
                report=self._report,
            )  # fmt: skip
        self._describe(task)
        return loaded_model.load(self._model_dir)

    def _split(self, task: str, rows: _Rows, columns: Sequence[str]) -> tuple[_Rows, _Rows | None]:
        """Returns the rows to learn from and those of `validation`."""
        validation = self._settings.validation
        if isinstance(validation, tuple):
            return rows, self._other(task, rows, columns, validation)
        if not 0 <= validation < 1:
            raise UserError(f"validation: {validation} is not a share from 0 to below 1")
        count = min(round(len(rows) * validation) or int(validation > 0), len(rows) - 1)
        if not count:
            return rows, None
        order = np.random.default_rng(self._settings.seed).permutation(len(rows)).tolist()
        return rows.take(sorted(order[count:])), rows.take(sorted(order[:count]))

    def _other(self, task: str, rows: _Rows, columns: Sequence[str], validation: tuple) -> _Rows:
        """Returns the rows of `validation`, if it is a data set."""
        names = list(rows.columns)
        if len(validation) > len(names):
            raise UserError(f"validation: expected ({', '.join(names)}), or a table alone")
        values = [*validation, *[None] * (len(names) - len(validation))]
        other = _rows(dict(zip(names, values, strict=True)), columns)
        if task.startswith("squad"):
            return _with_starts(other)
        if task == "tagging":
            _check_words(other)
        elif task == "regression":
            _check_scores(other.columns["label"])
        else:
            known = set(_counts(task, rows))
            for label in _counts(task, other):
                if label not in known:
                    raise UserError(f"validation: the label {label!r} does not occur in training")
        return other

    def _max_length(self, task: str) -> int:
        length, encoder = self._settings.max_length, self._config.encoder
        if length is None:
            return min(384 if task.startswith("squad") else 128, encoder.max_positions)
        served_model.check_max_length(length, encoder)
        return length

    def _shards(
        self,
        folder: Path,
        task: str,
        rows: _Rows,
        held_out: _Rows | None,
        max_length: int,
        flags: Sequence[str] = (),
    ) -> str:
        """Writes the data as files and makes their shards; returns the folder of these."""
        builder = importlib.import_module(_BUILDER)
        options = builder.flags.FlagValues()
        builder.define_flags(options)
        arguments = [
            f"--task={task}",
            f"--output={folder / 'shards'}",
            f"--seed={self._settings.seed}",
            *flags,
        ]
        splits = {"train": rows} | ({"validation": held_out} if held_out is not None else {})
        for split, each in splits.items():
            path = folder / (f"{split}.json" if task.startswith("squad") else f"{split}.jsonl")
            _write(path, each, task, split)
            arguments.append(f"--{split}_file={path}")
        if task in _LABELLED:
            arguments += ["--text_column=text", "--label_column=label"]
            arguments += ["--text_pair_column=text_b"] * ("text_b" in rows.columns)
        if task.startswith("squad"):
            arguments.append(f"--doc_stride={max(min(128, max_length // 3), 1)}")
            arguments.append(f"--max_query_length={min(64, max_length // 3)}")
        options(["", *arguments])
        if task in ("classification", "multi_label"):
            counts = _counts(task, *splits.values())
            options.labels = list(counts)
            shown = ", ".join(f"{label} ({counts[label]:,})" for label in options.labels[:20])
            more = f" and {len(counts) - 20} others" if len(counts) > 20 else ""
            self._report(f"{len(counts)} labels: {shown}{more}")
        planned, files = builder.plan(options)
        builder.build(
            options, planned, files, tokenizers.load(self._init / "tokenizer"), max_length,
            builder.Execution(), self._report,
        )  # fmt: skip
        return str(folder / "shards")

    def _config_of(self, task: str, name: str, count: int, max_length: int) -> configs.Config:
        """Returns the published settings for this number of examples, and says them."""
        path, settings = f"configs/finetune/{name}.yaml", self._settings.overrides()
        chosen, why = [f"seed={self._settings.seed}"], []
        if task in _LABELLED:
            chosen.append(f"objectives.0.type={task}")
        if count < FEW:
            chosen += [f"recipe.epochs={_FEW_EPOCHS}", "recipe.optimizer.bias_correction=true"]
            chosen.append(f"recipe.batch_size={_FEW_BATCH}")
            why.append("those of Mosbach et al. (2021) for few examples")
        if self._config.encoder.hidden_size < _BASE_SIZE:
            rate = _SMALL_RATES.get(name, _SMALL_RATE)
            chosen.append(f"recipe.optimizer.learning_rate={rate}")
            why.append("the learning rate of a small model")
        recipe = configs.load(path, [*chosen, *settings]).recipe
        batch = min(recipe.batch_size, count)
        steps = -(-count // batch)  # of an epoch
        longest = round(_WARMUP * recipe.epochs * steps)
        if recipe.schedule.warmup_steps > longest:
            chosen.append(f"recipe.schedule.warmup_steps={longest}")
        buckets = [*(b for b in _BUCKETS if b < max_length), max_length]
        chosen += [
            f"recipe.eval_every={min(steps, _EVAL_EVERY)}",
            f"recipe.bucket_lengths={buckets}",
        ]
        config = configs.load(path, [*chosen, *settings, f"recipe.batch_size={batch}"])
        recipe, with_ = config.recipe, f", with {' and '.join(why)}" if why else ""
        self._report(
            f"settings of {path}{with_}: {recipe.epochs:g} epochs, batches of "
            f"{recipe.batch_size}, learning rate {recipe.optimizer.learning_rate:g}, texts of at "
            f"most {max_length} tokens"
        )
        return config

    def _describe(self, task: str) -> None:
        """Says what the best checkpoint reaches, and the lines that load the model."""
        best = checkpoints.best(self._model_dir)
        if best is not None:
            records = {r.step: r.metrics for r in metrics_log.read(self._model_dir)
                       if r.split == "validation"}  # fmt: skip
            values = records.get(best["step"], {best["metric"]: best["value"]})
            shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
            self._report(f"step {best['step']} is the best on the validation examples: {shown}")
        kind = "span" if task.startswith("squad") else task
        self._report(f"official.load({str(self._model_dir)!r}).{kinds.KINDS[kind].method}([...])")


def _model_folder(init: Any, temporary: Path, report: Report) -> Any:
    """Returns a model folder: `init`, or what a folder of Hugging Face becomes."""
    if (init / model_folder.CONFIG).exists() or not (init / huggingface.CONFIG).exists():
        return init
    convert(init, temporary / "init", source="hf")
    report(f"converted {init}, a folder of Hugging Face")
    return temporary / "init"


def _rows(data: Mapping[str, Any], columns: Sequence[str]) -> _Rows:
    """Returns the examples of arguments, the first of which may be a table.

    Raises:
      UserError: a column is missing, the lengths differ, or a text is missing, empty or none.
    """
    names = list(data)
    first = data[names[0]]
    if hasattr(first, "columns"):
        if any(value is not None for name, value in data.items() if name != names[0]):
            raise UserError("give a table alone, with `columns`, or lists")
        if len(columns) != len(names):
            raise UserError(f"columns: expected {len(names)} names: those of {', '.join(names)}")
        known = list(first.columns)
        for column in columns:
            if column not in known:
                raise UserError(
                    f"columns: the table has no column {column!r}: its columns are "
                    f"{', '.join(map(str, known))}"
                )
        data = {name: first[column] for name, column in zip(names, columns, strict=True)}
    lists = {}
    for name, values in data.items():
        if values is None:
            raise UserError(f"{name}: missing")
        served_model.check_list(values, name)
        values = values.tolist() if hasattr(values, "tolist") else list(values)
        lists[name] = [value.tolist() if hasattr(value, "tolist") else value for value in values]
    served_model.check_lengths(**lists)
    if not len(lists[names[0]]):
        raise UserError(f"{names[0]}: the list is empty: give at least two examples")
    for name, values in lists.items():
        for number, value in enumerate(values):
            if name in ("text", "text_b", "question", "context") and (
                not isinstance(value, str) or not value.strip()
            ):
                raise UserError(f"{name} {number}: {value!r} is not a text")
    return _Rows(lists)


def _kind(labels: Sequence[Any], task: str | None) -> str:
    """Returns one of `_LABELLED`."""
    if task not in (None, *_LABELLED):
        raise UserError(f"task: {task!r} is none of {', '.join(map(repr, _LABELLED))}")
    _check_present(labels)
    if task is not None:
        return task
    if isinstance(labels[0], _LISTS):
        return "multi_label"
    numbers = [label for label in labels if isinstance(label, float)]
    if numbers and all(label.is_integer() for label in numbers):
        raise UserError(
            f"label: {numbers[0]!r} may be a class or a score: give task='classification' or "
            "task='regression'"
        )
    return "regression" if numbers else "classification"


_LISTS = (list, tuple, set, frozenset)


def _lists(labels: list) -> list:
    """Makes the labels of each text a list of names, all of one type; returns these lists."""
    for number, names in enumerate(labels):
        if not isinstance(names, _LISTS):
            raise UserError(
                f"label {number}: {names!r} is not a list of labels: a text without any has []"
            )
        for name in names:
            whole = isinstance(name, int) and not isinstance(name, bool)
            if not (whole or isinstance(name, str)) or not str(name).strip():
                raise UserError(
                    f"label {number}: {name!r} in {names!r} is neither a text nor a whole number"
                )
        labels[number] = list(names)
    distinct = {name for names in labels for name in names}
    if distinct <= {0, 1} and {len(names) for names in labels} not in ({0}, {1}, {0, 1}):
        raise UserError(
            f"label: these are zeros and ones, such as {labels[0]!r}: give the names of the labels "
            "of each text"
        )
    if len(set(map(type, distinct))) > 1:
        labels[:] = [list(map(str, names)) for names in labels]
    for number, names in enumerate(labels):
        if len(set(names)) < len(names):
            raise UserError(f"label {number}: {names!r} contains a label twice")
    return labels


def _counts(task: str, *splits: _Rows) -> dict[str, int]:
    """Returns how many texts have each label, in the order of the labels."""
    labels = [label for rows in splits for label in rows.columns["label"]]
    each = itertools.chain(*_lists(labels)) if task == "multi_label" else _classes(labels)
    counts = collections.Counter(each)
    return {str(label): counts[label] for label in sorted(counts)}


def _check_present(labels: Sequence[Any]) -> None:
    for number, label in enumerate(labels):
        if label is None or (isinstance(label, float) and not math.isfinite(label)):
            raise UserError(f"label {number}: {label!r}: every text needs a label")


def _classes(labels: list) -> list:
    """Makes labels of one type, floats that are whole numbers integers; returns them."""
    _check_present(labels)
    for number, label in enumerate(labels):
        if isinstance(label, float) and label.is_integer():
            labels[number] = int(label)
        elif not isinstance(label, str | int) or not str(label).strip():
            raise UserError(f"label {number}: {label!r} is neither a text nor a whole number")
    _check_minus_one(labels)
    if len(set(map(type, labels))) > 1:
        labels[:] = map(str, labels)
    return labels


def _check_minus_one(labels: list) -> None:
    """Raises UserError for -1 in the place of a label; classes have names or other numbers."""
    if any(type(label) is int and label == -1 for label in labels):
        others = {label for label in labels if label != -1}
        numbers = {label for label in others if type(label) is int}
        if len(others) > 1 and (not numbers or numbers == set(range(len(others)))):
            raise UserError(
                f"label {labels.index(-1)}: -1 beside {', '.join(sorted(map(str, others))[:3])} is "
                "what `datasets` writes for a text without a label: leave these texts out, or, if "
                "it is a class, give the labels as texts"
            )


def _check_scores(labels: Sequence[Any]) -> None:
    for number, label in enumerate(labels):
        if isinstance(label, bool) or not isinstance(label, int | float):
            raise UserError(f"label {number}: {label!r} is not a number")


def _check_words(rows: _Rows) -> None:
    for number, (words, tags) in enumerate(zip(*rows.columns.values(), strict=True)):
        for name, values in (("words", words), ("tags", tags)):
            if isinstance(values, str) or not all(isinstance(v, str) for v in values):
                raise UserError(f"{name} {number}: {values!r} is not a list of texts")
        if len(words) != len(tags) or not len(words):
            raise UserError(f"tags {number}: {len(tags)} tags for {len(words)} words")


def _with_starts(rows: _Rows) -> _Rows:
    """Returns rows whose answers are (text, start), or None.

    Raises:
      UserError: an answer is not in its context.
    """
    answers: list[tuple[str, Any] | None] = []
    for number, (_, context, answer) in enumerate(zip(*rows.columns.values(), strict=True)):
        missing = answer is None or answer == "" or (isinstance(answer, float) and answer != answer)
        if missing:
            answers.append(None)
            continue
        text, start = answer if isinstance(answer, tuple | list) else (answer, None)
        if not isinstance(text, str) or text not in context:
            raise UserError(f"answer {number}: {text!r} is not in its context")
        start = context.index(text) if start is None else start
        if context[start : start + len(text)] != text:
            raise UserError(f"answer {number}: {text!r} is not at {start} of its context")
        answers.append((text, start))
    return _Rows({**rows.columns, "answer": answers})


def _write(path: Path, rows: _Rows, task: str, split: str) -> None:
    """Writes the rows of a split as a file that the shard builder reads."""
    if task.startswith("squad"):
        paragraphs = []
        for i, (question, context, answer) in enumerate(zip(*rows.columns.values(), strict=True)):
            found = [] if answer is None else [{"text": answer[0], "answer_start": answer[1]}]
            entry = {"id": f"{split}-{i}", "question": question, "answers": found}
            entry["is_impossible"] = answer is None
            paragraphs.append({"context": context, "qas": [entry]})
        path.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}), "utf-8")
        return
    with path.open("w", encoding="utf-8") as stream:
        for values in zip(*rows.columns.values(), strict=True):
            row = dict(zip(rows.columns, values, strict=True))
            if task == "classification":
                row["label"] = str(row["label"])
            elif task == "multi_label":
                row["label"] = sorted(map(str, row["label"]))
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
