"""MNLI with its two files of each kind, what GLUE takes of it, and RTE from the model of MNLI."""

import numpy as np
import pytest
import yaml

from official import config as configs
from official import tasks, tokenizers
from official.saving import checkpoints
from tests import commands, small
from tfrecords_tools.tasks import builder as task_builder

GOOD, BAD, NEITHER = small.WORDS[:15], small.WORDS[15:30], small.WORDS[30:45]
ENCODER = {
    "type": "transformer", "hidden_size": 32, "num_layers": 2, "num_heads": 2,
    "intermediate_size": 48, "max_positions": 24, "initializer_range": 0.1,
}  # fmt: skip


def run(*options):
    return commands.run("official.main", *options, status=0).stdout


def pairs(path, count, seed, labels, labeled=True):
    """A file of pairs whose words tell the label; returns the labels."""
    rng = np.random.default_rng(seed)
    chosen = [labels[i] for i in rng.integers(0, len(labels), count)]
    words = {"entailment": GOOD, "contradiction": BAD, "not_entailment": BAD, "neutral": NEITHER}
    column = "gold_label" if len(labels) == 3 else "label"
    lines = ["index\tsentence1\tsentence2" + (f"\t{column}" if labeled else "")]
    for i, label in enumerate(chosen):
        first, second = (" ".join(rng.choice(words[label], rng.integers(2, 7))) for _ in "ab")
        lines.append(f"{i}\t{first}\t{second}" + (f"\t{label}" if labeled else ""))
    path.write_text("\n".join(lines) + "\n")
    return chosen


def shards(task, files, tokenizer, output):
    task_builder.build(task, files, tokenizer, output, 20, report=lambda line: None)
    return output


@pytest.mark.slow
@pytest.mark.long
def test_mnli_and_rte_from_it(tmp_path):
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    mnli, rte = tasks.find("mnli"), tasks.find("rte")
    counts = {"train": 300, "validation": 40, "validation_mismatched": 50, "test": 30}
    counts["test_mismatched"] = 20
    files = {split: tmp_path / f"mnli-{split}.tsv" for split in counts}
    truth = {
        split: pairs(files[split], count, seed, mnli.labels, not split.startswith("test"))
        for seed, (split, count) in enumerate(counts.items())
    }
    data = shards(mnli, files, tokenizer, tmp_path / "mnli")
    recipe = {
        "steps": 60, "batch_size": 16, "report_every": 30,
        "optimizer": {"learning_rate": 5e-3, "weight_decay": 0.0},
    }  # fmt: skip
    config = {
        "name": "mnli", "encoder": ENCODER, "objectives": [{"type": "classification"}],
        "recipe": recipe,
    }  # fmt: skip
    (tmp_path / "mnli.yaml").write_text(yaml.safe_dump(config))
    said = run(
        "--mode=train_and_eval", f"--config={tmp_path}/mnli.yaml", f"--data={data}",
        f"--model_dir={tmp_path}/model",
    )  # fmt: skip
    assert "validation: " in said

    said = run("--mode=eval", f"--data={data}", f"--model_dir={tmp_path}/model").splitlines()
    names = [line.split()[0] for line in said]
    figures = ["loss", "classification_accuracy", "classification", "accuracy"]
    assert [n for n in names if n.endswith(":")] == ["validation:", "validation_mismatched:"]
    assert set(names[1 : names.index("validation_mismatched:")]) <= set(figures)
    accuracies = [float(line.split()[1]) for line in said if line.startswith("accuracy")]
    assert len(accuracies) == 2 and min(accuracies) > 0.9
    assert accuracies[1] == pytest.approx(round(accuracies[1] * 50) / 50, abs=1e-6)  # of its rows

    run(
        "--mode=predict", f"--data={data}", f"--model_dir={tmp_path}/model",
        f"--submission={tmp_path}/submission",
    )  # fmt: skip
    written = sorted((tmp_path / "submission").iterdir())
    assert [path.name for path in written] == ["MNLI-m.tsv", "MNLI-mm.tsv"]
    for path, split in zip(written, ("test", "test_mismatched"), strict=True):
        header, *lines = path.read_text().splitlines()
        assert header == "index\tprediction"
        assert [line.split("\t")[0] for line in lines] == [str(i) for i in range(counts[split])]
        hits = [line.split("\t")[1] == y for line, y in zip(lines, truth[split], strict=True)]
        assert np.mean(hits) > 0.9

    # RTE starts from that model's encoder, with a head of its own: two classes where it had three.
    files = {split: tmp_path / f"rte-{split}.tsv" for split in ("train", "validation")}
    for seed, path in enumerate(files.values()):
        pairs(path, 32, 10 + seed, rte.labels)
    data = shards(rte, files, tokenizer, tmp_path / "rte")
    recipe["steps"], recipe["optimizer"]["learning_rate"] = 1, 0.0
    config = {"name": "rte", "objectives": [{"type": "classification"}], "recipe": recipe}
    (tmp_path / "rte.yaml").write_text(yaml.safe_dump(config))
    said = run(
        "--mode=train_and_eval", f"--config={tmp_path}/rte.yaml", f"--data={data}",
        f"--init={tmp_path}/model", f"--model_dir={tmp_path}/rte-model",
    )  # fmt: skip
    assert "(encoder); these are fresh: classification\n" in said
    before = checkpoints.load_variables(tmp_path / "model")
    after = checkpoints.load_variables(tmp_path / "rte-model")
    assert {path for path in before if path.startswith("encoder/")} <= set(after)
    for path, values in after.items():
        if path.startswith("encoder/"):
            np.testing.assert_array_equal(values, before[path])
    assert after["classification/output/kernel"].shape == (32, 2)
    objective = configs.load(tmp_path / "rte-model").objectives[0]
    assert objective.labels == ("entailment", "not_entailment")
    refused = commands.run(
        "official.main",
        "--mode=eval",
        f"--data={data}",
        f"--model_dir={tmp_path}/model",
    )
    assert refused.returncode == 2
    assert (
        "rte: its labels are entailment, not_entailment, and the model knows entailment, neutral, "
        "contradiction: name the shards of the model's own task" in refused.stderr
    )
