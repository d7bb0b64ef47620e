"""The whole training step of each kind of task on XLA, the optimizer included, as on a TPU.

`test_smoke_configs` has those of pretraining.
"""

import json

import numpy as np
import pytest

from official import config as configs
from official import tasks, tokenizers, training
from official.distribution import numerics
from official.saving import checkpoints
from official.tasks import text_to_text as forms
from official.training import run
from tests import choices, small, squads, xla
from tfrecords_tools.tasks import builder as task_builder

ENCODER = {
    "type": "transformer", "vocab_size": 125, "hidden_size": 8, "num_layers": 1, "num_heads": 2,
    "intermediate_size": 16, "max_positions": 32,
}  # fmt: skip
DECODER = {
    "type": "encoder_decoder", "vocab_size": 125, "hidden_size": 8, "num_layers": 1,
    "num_heads": 2, "intermediate_size": 16,
}  # fmt: skip
TAGGED = {"type": "token_classification", "crf": True, "bilstm": 4, "mix": {"penalty": 0.1}}
# The shards, the objectives, and what a config has besides.
KINDS = {
    "classification": ("label", [{"type": "classification"}], {}),
    "regression": ("score", [{"type": "regression"}], {"optimizer": {"type": "adafactor"}}),
    "ranking": ("ranking", [{"type": "ranking"}], {"optimizer": {"type": "lamb"}}),
    "kernels": ("ranking", [{"type": "kernel_ranking"}], {}),
    "span": ("span", [{"type": "span_answer", "form": "conditional"}], {}),
    "choice": ("choice", [{"type": "multiple_choice"}], {}),
    "tagging": ("tagging", [TAGGED], {"optimizer": {"layer_decay": 0.9}}),
    "text_to_text": ("texts", [{"type": "seq2seq_lm"}], {"optimizer": {"type": "adafactor"}}),
    "several tasks": (
        "label score",
        [
            {"type": "classification", "task": "classification"},
            {"type": "regression", "task": "regression"},
        ],
        {"optimizer": {"bias_correction": True}},
    ),
}


@pytest.fixture(autouse=True)
def float32():
    yield
    numerics.set_precision("float32")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Gives the shards of a kind."""
    folder = tmp_path_factory.mktemp("tasks")
    tokenizer = tokenizers.load(small.tokenizer_folder(folder / "tokenizer"))
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(small.WORDS, draw.integers(2, 9))) for _ in range(24)]
    quiet = {"report": lambda line: None}

    def table(rows):
        path = folder / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return {"train": path}

    def label(output):
        files = table({"a": text, "y": "ab"[i % 2]} for i, text in enumerate(texts))
        task = tasks.generic("classification", "a", label="y")
        task_builder.build(task, files, tokenizer, output, 16, **quiet)

    def score(output):
        files = table({"a": text, "y": i / 8} for i, text in enumerate(texts))
        task = tasks.generic("regression", "a", label="y")
        task_builder.build(task, files, tokenizer, output, 16, **quiet)

    def texts_(output):
        files = table({"x": text, "y": text[:5]} for text in texts)
        task_builder.build(forms.generation("x", "y"), files, tokenizer, output, 16, **quiet)

    def tags(output):
        path = folder / "tags.conll"
        path.write_text(
            "\n".join(
                "".join(f"{w} {'B-X' if w < 'g' else 'O'}\n" for w in t.split()) for t in texts
            )
        )
        task = tasks.generic("tagging", "0", label="-1")
        task_builder.build(task, {"train": path}, tokenizer, output, 24, **quiet)

    def ranked(output):
        for name in ("queries", "documents"):
            lines = "".join(f"{name[0]}{i}\t{text}\n" for i, text in enumerate(texts))
            (folder / f"{name}.tsv").write_text("id\ttext\n" + lines)
        (folder / "qrels").write_text("".join(f"q{i} 0 d{i} 1\n" for i in range(8)))
        (folder / "run").write_text(
            "".join(f"q{i} Q0 d{j} 1 {24.0 - j} x\n" for i in range(8) for j in range(24))
        )
        names = {"queries": "queries.tsv", "documents": "documents.tsv", "qrels": "qrels"}
        files = {"train": folder / "run"}
        task_builder.build(
            tasks.ranking(), files, tokenizer, output, 24, input=folder, **names, **quiet
        )

    def chosen(output):
        choices.shards(output, train=choices.rows(16))

    builders = {
        "label": label, "score": score, "texts": texts_, "tagging": tags, "ranking": ranked,
        "choice": chosen, "span": lambda output: squads.shard_folder(output, no_answers=True),
    }  # fmt: skip

    def give(name):
        if not (folder / name).exists():
            builders[name](folder / name)
        return folder / name

    return give


def raw_of(name, precision):
    """The values of a config."""
    _, objectives, recipe = KINDS[name]
    return {
        "name": "whole",
        "encoder": DECODER if name == "text_to_text" else ENCODER,
        "objectives": objectives,
        "recipe": {"steps": 2, "batch_size": 4, "precision": precision, **recipe},
    }


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.long
@pytest.mark.parametrize("name", KINDS)
def test_xla_computes_the_same_weights(folders, tmp_path, monkeypatch, name):
    raw, data = raw_of(name, "float64"), KINDS[name][0]
    runs = []
    for form in ("plain", "compiled"):
        if form == "compiled":
            xla.compile_whole_steps(monkeypatch)
        training.train(
            configs.from_dict(raw),
            [folders(each) for each in data.split()],
            tmp_path / form,
            evaluate=False,
            report=lambda line: None,
        )
        runs.append(checkpoints.load_variables(tmp_path / form, "last", optimizer=True))
    assert runs[0]["optimizer/gradient_norm"] > 0 and runs[0]["optimizer/iteration"] == 2
    assert runs[1].keys() == runs[0].keys()
    # Adafactor amplifies rounding, and the gradient of a bias before a softmax is rounding alone.
    for path, value in runs[0].items():
        assert np.abs(runs[1][path] - value).max() <= 1e-6 * np.abs(value).max() + 1e-10, path


@xla.NEEDS_LIBTPU
@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.long
@pytest.mark.parametrize("name", KINDS)
def test_the_compiler_of_tpus_takes_the_step(folders, tmp_path, monkeypatch, name):
    """For four cores of a TPU v5e, whose gradients are summed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = configs.from_dict(raw_of(name, "mixed_bfloat16"))
    data = [folders(each) for each in KINDS[name][0].split()]
    [(_, found)] = run.estimate_tpu_memory(config, data, "v5e:2x2")
    assert found.program.refused is None and found.program.arguments > 10_000
