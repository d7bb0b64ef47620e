"""Heads for questions and spans, and their figures, against transformers, computed anew."""

import json

import numpy as np
import pytest
import tensorflow as tf

from official import config as config_lib
from official.convert import huggingface, model_folder
from official.training import answer_metrics, optimizers, setup, step
from tests.official.convert import systems
from tests.official.objectives import test_span_answer as heads
from tests.official.training import test_answer_metrics as metrics

# Their name of a figure, and ours.
NAMES = {
    "exact": "exact_match",
    "f1": "f1",
    "HasAns_exact": "has_answer_exact_match",
    "HasAns_f1": "has_answer_f1",
    "NoAns_exact": "no_answer_exact_match",
    "NoAns_f1": "no_answer_f1",
    "best_exact": "best_exact_match",
    "best_exact_thresh": "best_exact_match_threshold",
    "best_f1": "best_f1",
    "best_f1_thresh": "best_f1_threshold",
}


def test_heads_are_those_of_transformers(hf, tmp_path):
    path = tmp_path / "span_answer.npz"
    hf.run(systems.GOLDEN / "make_span_answer_golden.py", path)
    heads.check_bert(path)
    heads.check_xlnet(path)


def test_figures_of_500_perturbed_files(hf, tmp_path):
    given = [(*made, 0.3) for made in metrics.files(metrics.FILES, True, seed=1)]
    (tmp_path / "files.json").write_text(json.dumps(given))
    hf.run("hf_answer_metrics.py", tmp_path / "files.json", tmp_path / "figures.json")
    theirs = json.loads((tmp_path / "figures.json").read_text())
    assert len(theirs) == 500
    for (right, answers, odds, threshold), expected in zip(given, theirs, strict=True):
        found = answer_metrics.evaluate(answers, right, True, odds, threshold)
        expected = {ours: expected[name] for name, ours in NAMES.items() if name in expected}
        assert found == pytest.approx(expected, rel=0, abs=1e-9)


def test_fine_tuning_follows_the_losses_of_transformers(hf, tmp_path):
    """The same weights and batches, dropout off, a hundred steps."""
    hf.run("hf_span_training.py", tmp_path)
    systems.write_vocabulary(tmp_path / "bert", "bert")
    model_folder.write(huggingface.read(tmp_path / "bert"), tmp_path / "model")
    arrays = dict(np.load(tmp_path / "training.npz"))
    expected = arrays.pop("losses")
    recipe = {
        "steps": len(expected),
        "batch_size": arrays["first"].shape[1],
        "optimizer": {"learning_rate": 1e-3},
        "schedule": {"type": "bert", "warmup_steps": 10},
    }
    encoder = config_lib.to_dict(config_lib.load(tmp_path / "model"))["encoder"]
    objective = {"type": "span_answer", "candidates": "row"}
    raw = {"name": "x", "encoder": encoder, "objectives": [objective], "recipe": recipe}
    config = config_lib.from_dict(raw)
    strategy = tf.distribute.get_strategy()
    model = setup.build_model(config, strategy)
    setup.start_from(model, str(tmp_path / "model"), "last", "encoder")
    head = model.objectives[0].output_projection
    head.kernel.assign(arrays.pop("kernel"))
    head.bias.assign(arrays.pop("bias"))
    length = arrays["token_ids"].shape[2]
    begin, none = arrays["begin"], arrays["first"] == 0
    fields = {
        "token_ids": arrays["token_ids"],
        "segment_ids": (np.arange(length) >= begin[..., None]).astype(np.int32),
        "padding_mask": np.ones(arrays["token_ids"].shape, bool),
        "example_weights": np.ones(begin.shape, np.float32),
        "context_start": begin,
        "context_length": length - 1 - begin,
        "window_start": np.zeros_like(begin),
        "own_start": np.zeros_like(begin),
        "own_end": length - 1 - begin,
        "answer_start": np.where(none, -1, arrays["first"] - begin),
        "answer_end": np.where(none, -1, arrays["last"] - begin),
    }
    optimizer = optimizers.make(config.recipe, len(expected), model)
    trained = step.TrainStep(model, optimizer, strategy, seed=0)
    batches = iter(tf.data.Dataset.from_tensor_slices(fields))
    rows = trained.run(batches, len(expected))
    losses = [trained.statistics.summarise(row[None], model.term_weights)["loss"] for row in rows]
    assert np.mean(expected[-10:]) < 0.9 * np.mean(expected[:10])
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-3)
