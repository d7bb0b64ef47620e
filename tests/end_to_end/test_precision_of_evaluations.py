"""Evaluations of a run with mixed precision have the figures of `--mode=eval`, to the digit."""

import json

import numpy as np
import pytest

from official import config as configs
from official import tasks, tokenizers, training
from official.distribution import numerics
from official.evaluation import run
from official.saving import checkpoints, metrics_log
from official.tasks import text_to_text as forms
from tests import small, squads, systems
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.tasks import builder as task_builder

SIZES = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 24}
BERT = {"type": "transformer", **SIZES, "max_positions": 32, "initializer_range": 0.5}
T5 = {"type": "encoder_decoder", **SIZES}


@pytest.fixture(autouse=True)
def float32_at_the_end():
    yield
    numerics.set_precision("float32")


def texts(count, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(small.WORDS, rng.integers(2, 12))) for _ in range(count)]


def classified(folder, tokenizer, form=lambda task: task):
    files = {}
    for seed, split in enumerate(("train", "validation")):
        lines = [f"{text}\t{'yes' if text < 'k' else 'no'}\n" for text in texts(40, seed)]
        files[split] = folder / f"{split}.tsv"
        files[split].write_text("x\ty\n" + "".join(lines))
    metrics = ("accuracy", "f1")
    task = tasks.generic("classification", "x", label="y", labels=("no", "yes"), metrics=metrics)
    task_builder.build(
        form(task), files, tokenizer, folder / "shards", 16, report=lambda line: None
    )


def written(folder, tokenizer):
    classified(folder, tokenizer, forms.from_task)


def tagged(folder, tokenizer):
    files = {}
    for seed, split in enumerate(("train", "validation")):
        words = [text.split() for text in texts(24, seed)]
        tag = lambda word: "B-A" if word < "g" else "B-B" if word < "m" else "O"  # noqa: E731
        lines = [{"tokens": row, "tags": [tag(word) for word in row]} for row in words]
        files[split] = folder / f"{split}.jsonl"
        files[split].write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = tasks.generic("tagging", "0", label="-1")
    task_builder.build(task, files, tokenizer, folder / "shards", 16, report=lambda line: None)


def asked(folder, tokenizer):
    squads.shard_folder(folder / "shards", no_answers=True, tokenizer=tokenizer)


CASES = {
    "classification": (classified, BERT, {"type": "classification"}),
    "span": (asked, BERT, {"type": "span_answer", "n_best": 4, "max_answer_length": 5}),
    "tagging": (tagged, BERT, {"type": "token_classification", "crf": True}),
    "text_to_text": (written, T5, {"type": "seq2seq_lm"}),
}


def same_figures(config, shards, model, held_out=None, split=None, rel=0):
    """Trains three steps, and returns the evaluation at the end, which `--mode=eval` repeats."""
    training.train(config, shards, model, validation_data=held_out, report=lambda line: None)
    in_run = metrics_log.read(model)[-1].metrics
    (alone,) = run.evaluate(model, held_out or shards, split=split, checkpoint="last").values()
    alone.pop("target_entropy", None)
    assert in_run == pytest.approx(alone, rel=rel, abs=0)
    assert checkpoints.load_state(checkpoints.find(model, "last"))["figures"] == in_run
    return alone


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", CASES)
def test_a_run_and_an_evaluation_have_the_same_figures(kind, tmp_path):
    build, encoder, objective = CASES[kind]
    build(tmp_path, tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer")))
    recipe = {"steps": 3, "batch_size": 8, "precision": "mixed_bfloat16"}
    recipe |= {"optimizer": {"learning_rate": 5e-2}, "eval_batch_size": 16}
    config = configs.from_dict(
        {"name": kind, "encoder": encoder, "objectives": [objective], "recipe": recipe}
    )
    same_figures(config, tmp_path / "shards", tmp_path / "model")


@pytest.mark.slow
@pytest.mark.long
def test_a_memory_is_evaluated_in_float32(tmp_path):
    config = small.config(
        **systems.TRANSFORMER_XL, recipe__precision="mixed_bfloat16", recipe__steps=3
    )
    settings = Settings.from_config(config, small.tokenizer_folder(tmp_path / "tokenizer"))
    for seed, name in enumerate(("shards", "held_out")):
        small.built_here(tmp_path / name, settings, small.documents(30, seed))
    folders = (tmp_path / name for name in ("shards", "model", "held_out"))
    same_figures(config, *folders, "train", rel=1e-6)  # bfloat16 is 1e-5 away
