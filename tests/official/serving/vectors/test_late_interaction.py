"""Vectors of tokens of a model folder: as in training, in searches, in reranking and in exports."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official.config.late_interaction import Expansion, LateInteractionConfig
from official.conversion import converted_model, huggingface
from official.evaluation import max_sim
from official.modeling.model import Model
from official.saving import model_folder
from official.serving import reranking, vector_pieces
from official.serving.export import saved_model
from official.serving.signatures import table
from official.serving.vector_pieces import Options
from official.serving.vectors import search, smaller
from official.tasks import trec
from official.tokenizers.pair_packing import pack_texts
from official.utils.errors import UserError
from tests import GOLDEN

CLOSE = dict(rtol=0, atol=1e-5)
TEXTS = ["The cat sat on a mat.", "", "dog " * 30, "a cat and a dog", "the tree ."]
QUERIES = ["a cat", "the dog ran on the mat and on"]
OBJECTIVE = LateInteractionConfig(
    size=5, query_prefix="a dog ", document_prefix="the ", document_length=9,
    expansion=Expansion(8), skipped_words=(".", "mat", "nothing"),
)  # fmt: skip


def make(folder, objective):
    """Writes a model; returns the vectors that its training compares of queries and documents."""
    bare = huggingface.read(GOLDEN / "hf_files" / "bare")
    objective = objective.for_tokenizer(bare.tokenizer)
    config = configs.ResolvedConfig.of(bare.config, objectives=(objective,))
    model = Model(config)
    for path, variable in model.variables_by_path().items():
        draw = np.random.default_rng(1).normal(0, 0.5, variable.shape)
        variable.assign(bare.variables.get(path, draw))
    variables = {path: np.asarray(v) for path, v in model.variables_by_path().items()}
    model_folder.write_new(config, bare.tokenizer, variables, folder)
    length = model_folder.ModelFolder.open(folder).max_length
    texts = [tf.constant([QUERIES[i % 2], text]) for i, text in enumerate(TEXTS)]
    rows = [pack_texts([each], bare.tokenizer, length, pad=True) for each in texts]
    batch = {name: tf.stack([row[name] for row in rows]) for name in rows[0]}
    ready = model.prepare({**batch, "example_weights": tf.ones(len(TEXTS))})
    return model.predictions(ready, model.encode_as_read(ready))["token_vectors"].numpy()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("late") / "model"
    return folder, make(folder, OBJECTIVE)


# The tokenizer finds the last prefixes in no text: they are pieces of a word.
@pytest.mark.parametrize(("prefixes", "count"), [(("a dog ", "the "), 2), (("##s", "##ning"), 1)])
def test_vectors_are_those_of_the_training(tmp_path, prefixes, count):
    folder = tmp_path / "model"
    query, document = prefixes
    objective = dataclasses.replace(OBJECTIVE, query_prefix=query, document_prefix=document)
    expected = make(folder, objective)
    loaded = official.load(folder)
    ids = loaded.config.objectives[0].ids
    assert len(ids.query_prefix) == count and len(ids.skipped) == 2
    queries = loaded.token_vectors(QUERIES, "query")
    assert [x.shape for x in queries] == [(8, 5)] * 2
    documents = loaded.token_vectors(TEXTS)
    assert len(documents[2]) == 9 and documents[2].dtype == np.float32
    parts, kind, default = saved_model.restore(folder)
    signatures = table.make(parts, kind, default)[1]
    assert "embed" not in signatures
    for texts, found, rows, name in (
        (QUERIES, queries, expected[:2, 0], "embed_query"),
        (TEXTS, documents, expected[:, 1], "embed_document"),
    ):
        exported = signatures[name](tf.constant(texts))["token_vectors"].numpy()
        for mine, row, other in zip(found, rows, exported, strict=True):
            np.testing.assert_allclose(mine, row[row.any(axis=-1)], **CLOSE)
            np.testing.assert_allclose(mine, other[other.any(axis=-1)], **CLOSE)
            np.testing.assert_allclose(np.linalg.norm(mine, axis=1), 1, atol=1e-5)


def test_a_search_compares_all_tokens(made, tmp_path):
    model = official.load(made[0])
    asked, given = model.token_vectors(QUERIES, "query"), model.token_vectors(TEXTS)
    expected = np.array([[(q @ d.T).max(axis=1).sum() for d in given] for q in asked])
    expected[:, 1] = -np.inf  # an empty text is no match
    numbers, scores = model.search(QUERIES, TEXTS, top_k=4)
    np.testing.assert_array_equal(numbers, np.argsort(-expected, axis=1)[:, :4])
    np.testing.assert_allclose(scores, np.sort(expected, axis=1)[:, :0:-1], rtol=1e-5)
    pairs = model.rank([*QUERIES, QUERIES[0]], [TEXTS[0], TEXTS[3], TEXTS[4]])
    np.testing.assert_allclose(pairs, expected[[0, 1, 0], [0, 3, 4]], rtol=1e-5)
    alone = np.maximum(expected[0], max_sim.EMPTY)
    np.testing.assert_allclose(model.rank(QUERIES[0], TEXTS), alone, rtol=1e-5)
    # From files to a run, and the best of a run anew.
    names = [f"d{i}" for i in range(5)]
    lines = [f"{name}\t{text}\n" for name, text in zip(names, TEXTS, strict=True) if text]
    (tmp_path / "documents.tsv").write_text("".join(lines))
    queries = {"q0": QUERIES[0], "q1": QUERIES[1]}
    file, output = tmp_path / "documents.tsv", tmp_path / "x.run"
    search.write(model.embedder, queries, file, output, 3, "x")
    run = trec.read_run(output)
    for row, query in enumerate(queries):
        best = [names[i] for i in np.argsort(-expected[row])[:3]]
        assert list(run[query]) == best
    given = {"q0": {"d3": 1.0, "d4": 2.0}, "q1": {"d0": 1.0}}
    reranking.write(model, queries, file, given, tmp_path / "y.run", 3, "x")
    again = trec.read_run(tmp_path / "y.run")
    assert {q: set(found) for q, found in again.items()} == {"q0": {"d3", "d4"}, "q1": {"d0"}}
    assert again["q0"]["d4"] == pytest.approx(expected[0, 4], rel=1e-5)


def test_documents_have_fewer_vectors():
    """The figures are those of sentence-transformers' HierarchicalTokenPooling."""
    x = np.array([(1, 0), (0, 1), (0.1, 1), (1, 0.1), (-1, 0)], np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    expected = [(1, 0), (0.4631436, 0.8862833), (-1, 0)]
    np.testing.assert_allclose(max_sim.pooled(x, 2), expected, atol=1e-6)
    np.testing.assert_allclose(max_sim.pooled(x, 4), [(1, 0), (0.0450909, 0.9989828)], atol=1e-6)
    assert np.array_equal(max_sim.pooled(x, 1), x)
    assert max_sim.pooled(x[:1], 3).tolist() == [[1, 0]]


def test_scores_in_blocks_are_those_of_a_loop(monkeypatch):
    monkeypatch.setattr(max_sim, "_PRODUCTS", 256 * 20)
    draw = np.random.default_rng(0)
    queries, documents = (
        [draw.normal(size=(n, 3)).astype(np.float32) for n in draw.integers(0, 40, count)]
        for count in (30, 50)
    )
    queries[4], documents[7] = queries[4][:0], documents[7][:0]
    for mean in (False, True):
        found = max_sim.max_sim(queries, documents, mean)
        for (i, j), score in np.ndenumerate(found):
            q, d = queries[i], documents[j]
            best = (q @ d.T).max(axis=1) if len(d) else None
            total = max_sim.EMPTY if best is None else best.sum()
            if best is not None and mean:
                total /= max(len(q), 1)
            assert score == pytest.approx(total, abs=1e-4)


def test_what_is_refused(made, tmp_path):
    model = official.load(made[0])
    with pytest.raises(UserError, match="kind: 'passage' is not one of query, document"):
        model.token_vectors(["a"], "passage")
    with pytest.raises(UserError, match="pool_factor: 0.5 is less than 1"):
        model.token_vectors(["a"], pool_factor=0.5)
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "bare"), tmp_path / "bare")
    bare = official.load(tmp_path / "bare")
    with pytest.raises(UserError, match="makes no vectors of tokens for a search: train it for"):
        bare.token_vectors(["a"])
    with pytest.raises(UserError, match="rank: this model has no objective ranking"):
        bare.rank("a", ["b"])


