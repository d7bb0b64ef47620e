"""Text to text from files to predictions, by the commands; and a task that is learned."""

import json

import numpy as np
import pytest
import yaml

from tests import CONFIGS, commands, small

CONFIG = CONFIGS / "finetune" / "text_to_text.yaml"
SIZES = {
    "type": "encoder_decoder", "hidden_size": 32, "num_layers": 1, "num_heads": 4,
    "intermediate_size": 64, "dropout": 0.0, "attention_dropout": 0.0, "inner_dropout": 0.0,
}  # fmt: skip
WORDS = small.WORDS[:12]


def rows(count, longest, seed):
    """Texts and the same words in reverse order."""
    rng = np.random.default_rng(seed)
    texts = [list(rng.choice(WORDS, rng.integers(1, longest + 1))) for _ in range(count)]
    return [(" ".join(text), " ".join(text[::-1])) for text in texts]


def write(path, table):
    path.write_text("".join("\t".join(row) + "\n" for row in [("x", "y"), *table]))
    return path


def build(folder, output, *arguments, **files):
    tokens = small.tokenizer_folder(
        folder / "tokenizer", WORDS + ["positive", "negative", "m", ":"]
    )
    named = [f"--{split}_file={path}" for split, path in files.items()]
    arguments = f"--tokenizer={tokens}", f"--output={output}", *arguments, *named
    commands.run("tfrecords_tools.build_task_shards", *arguments, status=0)
    return output


def config_file(folder, **recipe):
    """The config of the repository for an encoder-decoder of its own."""
    read = yaml.safe_load(CONFIG.read_text())
    read["recipe"] |= {"bucket_lengths": [], "init_weights": "encoder", **recipe}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**read, "encoder": SIZES}))
    return path


@pytest.mark.slow
@pytest.mark.long
def test_from_files_to_predictions(tmp_path):
    labels = ["negative", "positive"]
    table = [(text, labels[text.startswith(("b", "d"))]) for text, _ in rows(30, 3, 0)]
    arguments = "--task=classification", "--text_to_text", "--text_column=x", "--label_column=y"
    arguments += "--prefix=m", "--max_length=8", "--labels=negative,positive"
    test, held_out = (write(tmp_path / f"{name}.tsv", table[20:]) for name in ("test", "dev"))
    shards = build(
        tmp_path, tmp_path / "shards", *arguments,
        train=write(tmp_path / "train.tsv", table), validation=held_out, test=test,
    )  # fmt: skip
    config = config_file(tmp_path, steps=4, batch_size=8, eval_every=2, save_every=2)
    folder = tmp_path / "run"
    commands.run(
        "official.main",
        "--mode=train_and_eval",
        f"--config={config}",
        f"--data={shards}",
        f"--model_dir={folder}",
        status=0,
    )
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert any("accuracy" in str(line) for line in lines)
    output = tmp_path / "p.jsonl"
    commands.run(
        "official.main",
        "--mode=predict",
        f"--data={shards}",
        f"--model_dir={folder}",
        f"--output={output}",
        status=0,
    )
    predictions = [json.loads(line) for line in output.read_text().splitlines()]
    assert [each["row"] for each in predictions] == list(range(10))
    for each in predictions:
        assert each["label"] == (each["text"] if each["text"] in labels else None)


@pytest.mark.slow
@pytest.mark.long
def test_reversal_is_learned(tmp_path):
    """A model that does not attend to the right word is right in a few of a hundred rows."""
    train, held_out = rows(8000, 4, 1), rows(300, 4, 2)
    arguments = "--task=generation", "--text_column=x", "--label_column=y", "--max_length=8"
    shards = build(
        tmp_path, tmp_path / "shards", *arguments,
        train=write(tmp_path / "train.tsv", train),
        validation=write(tmp_path / "dev.tsv", held_out),
    )  # fmt: skip
    config = config_file(
        tmp_path, steps=1500, batch_size=64, eval_every=1500, save_every=1500, jit_compile=True,
        schedule={"type": "inverse_sqrt", "warmup_steps": 300, "linear_tail": 0.5},
        optimizer={"type": "adafactor", "learning_rate": 0.3},
    )  # fmt: skip
    folder = tmp_path / "run"
    commands.run(
        "official.main",
        "--mode=train_and_eval",
        f"--config={config}",
        f"--data={shards}",
        f"--model_dir={folder}",
        status=0,
    )
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    matches = [v for line in lines for k, v in _flat(line) if k.endswith("exact_match")]
    assert matches[-1] >= 0.99


def _flat(values, prefix=""):
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value
