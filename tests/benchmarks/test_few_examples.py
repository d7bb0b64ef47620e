"""benchmarks.few_examples: the examples of a seed, and its table."""

from benchmarks import few_examples


def test_examples_are_the_same_of_each_class(tmp_path):
    file = tmp_path / "train.tsv"
    lines = [f"{i % 3}\ta  b{i} c d" for i in range(30)]
    file.write_text("label\ttext\n" + "\n".join(lines) + "\n", encoding="utf-8")
    rows = few_examples.read(file, "text", "label", ["0", "2"], 3)
    assert rows[:2] == [("a b0 c", "0"), ("a b2 c", "2")] and len(rows) == 20
    drawn = few_examples.drawn(rows, 4, 0)
    assert [label for _, label in drawn] == ["0"] * 4 + ["2"] * 4
    assert len(set(drawn)) == 8 and set(drawn) < set(rows)
    assert drawn == few_examples.drawn(rows, 4, 0) != few_examples.drawn(rows, 4, 1)


def test_the_table_has_a_row_for_each_side():
    answers = {
        "ours": [{"accuracy": 0.5, "cpu": 10.0}, {"accuracy": 0.75, "cpu": 30.0}],
        "setfit": [{"accuracy": 1.0, "cpu": 60.0}, {"accuracy": 0.25, "cpu": 61.0}],
    }
    assert few_examples.table(answers) == [
        "| side | seed 0 | seed 1 | mean | CPU seconds |",
        "|---|---:|---:|---:|---:|",
        "| ours | 0.5000 | 0.7500 | 0.6250 | 20 |",
        "| setfit | 1.0000 | 0.2500 | 0.6250 | 60 |",
    ]