@pytest.mark.slow
@pytest.mark.long
def test_stored_vectors_of_tokens(made, tmp_path):
    """They are searched as the texts are, in pieces, and appended to, in smaller numbers too."""
    model, texts = official.load(made[0]), [*TEXTS, "on and on", "a mat", "dogs"]
    for name, rows in (("all", range(8)), ("first", range(5)), ("last", range(5, 8))):
        lines = "".join(f"d{i}\t{texts[i]}\n" for i in rows)
        (tmp_path / f"{name}.tsv").write_text(lines)
    wanted = model.search(QUERIES, texts, top_k=8)
    for dtype, atol in (("float32", 1e-5), ("bfloat16", 0.05), ("int8", 0.05)):
        options, out = Options(str(made[0]), size=2, dtype=dtype), tmp_path / dtype
        vector_pieces.write(options, tmp_path / "first.tsv", out, report=len)
        vector_pieces.write(options, tmp_path / "last.tsv", out, report=len, append=True)
        record = json.loads((out / "_vectors.json").read_text())
        assert [record[key] for key in ("kind", "texts", "pieces", "shape")] == [
            "tokens",
            8,
            5,
            [5],
        ]
        numbers, scores = model.search(QUERIES, vectors=out, top_k=8)
        assert (scores[:, -1] == -np.inf).all() and (numbers[:, -1] == 1).all()  # the empty text
        by_number = [
            np.take_along_axis(of, np.argsort(rows, axis=1), axis=1)
            for rows, of in ((numbers, scores), wanted)
        ]
        np.testing.assert_allclose(*by_number, atol=atol)
    assert np.load(tmp_path / "int8" / "vectors-00000.npy").dtype == np.int8
    # The best by smaller vectors, compared again by those that they were made of.
    smaller.write(tmp_path / "float32", tmp_path / "bits", "bits")
    assert np.load(tmp_path / "bits" / "vectors-00000.npy").shape[1] == 1
    numbers, scores = model.search(
        QUERIES, vectors=tmp_path / "bits", rescore=tmp_path / "float32", top_k=8
    )
    np.testing.assert_array_equal(numbers, wanted[0])
    np.testing.assert_allclose(scores, wanted[1], **CLOSE)
    tokens = [len(x) for x in model.token_vectors(texts)]
    lengths = [np.load(tmp_path / "float32" / f"lengths-0000{i}.npy") for i in range(5)]
    assert np.concatenate(lengths).tolist() == [tokens[0], 0, *tokens[2:]]
    pooled = Options(str(made[0]), pooling="mean", normalize=True)
    vector_pieces.write(pooled, tmp_path / "all.tsv", tmp_path / "pooled", report=len)
    with pytest.raises(
        UserError, match="its vectors are dense, and those that this model compares"
    ):
        model.search(QUERIES, vectors=tmp_path / "pooled")
    with pytest.raises(UserError, match="normalize: not supported for vectors of the kind tokens"):
        vector_pieces.write(
            Options(str(made[0]), normalize=True), tmp_path / "all.tsv", tmp_path / "x", report=len
        )
