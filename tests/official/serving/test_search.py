"""Exact search: against a sort of all scores, in bounded memory, from files to a TREC run."""

import gzip
import json
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

import official
from official.conversion import converted_model, huggingface
from official.serving import search
from official.serving.text_vectors import EmbeddingSettings
from official.utils.errors import UserError
from tests import GOLDEN, commands

TEXTS = ["the cat sat", "a dog ran", "cats and dogs", "the tree .", "a mat under the tree"]


@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "manhattan"])
def test_the_best_are_those_of_a_sort(kind, monkeypatch):
    monkeypatch.setattr(search, "SCORES", 40)  # so few that queries come in several parts
    rng = np.random.default_rng(0)
    # Few different numbers, so that there are many equal scores.
    queries, documents = (rng.integers(-1, 2, (n, 3)).astype(np.float32) for n in (7, 50))
    for top_k in (1, 6, 50, 99):
        best = search.Best(queries, top_k, kind)
        for block in np.split(documents, [3, 4, 20, 20]):
            best.add(block)
        for row, query in enumerate(queries):
            scores = {
                "euclidean": -np.sqrt(((documents - query) ** 2).sum(1)),
                "manhattan": -np.abs(documents - query).sum(1),
            }.get(kind, documents @ query)
            order = np.argsort(-scores, kind="stable")[:top_k]
            assert best.numbers[row].tolist() == order.tolist()
            np.testing.assert_allclose(best.scores[row], scores[order], rtol=1e-6)


def test_memory_does_not_grow_with_the_documents():
    """A million documents of 64 numbers are 256 MB; the search keeps the best of each query."""
    table = np.random.default_rng(0).standard_normal((search.BLOCK, 64)).astype(np.float32)
    embedder = SimpleNamespace(
        settings=EmbeddingSettings(similarity="dot"),
        texts=lambda texts, *_, **__: table[: len(texts)] * (len(texts[0]) + 1),
    )

    def peak(blocks):
        documents = ("x" * (i // search.BLOCK % 7) for i in range(blocks * search.BLOCK))
        tracemalloc.start()
        best = search.nearest(embedder, ["q"] * 100, documents, 10)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found, best

    few, many = peak(4), peak(40)
    assert many[0] < 1.2 * few[0] < 20e6
    assert (many[1].scores[:, 0] >= few[1].scores[:, 0]).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search") / "model"
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "bare"), folder)
    return folder


def test_search_compares_the_vectors_of_encode(folder, tmp_path):
    model, lines = official.load(folder), []
    numbers, scores = model.search(["a cat", "the tree"], TEXTS, top_k=3, report=lines.append)
    asked, given = (model.encode(x, normalize=True) for x in (["a cat", "the tree"], TEXTS))
    expected = asked @ given.T
    np.testing.assert_array_equal(numbers, np.argsort(-expected, axis=1)[:, :3])
    np.testing.assert_allclose(scores, np.sort(expected, axis=1)[:, :-4:-1], atol=1e-6)
    assert model.search(["a"], [], top_k=3)[0].shape == (1, 0)
    # Prompts stand before queries and before documents; distances are not of normalized vectors.
    model.embedder.settings = EmbeddingSettings(
        prompts={"query": "the dog ", "passage": "a cat "}, similarity="euclidean"
    )
    numbers, scores = model.search(["ran"], TEXTS, top_k=5)
    asked = model.encode(["the dog ran"])
    given = model.encode([f"a cat {text}" for text in TEXTS])
    distances = np.linalg.norm(given - asked, axis=1)
    assert numbers[0].tolist() == np.argsort(distances).tolist()
    np.testing.assert_allclose(-scores[0], np.sort(distances), atol=1e-5)
    for given, message in (
        (("a", ["b"]), "queries: give a list"),
        ((["a"], "b"), "documents: give a list"),
        ((["a"], ["b"], 0), "top_k: 0 is less than 1"),
    ):
        with pytest.raises(UserError, match=message):
            model.search(*given)


def test_files_of_texts(tmp_path):
    files = {
        "a.txt": "one\ntwo\n",
        "b.tsv": "id\ttext\nd1\tone\ta\n\nd2\ttwo\n",
        "c.tsv": "d1\tone\n",
        "d.jsonl": '{"_id": "x", "title": "T", "text": "one"}\n{"id": 7, "text": "b"}\n',
    }
    read = {}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        read[name] = list(search.texts_of(tmp_path / name))
    assert read == {
        "a.txt": [("1", "one"), ("2", "two")],
        "b.tsv": [("d1", "one\ta"), ("d2", "two")],
        "c.tsv": [("d1", "one")],
        "d.jsonl": [("x", "T one"), ("7", "b")],
    }
    (tmp_path / "e.tsv.gz").write_bytes(gzip.compress(files["b.tsv"].encode()))
    assert list(search.texts_of(tmp_path / "e.tsv.gz")) == read["b.tsv"]
    for name, content, message in (
        ("f.tsv", "d1 one\n", "line 1: no tab: expected an id and a text"),
        ("g.tsv", "a b\tone\n", "line 1: 'a b' cannot be an id"),
        ("h.jsonl", '{"text": "one"}\n', "line 1: expected the texts `_id` and `text`"),
        ("i.jsonl", "one\n", "line 1: not JSON"),
        ("j.tsv", "id\ttext\n", "has no texts"),
        ("k.tsv", "a\tone\na\ttwo\n", "the id 'a' occurs twice"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(UserError, match=message):
            list(search._unique(tmp_path / name))


@pytest.mark.slow
def test_command(folder, tmp_path):
    (tmp_path / "queries.tsv").write_text("id\ttext\nq1\ta cat\nq2\tthe tree\n")
    with (tmp_path / "documents.jsonl").open("w") as stream:
        for i, text in enumerate(TEXTS):
            stream.write(json.dumps({"_id": f"d{i}", "text": text}) + "\n")
    options = [
        "--mode=search", f"--model_dir={folder}", f"--queries={tmp_path}/queries.tsv",
        f"--texts={tmp_path}/documents.jsonl",
    ]  # fmt: skip
    run = tmp_path / "found.run"
    done = commands.run("official.main", *options, f"--output={run}", "--top_k=2", status=0)
    assert f"wrote {run}: 2 queries, 5 documents" in done.stdout
    numbers, scores = official.load(folder).search(["a cat", "the tree"], TEXTS, top_k=2)
    lines = [line.split() for line in run.read_text().splitlines()]
    assert [(x[0], x[2]) for x in lines] == [
        (f"q{row + 1}", f"d{number}") for row in range(2) for number in numbers[row]
    ]
    np.testing.assert_allclose([float(x[4]) for x in lines], scores.ravel(), atol=1e-5)
    best = {f"q{row + 1}": f"d{numbers[row, 0]}" for row in range(2)}
    (tmp_path / "qrels").write_text("".join(f"{q} 0 {d} 1\n" for q, d in best.items()))
    given = [f"--qrels={tmp_path}/qrels", f"--run={run}", "--metrics=ndcg_10,mrr"]
    done = commands.run("official.score_run", *given, status=0)
    assert done.stdout.split() == ["queries", "2", "ndcg_10", "1.000000", "mrr", "1.000000"]
    done = commands.run("official.main", *options, f"--output={tmp_path}/found.tsv", status=2)
    assert "TREC runs are written as .run: name such a file" in done.stderr
