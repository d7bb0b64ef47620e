"""From mined negatives by the margins of a ranker to a student, by commands."""

import json

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official.saving import checkpoints
from official.shards import manifest, parsing
from official.training import train
from tests import commands, small
from tests.official.saving.test_teachers import folder_of

EMBEDDING = {"type": "sentence_embedding", "loss": "margin_mse"}


@pytest.mark.slow
@pytest.mark.long
def test_a_student_learns_the_margins_of_a_ranker(tmp_path):
    wide = {"encoder__initializer_range": 0.3}
    ranker, _ = folder_of(tmp_path / "ranker", {"type": "ranking"}, seed=1, **wide)
    encoder, _ = folder_of(tmp_path / "encoder", EMBEDDING, **wide)
    words = small.WORDS
    pairs = [f"{words[i]} {words[i + 1]}\t{words[i]} {words[i + 9]}" for i in range(12)]
    (tmp_path / "pairs.tsv").write_text("q\ta\n" + "\n".join(pairs) + "\n")
    triples, margins = tmp_path / "triples.jsonl", tmp_path / "margins.jsonl"
    commands.run(
        "official.commands.mine_negatives", f"--input={tmp_path}/pairs.tsv", "--columns=q,a",
        f"--model_dir={encoder}", f"--output={triples}", "--negatives=3", status=0,
    )  # fmt: skip
    done = commands.run(
        "official.commands.teacher_margins", f"--model_dir={ranker}", f"--input={triples}",
        f"--output={margins}", "--scale=0.5", status=0,
    )  # fmt: skip
    lines = [json.loads(line) for line in margins.read_text().splitlines()]
    assert len(lines) == 36 and f"{margins}: 36 negatives; mean margin" in done.stdout
    queries, good, bad, given = (
        [line[key] for line in lines] for key in ("query", "positive", "negative", "margin")
    )
    model = official.load(ranker)
    scores = [model.rank(queries, documents) for documents in (good, bad)]
    np.testing.assert_allclose(given, 0.5 * (scores[0] - scores[1]), atol=1e-5)
    assert np.std(given) > 0.01
    commands.run(
        "tfrecords_tools.build_task_shards", "--task=embedding", f"--train_file={margins}",
        "--text_column=query", "--text_pair_column=positive", "--negative_columns=negative",
        "--label_column=margin", "--max_length=24",
        f"--tokenizer={encoder}/tokenizer", f"--output={tmp_path}/shards", status=0,
    )  # fmt: skip
    content = manifest.read(tmp_path / "shards")
    files = [str(tmp_path / "shards" / shard.name) for shard in content.split("train")]
    records = tf.stack(list(tf.data.TFRecordDataset(files)))
    parsed = parsing.parse(records, ["row", "score"])
    order = np.argsort(parsed["row"])
    np.testing.assert_allclose(parsed["score"].numpy()[order], given, rtol=1e-6)
    recipe = {"steps": 60, "batch_size": 12, "optimizer": {"learning_rate": 5e-3}}
    config = configs.from_dict(
        {"name": "student", "objectives": [EMBEDDING], "recipe": {**recipe, "report_every": 10}}
    )
    train(config, tmp_path / "shards", tmp_path / "student", init=encoder, evaluate=False)
    assert checkpoints.find(tmp_path / "student", "last")
    written = (tmp_path / "student" / "metrics.jsonl").read_text().splitlines()
    losses = [x["loss"] for line in written if "loss" in (x := json.loads(line))]
    assert losses[-1] < 0.7 * losses[0]
