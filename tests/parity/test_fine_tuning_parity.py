"""A hundred steps of fine-tuning follow the losses of transformers, under every head."""

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.conversion import converted_model, huggingface
from official.distribution import strategies
from official.saving import warm_start
from official.training import optimizers, train_step
from tests.official.conversion import systems

OBJECTIVES = {
    "classification": {"num_labels": 3, "dropout": 0.0},
    "regression": {"dropout": 0.0},
    "multiple_choice": {"dropout": 0.0},
    "span_answer": {"candidates": "row"},
    "token_classification": {"num_labels": 4, "dropout": 0.0},
}
TARGETS = {"classification": "label", "regression": "score", "multiple_choice": "answer"}


@pytest.fixture(scope="module")
def base(hf, tmp_path_factory):
    """The encoder as a model folder, `model`, and what came of each head."""
    folder = tmp_path_factory.mktemp("fine_tuning")
    hf.run("hf_fine_tuning.py", folder)
    systems.write_vocabulary(folder / "bert", "bert")
    converted_model.write(huggingface.read(folder / "bert"), folder / "model")
    return folder


def fields_of(kind, arrays):
    """The batches of transformers as ours: each field with an axis of steps before it."""
    ids = arrays["input_ids"]
    fields = {
        "token_ids": ids,
        "segment_ids": arrays["token_type_ids"],
        "padding_mask": arrays["attention_mask"],
    }
    fields = {name: value.astype(np.int32) for name, value in fields.items()}
    fields["padding_mask"] = fields["padding_mask"].astype(bool)
    fields["example_weights"] = np.ones(ids.shape[:2], np.float32)
    if kind == "token_classification":
        tags = np.where(arrays["labels"] < 0, -1, arrays["labels"]).astype(np.int32)
        assert (tags < 0).any() and (tags[fields["padding_mask"]] >= 0).any()
        return fields | {"tag_ids": tags, "word_ids": tags}
    if kind != "span_answer":
        labels = arrays["labels"]
        fields[TARGETS[kind]] = labels if kind == "regression" else labels.astype(np.int32)
        return fields
    length, none = ids.shape[2], arrays["start_positions"] == 0
    begin = fields["segment_ids"].argmax(axis=-1)  # where the context does
    size = length - 1 - begin
    places = {
        "context_start": begin,
        "context_length": size,
        "window_start": 0 * begin,
        "own_start": 0 * begin,
        "own_end": size,
        "answer_start": np.where(none, -1, arrays["start_positions"] - begin),
        "answer_end": np.where(none, -1, arrays["end_positions"] - begin),
    }
    return fields | {name: value.astype(np.int32) for name, value in places.items()}


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_losses_follow_those_of_transformers(base, kind):
    """The same weights and batches, dropout off, a hundred steps."""
    arrays = dict(np.load(base / f"{kind}.npz"))
    expected = arrays["losses"]
    fields = fields_of(kind, arrays)
    recipe = {
        "steps": len(expected),
        "batch_size": fields["token_ids"].shape[1],
        "optimizer": {"learning_rate": 1e-3},
        "schedule": {"type": "bert", "warmup_steps": 10},
    }
    encoder = configs.to_dict(configs.load(base / "model"))["encoder"]
    objectives = [{"type": kind, **OBJECTIVES[kind]}]
    config = configs.from_dict(
        {"name": "x", "encoder": encoder, "objectives": objectives, "recipe": recipe}
    )
    strategy = tf.distribute.get_strategy()
    model = strategies.build_model(config, strategy)
    warm_start.start_from(model, str(base / "model"), "last", "encoder")
    head = model.objectives[0].output_projection
    head.kernel.assign(arrays["kernel"])
    head.bias.assign(arrays["bias"])
    optimizer = optimizers.make(config.recipe, len(expected), model)
    trained = train_step.TrainStep(model, optimizer, strategy, seed=0)
    batches = iter(tf.data.Dataset.from_tensor_slices(fields))
    sums = trained.run(batches, len(expected)).sums
    losses = [trained.statistics.summarize(row[None], model.term_weights)["loss"] for row in sums]
    assert len(expected) == 100
    assert np.mean(expected[-10:]) < 0.9 * np.mean(expected[:10])
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-3)
