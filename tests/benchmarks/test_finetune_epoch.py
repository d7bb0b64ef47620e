import numpy as np
import pytest

from benchmarks import finetune_epoch
from tests import commands, small

LABELED = (("hi", 0), ("lo", 1))
ROWS = [
    f"{word} {' '.join(small.WORDS[i : i + 3])} \t{label}"
    for i in range(20)
    for word, label in LABELED
]


def write_task(folder):
    folder.mkdir()
    for split, rows in (("train", ROWS), ("dev", ROWS[:10])):
        (folder / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    tests = [f"{number}\t{row.partition(chr(9))[0]}" for number, row in enumerate(ROWS[:6])]
    (folder / "test.tsv").write_text("\n".join(["index\tsentence", *tests]) + "\n")
    return folder


def test_rows_are_drawn(tmp_path):
    source = write_task(tmp_path / "task")
    assert finetune_epoch.draw(source, tmp_path / "some", 15, seed=3) == 15
    header, *rows = (tmp_path / "some" / "train.tsv").read_text().splitlines()
    assert header == "sentence\tlabel" and len(set(rows)) == 15 and set(rows) < set(ROWS)
    assert rows != sorted(rows, key=ROWS.index)
    assert (tmp_path / "some" / "dev.tsv").read_text() == (source / "dev.tsv").read_text()
    assert finetune_epoch.draw(source, tmp_path / "all", 0, seed=3) == 40
    assert set((tmp_path / "all" / "train.tsv").read_text().splitlines()[1:]) == set(ROWS)


def test_turns_add_up_to_the_epoch():
    side = finetune_epoch.Side.__new__(finetune_epoch.Side)
    side.steps = 21
    shares = [side.share(number, 4) for number in range(4)]
    assert sum(shares) == 21 and max(shares) - min(shares) <= 1


def test_table(capsys):
    def side(name, seconds, accuracy):
        result = finetune_epoch.Side.__new__(finetune_epoch.Side)
        result.name, result.steps, result.seconds = name, 50, seconds
        result.last = {"accuracy": accuracy, "loss": 0.5, "peak_mib": 1500.0}
        return result

    options = type("Options", (), {"precision": "float32", "learning_rate": 1e-4})
    settings = {
        "encoder": {"num_layers": 4, "hidden_size": 256},
        "examples": 1600,
        "recipe": {"batch_size": 32},
    }
    sides = [side(finetune_epoch.OURS, [1.5, 2.5], 0.8), side(finetune_epoch.THEIRS, [7, 9], 0.79)]
    finetune_epoch.table(sides, settings, options)
    printed = capsys.readouterr().out
    assert "| encoder garden | 50 | 4.0 | 400 | 1.00x | 1,500 | 0.8000 | 0.5000 |" in printed
    assert "| tf-models-official | 50 | 16.0 | 100 | 4.00x | 1,500 | 0.7900 | 0.5000 |" in printed


@pytest.mark.slow
@pytest.mark.long
def test_our_side_runs_and_is_tabled(tmp_path):
    source = write_task(tmp_path / "task")
    done = commands.run(
        "benchmarks.finetune_epoch",
        f"--data={source}",
        "--vocab=50",
        "--sides",
        finetune_epoch.OURS,
        "--examples=32",
        "--turns=2",
        "--learning_rate=1e-4",
        "--override=recipe.batch_size=4",
        "--override=recipe.bucket_lengths=[8,128]",
        status=0,
    )
    first, *turns = done.stdout.splitlines()[:3]
    assert first.startswith("encoder garden: 8 steps; before them loss 0.")
    before, after = (
        float(first.split()[7].rstrip(",")), float(done.stdout.splitlines()[-1].split("|")[8])
    )  # fmt: skip
    # Eight small steps: it has moved, and not far.
    assert [before, after] == pytest.approx([np.log(2)] * 2, abs=0.1) and before != after
    assert [turn.split(":")[0] for turn in turns] == ["turn 1 of 2", "turn 2 of 2"]
    row = done.stdout.splitlines()[-1].split("|")
    assert row[1:3] == [" encoder garden ", " 8 "] and row[5] == " 1.00x "
