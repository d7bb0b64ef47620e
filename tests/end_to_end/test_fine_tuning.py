"""Encoders learn a task from the same kind of shards, by commands, and are served."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the model)
import yaml

import official
from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset
from official.distribution import strategies
from official.serving.export import saved_model
from official.training.trainer import Trainer
from tests import commands, small
from tests.streams import stream_folder
from tests.systems import SYSTEMS
from tfrecords_tools.tasks import builder as task_builder

GOOD, BAD = small.WORDS[:20], small.WORDS[20:40]
SIZES = {
    "vocab_size": small.config().encoder.vocab_size,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 48,
    "initializer_range": 0.1,
    "pooler": False,
}
XLNET = {
    "segments": {"format": "stream", "max_length": 16, "rows": 8, "reuse_length": 8},
    "corruption": {
        "type": "permutation", "unit": "token", "k": 4, "num_predict": 4, "perm_size": 8,
    },
    "encoder": {"type": "transformer_xl", **SIZES, "memory_length": 8, "reuse_length": 8},
    "objectives": [{"type": "permutation_lm"}],
}  # fmt: skip
# Rows of its own system, and no pooler.
MODERN = {
    **SYSTEMS["modernbert"],
    "encoder__hidden_size": 32,
    "encoder__intermediate_size": 48,
    "encoder__initializer_range": 0.1,
}
GPT2 = {
    "segments": {"format": "full_sentences", "max_length": 32},
    "corruption": None,
    "encoder": {
        "type": "transformer", **SIZES, "norm": "pre", "causal": True, "segment_types": 0,
        "max_positions": 32,
    },
    "objectives": [{"type": "causal_lm"}],
}  # fmt: skip


def run(module, *options):
    return commands.run(module, *options, status=0).stdout


def pretrained(folder, settings):
    """A model folder after a few steps, as training leaves it."""
    config = small.config(**settings, recipe__batch_size=8)
    make = stream_folder if config.segments.format == "stream" else small.shard_folder
    documents = {"documents": small.documents(60)} if make is stream_folder else {}
    source = ShardDataset(make(folder / "text", config, **documents), config, training=True)
    strategy = tf.distribute.get_strategy()
    model = strategies.build_model(config, strategy)
    Trainer(config, model, source, strategy, folder / "model").train()
    configs.save(config, folder / "model" / "config.yaml")
    source.tokenizer.save(folder / "model" / "tokenizer")
    return folder / "model"


def examples(count, seed, kind):
    """Texts of 2 to 12 words; which words prevail is the label, and how much the score."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        share = rng.choice([0.1, 0.9]) if kind == "classification" else rng.random()
        text = [
            " ".join(rng.choice(GOOD if rng.random() < share else BAD) for _ in range(n))
            for n in rng.integers(2, 12, 2)
        ]
        words = " ".join(text).split()
        actual = np.mean([word in GOOD for word in words])
        label = "good" if share > 0.5 else "bad"
        yield {"a": text[0], "b": text[1], "y": label if kind == "classification" else actual}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "system, kind",
    [
        (XLNET, "classification"), (GPT2, "regression"), (MODERN, "classification"),
    ],
    ids=["xlnet", "gpt2", "modernbert"],
)  # fmt: skip
def test_from_a_pretrained_folder_to_answers(tmp_path, system, kind):
    """Each encoder with one of the heads: pooling is of the encoder, answers are of the head."""
    init = pretrained(tmp_path, system)
    rows = {"train": (400, 1), "validation": (60, 2), "test": (43, 3)}
    files = {split: tmp_path / f"{split}.jsonl" for split in rows}
    rows = {split: list(examples(*numbers, kind)) for split, numbers in rows.items()}
    for split, path in files.items():
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[split]))
    task = tasks.generic(kind, "a", "b", "y")
    shards = tmp_path / "shards"
    tokenizer = tokenizers.load(init / "tokenizer")
    task_builder.build(task, files, tokenizer, shards, 24, report=lambda line: None)
    recipe = {
        "steps": 120, "batch_size": 16, "bucket_lengths": [16], "report_every": 60,
        "optimizer": {"learning_rate": 2e-3, "layer_decay": 0.9, "weight_decay": 0.0},
        "schedule": {"type": "xlnet", "warmup_steps": 10},
    }  # fmt: skip
    config = {"name": "tuned", "objectives": [{"type": kind}], "recipe": recipe}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    folder = tmp_path / "tuned"
    said = run(
        "official.main", "--mode=train_and_eval", f"--config={tmp_path}/config.yaml",
        f"--data={shards}", f"--init={init}", f"--model_dir={folder}",
    )  # fmt: skip
    assert f"(encoder); these are fresh: encoder/pooler, {kind}\n" in said
    encoder = configs.load(folder).encoder
    position = "last" if system in (XLNET, GPT2) else "first"
    assert (encoder.pooler, encoder.pooled_position) == (True, position)
    assert getattr(encoder, "memory_length", 0) == 0

    run(
        "official.main", "--mode=predict", f"--data={shards}", f"--model_dir={folder}",
        f"--output={tmp_path}/predictions.jsonl",
    )  # fmt: skip
    lines = (tmp_path / "predictions.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in lines]
    saved_model.export(folder, tmp_path / "saved")
    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    test = rows["test"]
    answers = serve(
        text=tf.constant([row["a"] for row in test]), text_b=tf.constant([row["b"] for row in test])
    )
    truth = [row["y"] for row in test]
    if kind == "classification":
        assert np.mean([line["label"] == y for line, y in zip(lines, truth, strict=True)]) > 0.85
        predicted = [[line["probabilities"][name] for name in ("bad", "good")] for line in lines]
        np.testing.assert_allclose(answers["probabilities"], predicted, rtol=0, atol=1e-5)
        assert [a.decode() for a in answers["label"].numpy()] == [line["label"] for line in lines]
    else:
        predicted = [line["score"] for line in lines]
        assert np.corrcoef(predicted, truth)[0, 1] > 0.85
        np.testing.assert_allclose(answers["score"], predicted, rtol=0, atol=1e-5)

    # One text alone, laid out by hand, gives what the loaded model gives among others.
    loaded = official.load(folder)
    vectors = loaded.encode([row["a"] for row in test], pooling="pooled")
    (ids,) = tokenizer.encode([test[0]["a"]])
    after, before = [tokenizer.sep_id], [tokenizer.cls_id]
    segments = [0] * (len(ids) + 2)
    if system is XLNET:
        after, before, segments[-1] = [*after, *before], [], 2
    batch = {"token_ids": np.array([[*before, *ids, *after]]), "segment_ids": np.array([segments])}
    np.testing.assert_allclose(
        vectors[0], loaded.model.encode(batch)["pooled_output"][0], rtol=0, atol=1e-5
    )
    last = loaded.model.encode(batch)["sequence_output"][0, -1]
    vectors = loaded.encode([row["a"] for row in test], pooling="last")
    np.testing.assert_allclose(vectors[0], last, rtol=0, atol=1e-5)
