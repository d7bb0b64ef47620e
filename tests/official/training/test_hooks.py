"""Which metric picks the best checkpoint, and how long a run waits for a better one."""

import math

import pytest
import tensorflow as tf

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset
from official.distribution import strategies
from official.saving import checkpoints, task_file
from official.training.hooks import BestCheckpoint, best_metric
from official.training.sweep import best_result
from official.training.trainer import Trainer
from official.utils.errors import UserError
from tests import small
from tfrecords_tools.tasks import builder as task_builder


@pytest.mark.parametrize(
    ("higher", "best"), [(True, [True, False, True]), (False, [True, True, False])]
)
def test_the_best_value_is_named(tmp_path, higher, best):
    (tmp_path / "checkpoints").mkdir()
    keeper = BestCheckpoint(tmp_path, "f1", higher, 0, True)
    values = [0.5, 0.25, 0.75]
    notes = [keeper.after_evaluation(step, {"f1": value}) for step, value in enumerate(values)]
    assert [note != "" for note in notes] == best
    step = 2 if higher else 1
    expected = {"step": step, "metric": "f1", "value": values[step]}
    assert checkpoints.best(tmp_path) == expected and keeper.record == expected | {"loss": None}
    assert str(keeper) == f"best step {step} (f1 {values[step]:.4g})"


