"""Fine-tunes a pretrained model on data in Python: `official.finetune` and its twins.

The data become rows (`rows`), of which `tfrecords_tools.tasks` makes the shards of a task in a
temporary folder, and `official.training.train` trains on these with the settings of a published
config (`settings`). The same call with the same data goes on where a run was stopped.

| function | data | objective |
|---|---|---|
| `finetune` | texts with labels or scores | classification, multi-label, regression |
| `finetune_pairs` | pairs of texts with labels or scores | the same |
| `finetune_tags` | words of sentences with their tags | token classification |
| `finetune_questions` | questions about contexts, with their answers | span answers |

Data are lists, or anything with `tolist()`, such as columns of pandas and arrays. A table, which is
anything with `columns`, may be given in their place.
"""

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from official import tokenizers, training
from official.conversion import any_folder
from official.conversion.run import convert
from official.fine_tuning import few as few_examples
from official.fine_tuning import rows, settings
from official.fine_tuning.rows import Examples
from official.fine_tuning.settings import FEW, Report, Settings
from official.saving import checkpoints, metrics_log, model_folder
from official.serving import loaded_model
from official.tasks import KINDS, answer_rules
from official.utils import paths
from official.utils.errors import UserError
from official.utils.names import listed, nearest
from official.utils.paths import AnyPath
from tfrecords_tools.tasks import builder

__all__ = [
    "FEW",
    "Settings",
    "finetune",
    "finetune_pairs",
    "finetune_questions",
    "finetune_tags",
]

Data = Sequence[Any]
Same = TypeVar("Same", bound=Examples)


def finetune(
    texts: Data,
    labels: Data | None = None,
    *,
    init: str | os.PathLike,
    model_dir: str | os.PathLike,
    columns: tuple[str, str] = ("text", "label"),
    task: str | None = None,
    few: bool = False,
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
      few: for classes with a few examples each, such as eight: the vectors of the model learn from
        all pairs of the texts, and then a head from the vectors (`official.fine_tuning.few`). Its
        `epochs`, `batch_size` and `learning_rate` are those of the pairs; nothing is held out.
      **settings: fields of `Settings`, such as `epochs=3`.

    Returns:
      The model, loaded: `official.load(model_dir)`.

    Raises:
      UserError: the data cannot be used, or the model folders do not fit them.
      official.training.Stopped: Ctrl-C or SIGTERM; a checkpoint is saved, and the same call goes
        on.
    """
    examples = rows.labeled(rows.read(("text", "label"), (texts, labels), columns), task)
    chosen = Settings(**settings)
    if not few:
        return _train(examples, init, model_dir, columns, chosen)
    if not isinstance(examples, rows.Classes):
        raise UserError("few: for texts with one class each: leave out few=True")
    if chosen.windows is not None:
        raise UserError("few: a head on one vector reads no windows: leave out windows or few=True")
    examples.task()  # There are two classes at least.
    with tempfile.TemporaryDirectory(prefix="garden-") as temporary:
        source = _model_folder(paths.path(init), Path(temporary), chosen.report)
        few_examples.train(examples, source, model_dir, Path(temporary), chosen)
    return loaded_model.load(model_dir)


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
    data = rows.read(("text", "text_b", "label"), (first, second, labels), columns)
    return _train(rows.labeled(data, task), init, model_dir, columns, Settings(**settings))


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
    examples = rows.Tags.of(rows.read(("words", "tags"), (words, tags), columns))
    return _train(examples, init, model_dir, columns, Settings(**settings))


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
    data = rows.read(("question", "context", "answer"), (questions, contexts, answers), columns)
    examples = dataclasses.replace(rows.Questions.of(data), answer_rule=answer_rule)
    return _train(examples, init, model_dir, columns, Settings(**settings))


def _train(
    examples: Examples,
    init: str | os.PathLike,
    model_dir: str | os.PathLike,
    columns: Sequence[str],
    chosen: Settings,
) -> loaded_model.LoadedModel:
    """Fine-tunes on examples; `columns` are those of a table that is given as `validation`."""
    model_dir, report = paths.path(model_dir), chosen.report
    with tempfile.TemporaryDirectory(prefix="garden-") as temporary:
        folder, shards = Path(temporary), Path(temporary) / "shards"
        source = _model_folder(paths.path(init), folder, report)
        known = model_folder.config_of(source)
        splits = _splits(examples, columns, chosen)
        learned, *others = splits.values()
        task = learned.task(*others)
        length = chosen.length(task.kind, known)
        if counts := learned.counts(*others):
            report(f"{len(counts)} labels: {_shown(counts)}")
        tokenizer = tokenizers.load(source / "tokenizer")
        for note in tokenizer.notes:
            report(note)
        builder.build_rows(
            task,
            {split: each.rows(task, split) for split, each in splits.items()},
            tokenizer,
            shards,
            length,
            seed=chosen.seed,
            report=report,
            **learned.sizes(length),
            **chosen.reading(task.kind),
        )
        name = (learned.by_family and settings.family(known)) or task.name
        config = settings.published(name, task.kind, len(learned), length, known, chosen)
        training.train(
            config, str(shards), model_dir, evaluate=bool(others), init=source, report=report
        )
    _describe(model_dir, task.kind, report)
    return loaded_model.load(model_dir)


def _model_folder(init: AnyPath, temporary: Path, report: Report) -> AnyPath:
    """Returns a model folder: `init`, or what a folder of Hugging Face becomes."""
    if not any_folder.is_foreign(init):
        return init
    convert(init, temporary / "init", source="hf")
    report(f"converted {init}, a folder of Hugging Face")
    return temporary / "init"


def _splits(examples: Same, columns: Sequence[str], chosen: Settings) -> dict[str, Same]:
    """Returns the examples to learn from, and those of `validation` if there are any."""
    validation = chosen.validation
    if isinstance(validation, tuple):
        names = list(examples.columns)
        if len(validation) > len(names):
            raise UserError(f"validation: expected {len(names)} values, got {len(validation)}")
        values = [*validation, *[None] * (len(names) - len(validation))]
        other = examples.of(rows.read(names, values, columns))
        examples.check_held_out(other)
        return {"train": examples, "validation": other}
    if not 0 <= validation < 1:
        raise UserError(f"validation: {validation} is not a share from 0 to below 1")
    count = min(round(len(examples) * validation) or int(validation > 0), len(examples) - 1)
    if not count:
        return {"train": examples}
    order = np.random.default_rng(chosen.seed).permutation(len(examples)).tolist()
    return {
        "train": examples.take(sorted(order[count:])),
        "validation": examples.take(sorted(order[:count])),
    }


def _shown(counts: dict[str, int], most: int = 20) -> str:
    """Returns the labels with the number of their examples, as text."""
    shown = ", ".join(f"{label} ({counts[label]:,})" for label in list(counts)[:most])
    return shown + (f" and {len(counts) - most} others" if len(counts) > most else "")


def _describe(model_dir: AnyPath, kind: str, report: Report) -> None:
    """Says what the best checkpoint reaches, and the lines that load the model."""
    best = checkpoints.best(model_dir)
    if best is not None:
        records = {r.step: r.metrics for r in metrics_log.read(model_dir)
                   if r.split == "validation"}  # fmt: skip
        values = records.get(best["step"], {best["metric"]: best["value"]})
        shown = ", ".join(f"{k} {v:.4g}" for k, v in metrics_log.figures(values).items())
        report(f"step {best['step']} is the best on the validation examples: {shown}")
    report(f"official.load({str(model_dir)!r}).{KINDS[kind].method}([...])")
