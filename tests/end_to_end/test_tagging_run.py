"""Words and tags from a file to predictions: built, trained, evaluated, predicted by commands."""

import json

import numpy as np
import pytest
import yaml

import official
from official.evaluation import tags
from official.shards import manifest, side_texts
from tests import commands, small

SIZES = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "intermediate_size": 48}


def rows(count, seed):
    """Texts of words with blanks, hyphens, slashes or 's between; the first ten are entities."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        text, spans = "", []
        for word in rng.choice(small.WORDS, rng.integers(1, 30)):
            number = small.WORDS.index(word)
            if number < 10:
                kind = "PER" if number < 5 else "LOC"
                spans.append({"start": len(text), "end": len(text) + len(word), "type": kind})
            text += word + rng.choice([" ", "-", "/", "'s ", "  "])
        lines.append(json.dumps({"text": text, "spans": spans}) + "\n")
    return "".join(lines)


@pytest.mark.slow
@pytest.mark.long
def test_from_words_to_entities(tmp_path):
    for seed, name in enumerate(("train", "dev")):
        (tmp_path / f"{name}.jsonl").write_text(rows(200 if name == "train" else 30, seed))
    tokenizer = small.tokenizer_folder(tmp_path / "tokenizer")
    shards, model = tmp_path / "shards", tmp_path / "model"
    said = commands.run(
        "tfrecords_tools.build_task_shards", "--task=tagging",
        f"--train_file={tmp_path}/train.jsonl", f"--validation_file={tmp_path}/dev.jsonl",
        f"--tokenizer={tokenizer}", f"--output={shards}", "--max_length=24", status=0,
    ).stdout  # fmt: skip
    assert "train: 200 texts in" in said
    config = {
        "name": "tags",
        "encoder": {"type": "transformer", **SIZES, "max_positions": 24},
        "objectives": [{"type": "token_classification", "dropout": 0.0}],
        "recipe": {
            "steps": 50, "batch_size": 16, "report_every": 50, "bucket_lengths": [12],
            "optimizer": {"learning_rate": 3e-3},
        },
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    commands.run(
        "official.main", "--mode=train_and_eval", f"--config={tmp_path}/config.yaml",
        f"--data={shards}", f"--model_dir={model}", status=0,
    )  # fmt: skip
    evaluated = commands.run(
        "official.main", "--mode=eval", f"--data={shards}", f"--model_dir={model}", status=0
    ).stdout
    for suffix in ("conll", "jsonl"):
        commands.run(
            "official.main", "--mode=predict", f"--data={shards}", f"--model_dir={model}",
            "--split=validation", f"--output={tmp_path}/tags.{suffix}", status=0,
        )  # fmt: skip
    texts = side_texts.read_tagged(shards, "validation", manifest.read(shards))
    records = [json.loads(line) for line in open(tmp_path / "tags.jsonl", encoding="utf-8")]
    assert [tuple(each["words"]) for each in records] == [text.words for text in texts]
    assert [each["text"] for each in records] == [text.text for text in texts]
    written = "".join(
        "".join(f"{w} {t}\n" for w, t in zip(each["words"], each["tags"], strict=True)) + "\n"
        for each in records
    )
    assert (tmp_path / "tags.conll").read_text() == written
    metrics = tags.compute([text.tags for text in texts], [each["tags"] for each in records])
    for name in ("f1", "strict_f1", "accuracy"):
        assert f"{metrics[name]:.6f}" in evaluated, (name, metrics, evaluated)
    assert metrics["f1"] > 0.9
    # Entities are parts of the text, those that `tag` finds in it.
    found = official.load(model).tag([each["text"] for each in records])
    for each, entities in zip(records, found, strict=True):
        places = [(x["type"], x["text"], x["start"], x["end"]) for x in each["entities"]]
        assert all(each["text"][start:end] == text for _, text, start, end in places)
        assert places == [(x.type, x.text, x.start, x.end) for x in entities]
    scored = commands.run(
        "official.commands.score_tags", f"--gold={tmp_path}/dev.jsonl",
        f"--predicted={tmp_path}/tags.jsonl",
        status=0,
    ).stdout  # fmt: skip
    assert f"{metrics['f1']:.6f}" in scored.splitlines()[1]
