"""benchmarks.vector_search: its vectors and its tables."""

import numpy as np
import pytest

from benchmarks import vector_search
from official.conversion import converted_model, huggingface
from official.serving.vectors.stored import Stored
from official.tasks import beir
from tests import GOLDEN


def test_vectors_are_stored_and_have_the_length_1(tmp_path, monkeypatch):
    vector_search.store(tmp_path / "vectors", 20_000, 16)
    opened = Stored(tmp_path / "vectors")
    opened.check()
    assert opened.index.count == 20_000 and opened.ids[16_384] == "16384"
    tables = [np.load(x) for x in sorted((tmp_path / "vectors").glob("vectors-*.npy"))]
    assert [len(table) for table in tables] == [16_384, 3_616]
    rng = np.random.default_rng(0)
    for table in tables:
        np.testing.assert_array_equal(table, vector_search.unit(rng, len(table), 16))
        np.testing.assert_allclose(np.linalg.norm(table, axis=1), 1, rtol=1e-6)


def test_the_table_compares_with_the_last_side(capsys):
    runs = [{"seconds": 2.0, "cpu": 4.0, "memory": 9.6, "queries": 100}] * 2
    theirs = [{"seconds": 5.0, "cpu": 9.0, "memory": 1.2, "queries": 100}] * 2
    vector_search.table({"ours": [*runs, {**runs[0], "seconds": 99.0}], "theirs": theirs})
    assert capsys.readouterr().out.splitlines()[3:] == [
        "| ours | 2.00 | 50 | 2.50 | 4.00 | 10 |",
        "| theirs | 5.00 | 20 | 1.00 | 9.00 | 1 |",
    ]


@pytest.mark.slow
def test_losses_on_a_folder_of_beir(tmp_path, capsys):
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "bare"), tmp_path / "model")
    texts = {f"d{i}": text for i, text in enumerate(["a cat", "the tree", "dogs ran", "a mat"] * 3)}
    queries = {"q1": "a cat", "q2": "the tree"}
    judged = {"q1": {f"d{i}": 1 for i in (0, 4, 8)}, "q2": {f"d{i}": 1 for i in (1, 5, 9)}}
    beir.write(tmp_path / "set", queries, texts.items(), {"test": judged})
    vector_search.losses(tmp_path / "model", tmp_path / "set")
    lines = [x.split("|")[1:-1] for x in capsys.readouterr().out.splitlines()[2:]]
    assert [[cell.strip() for cell in line[:2]] for line in lines] == [
        ["float32", "48"], ["float16", "24"], ["bfloat16", "24"],
        ["int8", "12"], ["int8, compared again", "12"],
        ["bits", "2"], ["bits, compared again", "2"],
    ]  # fmt: skip
    # The text of each query is there three times.
    assert [float(line[2]) for line in lines[:4]] == [1.0] * 4
    # All twelve documents are compared again, by the vectors of float32.
    assert [line[2:] for line in (lines[4], lines[6])] == [lines[0][2:]] * 2
    assert float(lines[0][3]) == 1
