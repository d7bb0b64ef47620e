"""Mixtures of text to text: the rates of the tasks, and batches with targets of one length."""

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset, mixture
from official.data.mixture import Mixture
from official.distribution import strategies
from official.evaluation.evaluator import Evaluator
from official.modeling.model import Model
from official.tasks import text_to_text as forms
from official.utils.errors import UserError
from tests import small
from tfrecords_tools.tasks import builder as task_builder


def _config(**recipe):
    raw = {
        "name": "several",
        "encoder": {
            "type": "encoder_decoder", "vocab_size": 125, "hidden_size": 8, "num_layers": 1,
            "num_heads": 2, "intermediate_size": 8,
        },
        "objectives": [{"type": "seq2seq_lm"}],
        "recipe": {"steps": 40, "batch_size": 4, "eval_batch_size": 4, **recipe},
    }  # fmt: skip
    return configs.from_dict(raw)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Copies of one word, of three words, and a classification of the usual form."""
    parent = tmp_path_factory.mktemp("tasks")
    tokenizer = tokenizers.load(small.tokenizer_folder(parent / "tokenizer"))
    result = {}
    for name, length, count in (("short", 1, 6), ("long", 3, 30)):
        text = "x\ty\n" + f"{' '.join(['ba'] * length)}\t{' '.join(['de'] * length)}\n" * count
        (parent / f"{name}.tsv").write_text(text)
        files = dict.fromkeys(("train", "validation"), parent / f"{name}.tsv")
        result[name] = parent / name
        task = forms.generation("x", "y", prefix=f"{name} ")
        task = task.__class__(**{**vars(task), "name": name})
        task_builder.build(task, files, tokenizer, result[name], 8, report=lambda line: None)
    (parent / "c.tsv").write_text("x\ty\nba\tda\nbe\tde\n")
    task = tasks.generic("classification", "x", label="y")
    result["plain"] = parent / "plain"
    task_builder.build(
        task, {"train": parent / "c.tsv"}, tokenizer, result["plain"], 8, report=lambda line: None
    )
    return result


def _mixture(folders, config, split="train", training=True, names=("short", "long")):
    return Mixture([ShardDataset(folders[name], config, split, training) for name in names], config)


@pytest.mark.parametrize(
    ("recipe", "wanted"),
    [
        ({}, [1000, 8000, 64_000]),
        ({"sampling": "equal"}, [1, 1, 1]),
        ({"limit": 4000}, [1000, 4000, 4000]),
        ({"temperature": 2.0}, [1000**0.5, 8000**0.5, 64_000**0.5]),
        ({"temperature": 3.0, "limit": 8000}, [10, 20, 20]),
    ],
)
def test_rates(recipe, wanted):
    found = mixture.rates([1000, 8000, 64_000], 20_000, **recipe)
    np.testing.assert_allclose(found, np.tile(wanted, (20_000, 1)), rtol=1e-12)
    drawn = np.bincount(mixture.choices(found, 3)) / 20_000
    np.testing.assert_allclose(drawn, np.array(wanted) / np.sum(wanted), atol=0.01)


def test_recipe_gives_the_rates(folders):
    for recipe, wanted in (
        ({"task_sampling": "equal"}, mixture.rates([6, 30], 40, "equal")),
        ({"task_limit": 10, "task_temperature": 2}, mixture.rates([6, 10], 40, temperature=2)),
    ):
        drawn = _mixture(folders, _config(**recipe))._choices
        np.testing.assert_array_equal(drawn, mixture.choices(wanted, 0))
    for recipe, message in (
        ({"task_sampling": "equal", "task_limit": 5}, "task_limit: not supported for task_sampl"),
        (
            {"task_sampling": "annealed", "task_temperature": 2},
            "task_temperature: not supported for task_sam",
        ),
        ({"task_temperature": 0}, "task_temperature: 0.0 is not above 0"),
    ):
        with pytest.raises(UserError, match=message):
            _config(**recipe)


@pytest.mark.slow
def test_targets_have_the_length_of_the_longest(folders):
    config = _config(task_sampling="equal")
    source = _mixture(folders, config)
    source.check(config)
    tokens = {name: 5 + small.WORDS.index(name) for name in ("ba", "de")}
    found = set()
    for batch in source.dataset(4):
        assert batch["target_ids"].shape == batch["target_mask"].shape == (4, 4)
        length = int(batch["target_mask"][0].numpy().sum())
        wanted = [tokens["de"]] * (length - 1) + [3] + [0] * (4 - length)
        np.testing.assert_array_equal(batch["target_ids"], [wanted] * 4)
        assert (batch["token_ids"].numpy() == tokens["ba"]).sum() == 4 * (length - 1)
        found.add(length)
    assert found == {2, 4}


@pytest.mark.slow
def test_each_task_is_evaluated_with_its_own_length(folders):
    config = _config()
    source = _mixture(folders, config, "validation", training=False)
    found = Evaluator(config, Model(config), tf.distribute.get_strategy()).run(source)
    assert {"short/exact_match", "long/exact_match", "average", "long/loss"} <= set(found)


@pytest.mark.slow
def test_two_replicas_generate_what_one_device_does(folders, mirrored):
    config = _config()
    found = []
    for strategy in (tf.distribute.get_strategy(), mirrored(2)):
        source = ShardDataset(folders["long"], config, "validation")
        evaluator = Evaluator(config, strategies.build_model(config, strategy), strategy)
        found.append(evaluator.predict(source, ["generated_ids"]))
    assert found[0]["generated_ids"].shape == (30, 4)
    for name, values in found[0].items():
        np.testing.assert_array_equal(found[1][name], values)


def test_what_cannot_be_mixed(folders):
    with pytest.raises(UserError, match="plain is of the kind classification, and other folders a"):
        _mixture(folders, _config(), names=("short", "plain"))
    with pytest.raises(UserError, match="is of the task short again"):
        _mixture(folders, _config(), names=("short", "short"))