def test_patience_counts_evaluations_since_the_best(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    best = BestCheckpoint(tmp_path, "loss", False, 2, True)
    waited = []
    for step, value in enumerate([3.0, math.nan, 2.0, 2.0, math.inf]):
        assert not best.patience_is_over
        best.after_evaluation(step, {"loss": value})
        waited.append(best.waited)
    assert waited == [0, 1, 0, 1, 2] and best.patience_is_over
    assert best.record["step"] == 3  # the later one of two that are equal


def test_of_equal_values_the_lower_loss_is_best_and_then_the_later_step(tmp_path):
    """As on an easy task, whose accuracy is 1 from the first evaluation on."""
    (tmp_path / "checkpoints").mkdir()
    best = BestCheckpoint(tmp_path, "f1", True, 0, True)
    losses = [0.9, 0.4, 0.6, 0.4, math.nan, 0.1]
    found = []
    for step, (f1, loss) in enumerate(zip([1.0] * 5 + [0.9], losses, strict=True)):
        best.after_evaluation(step, {"f1": f1, "loss": loss})
        state = best.state()
        best = BestCheckpoint(tmp_path, "f1", True, 0, True)  # as of a run that goes on
        best.restore(state)
        found.append((best.record["step"], best.waited))
    assert found == [(0, 0), (1, 0), (1, 1), (3, 2), (3, 3), (3, 4)]
    assert checkpoints.best(tmp_path) == {"step": 3, "metric": "f1", "value": 1.0}


def test_of_values_that_few_rows_cannot_tell_apart_the_latest_is_kept(tmp_path):
    """The standard error of 0.65 of 20 rows is 0.107, of 0.65 of 2,000 rows 0.0107."""
    (tmp_path / "checkpoints").mkdir()
    values = [0.2, 0.65, 0.55, 0.5, 0.6, 0.6, 0.65, 0.7, 0.55]
    losses = [1.4, 1.2, 1.1, 1.0, 0.9, 1.0, 1.3, 1.3, 0.8]
    kept = {0: [0, 1, 1, 1, 1, 1, 1, 7, 7], 20: [0, 1, 2, 2, 4, 4, 6, 7, 7], 2000: []}
    kept[2000] = kept[0]
    for rows, steps in kept.items():
        best = BestCheckpoint(tmp_path, "accuracy", True, 0, True, rows)
        found, waited = [], []
        for step, (value, loss) in enumerate(zip(values, losses, strict=True)):
            best.after_evaluation(step, {"accuracy": value, "loss": loss})
            state = best.state()
            best = BestCheckpoint(tmp_path, "accuracy", True, 0, True, rows)
            best.restore(state)
            found.append(best.record["step"])
            waited.append(best.waited)
            assert checkpoints.best(tmp_path)["step"] == best.record["step"]
        assert found == steps and waited == [0, 0, 1, 2, 3, 4, 5, 0, 1]


def test_what_rows_cannot_tell_is_said(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    best = BestCheckpoint(tmp_path, "accuracy", True, 0, True, 20)
    assert best.after_evaluation(1, {"accuracy": 1.0}) == "  (best so far)"
    near = "20 rows cannot tell it from 1 of step 1"
    assert best.after_evaluation(2, {"accuracy": 0.95}) == f"  (kept: {near})"  # a row less
    assert str(best) == f"best step 2 (accuracy 0.95; {near})"
    assert not best.after_evaluation(3, {"accuracy": 0.9})
    assert best.after_evaluation(4, {"accuracy": 1.0}) == "  (best so far)"
    assert str(best) == "best step 4 (accuracy 1)"


def test_an_evaluation_may_be_compared_twice(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    best = BestCheckpoint(tmp_path, "loss", False, 1, True)
    assert best.after_evaluation(4, {"loss": 1.0}) and best.after_evaluation(4, {"loss": 1.0})
    assert best.waited == 0
    for _ in range(2):
        assert best.after_evaluation(6, {"loss": 1.0}) and best.waited == 1  # an equal one


def test_workers_that_are_not_the_chief_write_nothing(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    best = BestCheckpoint(tmp_path, "loss", False, 0, False)
    assert best.after_evaluation(1, {"loss": 1.0})
    assert not list((tmp_path / "checkpoints").iterdir())


def test_an_unknown_metric_is_refused(tmp_path):
    best = BestCheckpoint(tmp_path, "f1", True, 0, True)
    with pytest.raises(UserError, match="recipe.best_metric: 'f1' is not measured here: loss"):
        best.after_evaluation(1, {"loss": 1.0})


RTE, STSB, SQUAD = (tasks.find(n).description() for n in ("rte", "stsb", "squad2"))
SEVERAL = tasks.MixtureDescription(("average",), {"rte": RTE, "stsb": STSB})
ELECTRA = [
    {"type": "generator", "size": 0.5},
    {"type": "replaced_tokens", "weight": 50.0},
]


def config(objectives, best=""):
    plain = configs.to_dict(small.config(recipe__best_metric=best))
    return configs.from_dict({**plain, "objectives": objectives})


def tuned(objectives, best=""):
    plain = configs.to_dict(small.config(recipe__best_metric=best))
    plain |= {"segments": None, "corruption": None, "objectives": objectives}
    return configs.from_dict(plain)


CLASSES = {"type": "classification", "labels": ["entailment", "not_entailment"]}
HEADS = [{**CLASSES, "task": "rte"}, {"type": "regression", "task": "stsb"}]


@pytest.mark.parametrize(
    "settings, task, name, higher",
    [
        (tuned([CLASSES]), RTE, "accuracy", True),
        (tuned([CLASSES], "loss"), RTE, "loss", False),
        (tuned([CLASSES], "classification"), RTE, "classification", False),
        (tuned([CLASSES], "classification_accuracy"), RTE, "classification_accuracy", True),
        (tuned([{"type": "regression"}]), STSB, "pearson", True),
        (tuned([{"type": "regression"}], "regression"), STSB, "regression", False),
        (
            tuned([{"type": "regression"}], "regression_squared_error"),
            STSB, "regression_squared_error", False,
        ),
        (tuned([{"type": "span_answer"}], "best_f1"), SQUAD, "best_f1", True),
        (tuned([{"type": "span_answer"}], "has_answer_f1"), SQUAD, "has_answer_f1", True),
        (tuned([{"type": "span_answer"}], "span_answer"), SQUAD, "span_answer", False),
        (tuned(HEADS), SEVERAL, "average", True),
        (tuned(HEADS, "rte/loss"), SEVERAL, "rte/loss", False),
        (tuned(HEADS, "rte/rte"), SEVERAL, "rte/rte", False),
        (tuned(HEADS, "rte/rte_accuracy"), SEVERAL, "rte/rte_accuracy", True),
        (tuned(HEADS, "rte/accuracy"), SEVERAL, "rte/accuracy", True),
        (
            tuned(HEADS, "stsb/stsb_squared_error"),
            SEVERAL, "stsb/stsb_squared_error", False,
        ),
        (tuned(HEADS, "stsb/spearman"), SEVERAL, "stsb/spearman", True),
        (small.config(), None, "loss", False),
        (small.config(recipe__best_metric="masked_lm"), None, "masked_lm", False),
        (
            small.config(recipe__best_metric="next_sentence_accuracy"),
            None, "next_sentence_accuracy", True,
        ),
        (config(ELECTRA, "generator"), None, "generator", False),
        (config(ELECTRA, "replaced_tokens_auc"), None, "replaced_tokens_auc", True),
    ],
)  # fmt: skip
def test_of_losses_less_is_better_and_of_metrics_more(settings, task, name, higher):
    assert best_metric(settings, task) == (name, higher)


@pytest.mark.parametrize(
    "settings, task, words",
    [
        (tuned([CLASSES], "acuracy"), RTE, "'acuracy' is not a loss or a metric of this run (did"),
        # What the data does not measure, or measures of another task.
        (tuned([CLASSES], "f1"), RTE, "'f1' is not a loss or a metric of this run"),
        (
            tuned(HEADS, "accuracy"),
            SEVERAL,
            "choose one of average, rte/loss, rte/rte, rte/rte_squar",
        ),
        (tuned(HEADS, "loss"), SEVERAL, "'loss' is not a loss or a metric of this run"),
        (tuned(HEADS, "stsb/rte"), SEVERAL, "'stsb/rte' is not a loss or a metric of this run"),
        # How many tokens a generator replaces is neither good nor bad.
        (config(ELECTRA, "replaced_tokens_rate"), None, "is not a loss or a metric"),
        (tuned([{"type": "span_answer"}], "best_f1_threshold"), SQUAD, "is not a loss or a metric"),
    ],
)
def test_other_names_are_refused(settings, task, words):
    with pytest.raises(UserError) as error:
        best_metric(settings, task)
    assert words in str(error.value)


def test_the_best_checkpoint_of_a_task_is_that_of_the_least_loss(tmp_path):
    task, rows = tasks.find("rte"), ["index\tsentence1\tsentence2\tlabel"]
    rows += [f"{i}\t{small.WORDS[i]}\tba\t{task.labels[i % 2]}" for i in range(8)]
    (tmp_path / "train.tsv").write_text("\n".join(rows) + "\n")
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    files = {"train": tmp_path / "train.tsv"}
    task_builder.build(task, files, tokenizer, tmp_path / "rte", 16, report=lambda line: None)
    result = small.replace(tuned([CLASSES], "classification"), eval_every=2, keep_checkpoints=9)
    strategy = tf.distribute.get_strategy()
    source = ShardDataset(tmp_path / "rte", result, "train", training=True)
    model_dir = tmp_path / "model"
    trainer = Trainer(result, strategies.build_model(result, strategy), source, strategy, model_dir)
    evaluations = iter([3.0, 1.0, 2.0])
    trainer.evaluator.run = lambda *_: {"classification": next(evaluations), "accuracy": 0.5}
    trainer.train(validation=source)
    best = checkpoints.best(model_dir)
    assert (best["step"], best["metric"], best["value"]) == (4, "classification", 1.0)
    # A sweep compares the runs in the same way.
    configs.save(result, model_dir / "config.yaml")
    task_file.save(source.manifest, model_dir)
    actual = best_result(model_dir)
    assert (actual["metric"], actual["higher"], actual["step"]) == ("classification", False, 4)
    assert actual["figures"]["classification"] == 1.0
