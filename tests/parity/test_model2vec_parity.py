"""Static vectors: distilled, encoded, written and read beside model2vec and sentence-transformers.

Shapes: n pieces, D size of a vector.
"""

import json
import re

import numpy as np
import pytest
import safetensors.numpy

import official
from official import config as configs
from official.config.encoders import TransformerConfig
from official.conversion import huggingface
from official.modeling.model import Model
from official.saving import model_folder, named_arrays, static_vectors
from tests import GOLDEN, ROOT, commands
from tests.parity.test_minilm_parity import TEXTS

CLOSE = dict(rtol=0, atol=1e-5)
# The long text has short pieces: model2vec cuts it by tokens, not by letters.
WORDS = ["The cat sat on a mat.", "", "猫 猫", "dog 猫 dog cat", "a cat dog " + "a " * 600]
# What is distilled, by name: the arguments of model2vec, and our flags.
CASES = {
    "seven": ({"pca_dims": 7}, ["--dimensions=7"]),
    "share": ({"pca_dims": 0.8}, ["--dimensions=0.8"]),
    "all": ({"pca_dims": "auto"}, ["--dimensions=all"]),
    "unweighted": ({"pca_dims": 7, "sif_coefficient": None},
                   ["--dimensions=7", "--sif_coefficient=0"]),
}  # fmt: skip
STORED = {
    "float16": {},
    "float32": {"quantize_to": "float32"},
    "int8": {"quantize_to": "int8"},
    "shared_rows": {"vocabulary_quantization": 5, "quantize_to": "float32"},
}
# The listing of docs/embeddings.md that reads a folder.
READER = re.search(
    r"```python\n(import json\n.*?)```", (ROOT / "docs/embeddings.md").read_text(), re.DOTALL
)[1]  # fmt: skip


def run(reference, script, path, jobs, timeout=600):
    """Runs jobs in one process of a reference."""
    path.write_text(json.dumps([list(map(_plain, job)) for job in jobs]))
    return reference.run(script, path, timeout=timeout)


def _plain(value):
    return value if isinstance(value, str | dict | list) else str(value)


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A BERT with random weights: `model`, and `hf` for transformers."""
    parent = tmp_path_factory.mktemp("static")
    bare = huggingface.read(GOLDEN / "hf_files" / "bare")
    sizes = TransformerConfig(
        vocab_size=bare.config.encoder.vocab_size, hidden_size=21, num_layers=2, num_heads=3,
        intermediate_size=35, max_positions=520, activation="gelu", initializer_range=0.4,
    )  # fmt: skip
    config = configs.ResolvedConfig.of(bare.config, encoder=sizes)
    arrays = named_arrays.values(Model(config).variables_by_path())
    model_folder.write_new(config, bare.tokenizer, arrays, parent / "model")
    huggingface.write(parent / "model", parent / "hf", "last")
    return parent


@pytest.fixture(scope="module")
def theirs(m2v, parent):
    """Folders of model2vec by the names of `CASES` and `STORED`; `NAME.npy` has their vectors."""
    given = {name: arguments for name, (arguments, _) in CASES.items()}
    given |= {name: {"pca_dims": 6, **arguments} for name, arguments in STORED.items()}
    jobs = [("distill", parent / "hf", parent / name, each) for name, each in given.items()]
    jobs += [("encode", parent / name, parent / f"{name}.npy", WORDS) for name in given]
    run(m2v, "m2v_static.py", parent / "jobs.json", jobs, 1800)
    return parent


def table_of(folder):
    """The vectors of a folder of model2vec by piece."""
    described = json.loads((folder / "tokenizer.json").read_text())
    rows = safetensors.numpy.load_file(folder / "model.safetensors")["embeddings"]
    return {piece: rows[i] for piece, i in described["model"]["vocab"].items()}


def agree(ours, theirs):
    """Compares a model with a folder of model2vec: within a step of float16 at a row's maximum."""
    model, table = official.load(ours), table_of(theirs)
    rows = model.model.encoder.table.table.numpy()
    numbers = {piece: i for i, piece in enumerate(model.tokenizer.pieces)}
    kept = static_vectors.with_vectors(model.tokenizer)
    assert sorted(numbers[piece] for piece in table) == kept.tolist()
    for piece, row in table.items():
        step = 2.0 ** (np.floor(np.log2(np.abs(row.astype(np.float64)).max())) - 10)
        assert np.abs(rows[numbers[piece]] - row.astype(np.float64)).max() <= step, piece
    return model


