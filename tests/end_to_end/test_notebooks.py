"""The notebooks were run, their pages are up to date, and they still run and say what they should.

Here they start from small models with random weights, in place of the weights of a package.
"""

import ast
import importlib.util
import re
import string

import numpy as np
import pytest

import official
from docs import make_notebooks
from official import tokenizers
from official.conversion import converted_model, huggingface
from official.saving import model_folder, named_arrays
from tests import GOLDEN, ROOT, small
from tests.official.serving.vectors.test_words_in_context import write as elmo

NOTEBOOKS = make_notebooks.paths()


def code_cells(path):
    return [cell for cell in make_notebooks.read(path)["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs(path):
    """The cells were run in order and without errors, and print no path or warning."""
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        for output in cell["outputs"]:
            assert output["output_type"] in ("stream", "execute_result")
            assert output.get("name", "stdout") == "stdout"
        text = make_notebooks.printed(cell)
        assert not re.search(r"(?<![\w/])/\w+/|Warning|WARNING|https?:", text), text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_imports_exist(path):
    for cell in code_cells(path):
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module)
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    assert hasattr(module, alias.name) or importlib.util.find_spec(whole), whole
            for name in names:
                assert importlib.util.find_spec(name), name


def test_pages_are_up_to_date():
    assert make_notebooks.main(["--check"]) == 0
    made = {path.stem for path in NOTEBOOKS} | {"index"}
    assert made == {path.stem for path in make_notebooks.PAGES.glob("*.md")}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a notebook: its variables, and what it prints. Its folders are below `tmp_path`."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)  # a notebook may go elsewhere, and comes back

    def run_notebook(name, changes=()):
        path = make_notebooks.NOTEBOOKS / f"{name}.ipynb"
        notebook = make_notebooks.read(path)
        for old, new in changes:
            cells = [c for c in notebook["cells"] if old in "".join(c["source"])]
            assert cells, old
            for cell in cells:
                cell["source"] = ["".join(cell["source"]).replace(old, new)]
        names = make_notebooks.run(notebook, path.name)
        return names, "".join(map(make_notebooks.printed, notebook["cells"]))

    return run_notebook


@pytest.fixture
def model(tmp_path, monkeypatch):
    """The folder of a small model that spells English, which the notebooks take."""
    characters = list(string.ascii_lowercase + string.digits + ".,:;?!'_-()")
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer", characters))
    config = small.config(
        encoder__vocab_size=tokenizer.vocab_size,
        encoder__max_positions=96,
        encoder__num_layers=3,
        encoder__initializer_range=0.2,
    )
    values = named_arrays.values(model_folder.build(config).variables_by_path())
    model_folder.write_new(config, tokenizer, values, tmp_path / "model")
    monkeypatch.setenv("MODEL", str(tmp_path / "model"))
    return tmp_path / "model"


@pytest.mark.slow
def test_search(run, model):
    """The best documents of the exact search are those of the vectors; the ranks are counted."""
    names, said = run("search", [("MODULES.split()", "MODULES.split()[:5]")])
    documents, queries = names["documents"], names["queries"]
    vectors = official.load(model).encode(documents + queries, normalize=True)
    cosines = vectors[len(documents) :] @ vectors[: len(documents)].T
    np.testing.assert_allclose(
        names["scores"], -np.sort(-cosines, axis=1)[:, :3], atol=1e-5, rtol=0
    )
    rank = names["ranks"](names["shared"].toarray())
    for i, number in enumerate(names["asked"]):
        row = names["shared"].toarray()[i]
        assert rank[i] == 1 + sum(row[j] >= row[number] for j in range(len(row)) if j != number)
    assert f"{len(documents)} documents, such as" in said and said.count("MRR ") == 2
    np.testing.assert_allclose(
        np.load(names["work"] / "vectors.npy"), official.load(model).encode(documents), atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.long
def test_classification(run, model):
    names, said = run("classification", [("epochs=3", "epochs=1")])
    trained = official.load(names["work"] / "areas")
    answers = trained.classify(names["texts"][600:])
    labels = [answer.label for answer in answers]
    assert set(labels) <= set(names["AREAS"])
    right = np.mean([a == b for a, b in zip(labels, names["labels"][600:], strict=True)])
    assert f"accuracy {right:.3f}; of the most frequent label 0." in said


@pytest.mark.slow
@pytest.mark.long
def test_questions(run, model):
    names, said = run("questions", [("epochs=3", "epochs=1"), ("[:-100]", "[:96]")])
    assert len(names["train"]) == 96 and len(names["test"]) == 100
    for question, text, answer in names["examples"]:
        if answer:
            assert text[answer[1] :].startswith(answer[0]) and answer[0]
        else:
            assert question.split()[-1].removesuffix("?") not in text.lower()
    right = {True: 0, False: 0}
    for (_, text, answer), given in zip(names["test"], names["found"], strict=True):
        assert text[given.start : given.end] == given.text
        right[bool(answer)] += given.text == (answer[0] if answer else "")
    assert f"texts answered: {right[True]} of " in said
    assert f"texts without an answer: {right[False]} of " in said


@pytest.mark.slow
@pytest.mark.long
def test_keras_head(run, model):
    names, said = run("keras_head", [("epochs=4", "epochs=1"), ("epochs=2", "epochs=1")])
    assert "the same after loading: True" in said
    frozen, more = (
        int(number.replace(",", "")) for number in re.findall(r"([\d,]+) weights are trained", said)
    )
    assert frozen == 17 and more > frozen  # hidden size 16, and the bias
    assert len(names["rows"]) == 2 * names["size"]


@pytest.mark.slow
@pytest.mark.long
def test_domain_text(run):
    names, said = run(
        "domain_text",
        [
            (
                'Path(sysconfig.get_path("stdlib"))',
                'Path(sysconfig.get_path("stdlib")) / "asyncio"',
            ),
            ("Path(sklearn.__file__).parent", 'Path(sklearn.__file__).parent / "linear_model"'),
            ("--vocab_size=2000", "--vocab_size=600"),
            ("--pieces=500", "--pieces=50"),
            ("recipe.steps=600", "recipe.steps=20"),
            ("schedule.warmup_steps=100", "schedule.warmup_steps=5"),
            ("recipe.steps=400", "recipe.steps=20"),
        ],
    )
    assert names["after"]["domain"] < names["grown"]["domain"]
    sizes = [int(n) for n in re.findall(r"^(\d+) pieces: \[", said, re.MULTILINE)]
    assert sizes[1] < sizes[0]
    rows = [tokenizers.load(f"{name}/tokenizer").vocab_size for name in ("general_model", "grown")]
    assert rows[0] < rows[1] <= rows[0] + 50


@pytest.mark.slow
@pytest.mark.long
def test_contextual_representations(run, tmp_path, monkeypatch):
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "pretraining"), tmp_path / "model")
    monkeypatch.setenv("MODEL", str(tmp_path / "model"))
    monkeypatch.setenv("ELMO", str(elmo(tmp_path / "elmo", split_punctuation=True)))
    names, said = run("contextual_representations", [('"epochs": 10', '"epochs": 3')])
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
        assert len(set(shares)) > 1  # they were learned
    assert said.count(", by the mix: ") == 2 * len(names["texts"])
    # The weights are random, so only the presence of an answer for each text is checked.
    assert said.count(", by logistic regression: ") == len(names["texts"])
    answers = [line for line in said.splitlines() if line.startswith(("money: ", "water: "))]
    assert [answer.partition(": ")[2] for answer in answers] == names["texts"]
    trained = official.load(names["folder"] / "model")
    assert trained.config.encoder == names["model"].config.encoder
