"""What a SavedModel answers is what `--mode=predict` wrote, from the same raw text."""

import json
import random

import numpy as np
import pytest

from official.conversion import converted_model, huggingface
from tests import ROOT, commands
from tests.official.commands.test_export import ask

GOLDEN = ROOT / "tests" / "golden" / "hf_files" / "pretraining"
WORDS = "the a cat dog sat ran on under mat tree and quickly , . ! ? cafe".split()
# Empty texts are refused by build_task_shards; the first one here has no token left.
ODD = [
    "\u00ad\u200b",
    "a",
    "dog " * 90,
    "ünïcødé 猫\t😀",
    "[MASK] [SEP]",
    "a\u00ad\u200bb\x00c",
    "İSTANBUL ß",
]


def run(module, **flags):
    commands.run(module, *(f"--{name}={value}" for name, value in flags.items()), status=0)


def rows(number, seed):
    draw = random.Random(seed)

    def text():
        if draw.random() < 0.3:
            return draw.choice(ODD)
        return " ".join(draw.choices(WORDS, k=draw.randrange(1, 18)))

    return [
        {"first": text(), "second": text(), "label": draw.choice(["yes", "no", "perhaps"])}
        for _ in range(number)
    ]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", ["single", "pair", "windows"])
def test_the_server_answers_what_predict_writes(tmp_path, kind):
    pair, windows = kind == "pair", {"windows": 3, "window_overlap": 4} if kind == "windows" else {}
    converted_model.write(huggingface.read(GOLDEN), tmp_path / "pretrained")
    test = rows(35, seed=1)
    for name, part in {"train": rows(64, seed=0), "test": test}.items():
        lines = [json.dumps(row) + "\n" for row in part]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    run(
        "tfrecords_tools.build_task_shards",
        task="classification", text_column="first", label_column="label",
        **({"text_pair_column": "second"} if pair else {}),
        train_file=tmp_path / "train.jsonl", test_file=tmp_path / "test.jsonl",
        tokenizer=tmp_path / "pretrained" / "tokenizer", output=tmp_path / "shards",
        max_length=20, **windows,
    )  # fmt: skip
    (tmp_path / "config.yaml").write_text(
        "name: served\nobjectives: [{type: classification}]\n"
        "recipe:\n  epochs: 1\n  batch_size: 16\n  optimizer: {learning_rate: 0.001}\n"
        "  bucket_lengths: [8, 20]\n"
    )
    run(
        "official.main",
        mode="train", config=tmp_path / "config.yaml", data=tmp_path / "shards",
        init=tmp_path / "pretrained", model_dir=tmp_path / "model",
    )  # fmt: skip
    run(
        "official.main",
        mode="predict", data=tmp_path / "shards", model_dir=tmp_path / "model",
        output=tmp_path / "predictions.jsonl",
    )  # fmt: skip
    run("official.export", model_dir=tmp_path / "model", output=tmp_path / "saved")
    predicted = [json.loads(line) for line in (tmp_path / "predictions.jsonl").open()]
    assert [line["row"] for line in predicted] == list(range(35))

    names = {"text": "first", "text_b": "second"} if pair else {"text": "first"}
    requests = [
        ("serving_default", {k: [row[n] for row in test[a : a + size]] for k, n in names.items()})
        for size in (1, 7)
        for a in range(0, 35, size)
    ]
    answers = ask(tmp_path / "saved", requests, tmp_path)
    for batch in (answers[:35], answers[35:]):
        probabilities = np.concatenate([answer["probabilities"] for answer in batch])
        labels = np.concatenate([answer["label"] for answer in batch])
        expected = [
            [line["probabilities"][c] for c in ("no", "perhaps", "yes")] for line in predicted
        ]
        np.testing.assert_allclose(probabilities, expected, atol=1e-5)
        assert [label.decode() for label in labels] == [line["label"] for line in predicted]
    assert np.ptp(np.array(expected), axis=0).min() > 0.01  # answers that differ
