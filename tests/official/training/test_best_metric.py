"""Which figure picks the best checkpoint, and that less of a loss is better by any name."""

import pytest
import tensorflow as tf

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset
from official.distribution import strategies
from official.saving import checkpoints, model_folder
from official.training.best_metric import best_metric
from official.training.sweep import best_result
from official.training.trainer import Trainer
from official.utils.errors import UserError
from tests import small
from tfrecords_tools.tasks import labelled_text

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
        (tuned([CLASSES], "acuracy"), RTE, "'acuracy' is no loss and no metric of this run (did"),
        # What the data does not measure, or measures of another task.
        (tuned([CLASSES], "f1"), RTE, "'f1' is no loss and no metric of this run"),
        (tuned(HEADS, "accuracy"), SEVERAL, "known are average, rte/loss, rte/rte, rte/rte_squar"),
        (tuned(HEADS, "loss"), SEVERAL, "'loss' is no loss and no metric of this run"),
        (tuned(HEADS, "stsb/rte"), SEVERAL, "'stsb/rte' is no loss and no metric of this run"),
        # How many tokens a generator replaces is neither good nor bad.
        (config(ELECTRA, "replaced_tokens_rate"), None, "is no loss and no metric"),
        (tuned([{"type": "span_answer"}], "best_f1_threshold"), SQUAD, "is no loss and no metric"),
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
    labelled_text.build(task, files, tokenizer, tmp_path / "rte", 16, report=lambda line: None)
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
    model_folder.save_task(source.manifest, model_dir)
    actual = best_result(model_dir)
    assert (actual["metric"], actual["higher"], actual["step"]) == ("classification", False, 4)
    assert actual["figures"]["classification"] == 1.0
