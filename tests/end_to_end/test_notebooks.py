"""The notebooks run from the first cell to the last, and say what they should."""

import json
import re

import numpy as np
import pytest

import official
from official.convert import converted_model, huggingface
from tests import ROOT
from tests.official.serving.test_words_in_context import write as elmo

GOLDEN = ROOT / "tests" / "golden" / "hf_files"


def run(notebook):
    """Runs the code cells in one namespace, as a kernel does."""
    cells = json.loads((ROOT / "notebooks" / notebook).read_text(encoding="utf-8"))["cells"]
    names = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook}, cell {number}", "exec"), names)
    return names


@pytest.mark.slow
@pytest.mark.long
def test_contextual_representations(tmp_path, monkeypatch, capsys):
    converted_model.write(huggingface.read(GOLDEN / "pretraining"), tmp_path / "model")
    monkeypatch.setenv("MODEL", str(tmp_path / "model"))
    monkeypatch.setenv("ELMO", str(elmo(tmp_path / "elmo", split_punctuation=True)))
    names = run("contextual_representations.ipynb")
    said = capsys.readouterr().out
    size = names["model"].config.encoder.hidden_size
    assert names["vectors"].shape == (3, size) and names["features"].shape == (8, size)
    (actual,) = names["model"].tokens(names["texts"][:1])
    text = names["texts"][0]
    inside = [i for i, place in enumerate(actual.starts) if 4 <= place < 8]
    assert "".join(text[actual.starts[i] : actual.ends[i]] for i in inside) == "bank"
    np.testing.assert_allclose(
        names["of_word"](text, "bank"), actual.vectors[inside].mean(axis=0), atol=1e-6
    )
    layers = [line.split(": ")[0] for line in said.splitlines() if ", layer " in line]
    last = {"the encoder": names["model"].config.encoder.num_layers, "ELMo": 2}
    assert layers == [f"{name}, layer {i}" for name, n in last.items() for i in range(n + 1)]
    assert "ELMo, layer 0: a bank of money 1.000, of a river 1.000" in said
    for name, count in last.items():
        (weights,) = re.findall(rf"weights of the layers of {name}: \[(.*)\]", said)
        shares = [float(share) for share in weights.split(", ")]
        assert len(shares) == count + 1 and abs(sum(shares) - 1) < 0.01
        assert len(set(shares)) > 1  # they were learnt
    assert said.count(", by the mix: ") == 2 * len(names["texts"])
    # The weights are random, so only the presence of an answer for each text is checked.
    assert all(f"{text!r}: " in said for text in names["texts"])
    answers = [line for line in said.splitlines() if line.startswith(("money: ", "water: "))]
    assert [answer.partition(": ")[2] for answer in answers] == names["texts"]
    trained = official.load(names["folder"] / "model")
    assert trained.config.encoder == names["model"].config.encoder