@pytest.mark.parametrize("name", CASES)
def test_distilled_vectors(name, theirs, tmp_path):
    commands.run(
        "official.commands.students", f"--teacher={theirs / 'model'}", "--static",
        *CASES[name][1], f"--output={tmp_path / 'static'}", status=0,
    )  # fmt: skip
    agree(tmp_path / "static", theirs / name)


@pytest.fixture(scope="module")
def ways(theirs, m2v, hf5):
    """What is written here, as the others encode it; and as sentence-transformers writes it."""
    for name in STORED:
        official.convert(theirs / name, theirs / f"{name}_ours", source="hf")
        official.convert(theirs / f"{name}_ours", theirs / f"{name}_back", target="hf")
    jobs = [("encode", theirs / f"{n}_back", theirs / f"{n}_back.npy", WORDS) for n in STORED]
    run(m2v, "m2v_static.py", theirs / "jobs.json", jobs)
    jobs = [
        (theirs / f"{n}_back", theirs / f"{n}_st.npy", WORDS, theirs / f"{n}_st") for n in STORED
    ]
    run(hf5, "st_static.py", theirs / "jobs.json", jobs)
    return theirs


@pytest.mark.parametrize("name", STORED)
def test_folders_both_ways(name, ways):
    wanted = np.load(ways / f"{name}.npy")
    model = official.load(ways / name)
    assert model.config.encoder.num_rows == (5 if name == "shared_rows" else None)
    # model2vec computes in float16 where the rows are of float16.
    close = dict(rtol=0, atol=2e-3) if name == "float16" else CLOSE
    np.testing.assert_allclose(model.encode(WORDS), wanted, **close)
    for way in ("back", "st"):
        np.testing.assert_allclose(np.load(ways / f"{name}_{way}.npy"), wanted, **close)


def test_a_folder_needs_numpy_and_a_tokenizer_alone(ways, m2v):
    more = (
        f"\nnp.save({str(ways / 'reader.npy')!r}, encode({WORDS!r}))\n"
        "assert not {'tensorflow', 'torch', 'transformers', 'safetensors'} & set(sys.modules)\n"
    )
    (ways / "reader.py").write_text(READER + more)
    m2v.run(ways / "reader.py", ways / "float32_back")
    np.testing.assert_allclose(np.load(ways / "reader.npy"), np.load(ways / "float32.npy"), **CLOSE)


def test_a_released_table_of_int8(m2v, tmp_path):
    """tokenlearn-static-model: a Unigram of 276,326 pieces that share 10,000 rows."""
    (tmp_path / "where.py").write_text("import static_model\nprint(static_model.__file__)\n")
    folder = (m2v.run(tmp_path / "where.py").strip()).replace("__init__.py", "model")
    texts = ["hello world", "The cat sat on the mat.", "", "Zürich ist schön!"]
    run(m2v, "m2v_static.py", tmp_path / "jobs.json", [("encode", folder, tmp_path / "x", texts)])
    wanted = np.load(tmp_path / "x.npy")
    np.testing.assert_allclose(
        wanted[0, :4], [0.30104214, -0.31205538, -0.01007531, -0.07806434], atol=3e-8
    )
    np.testing.assert_allclose(official.load(folder).encode(texts), wanted, **CLOSE)


@pytest.mark.slow
@pytest.mark.long
def test_minilm(hf5, m2v, tmp_path):
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    released = hf5.run("st_vectors.py", "", tmp_path / "texts.json", tmp_path / "x").split()[-1]
    jobs = [
        ("distill", released, tmp_path / "theirs", {}),
        ("encode", tmp_path / "theirs", tmp_path / "theirs.npy", TEXTS),
    ]
    run(m2v, "m2v_static.py", tmp_path / "jobs.json", jobs, 3000)
    done = commands.run(
        "official.commands.students", f"--teacher={released}", "--static",
        f"--output={tmp_path / 'static'}", status=0,
    )  # fmt: skip
    assert "29,525 pieces, vectors of 256 with 95.9% of the variance" in done.stdout
    model = agree(tmp_path / "static", tmp_path / "theirs")
    # The rows there are of float16.
    np.testing.assert_allclose(model.encode(TEXTS), np.load(tmp_path / "theirs.npy"), atol=1e-3)
